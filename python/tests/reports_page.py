"""The code of docs/reports.md, and the names that it does not define."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from fake_daemon import FakeDaemon, Peer
from test_docs import blocks

import batchweave

torch: Any = importlib.import_module("torch")

PAGE = Path(__file__).parents[2] / "docs" / "reports.md"
ATTEMPT = "ab" * 16
VOCABULARY = 1 << 16


def section(title: str) -> str:
    """The code of a section, with the lines before it empty, as in the page."""
    text = PAGE.read_text()
    begin = text.splitlines().index(title)
    found = next((line, code) for line, code in blocks(text) if line > begin)
    return "\n" * (found[0] - 1) + found[1]


class Page:
    """Runs blocks of the page, and keeps the mean loss of each update."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.saved: list[int] = []
        torch.manual_seed(1)
        embedding = torch.nn.Embedding(VOCABULARY, 4)
        self.model = torch.nn.Sequential(embedding, torch.nn.Linear(4, VOCABULARY))

    def names(self) -> dict[str, Any]:
        return {
            "__name__": "page",
            "attempt": ATTEMPT,
            "batchweave": batchweave,
            "cross_entropy": torch.nn.functional.cross_entropy,
            "model": self.model,
            "save": lambda _, state: self.saved.append(len(state)),
            "state": None,
            "torch": torch,
            "update": self.update,
        }

    def update(self, loss: Any) -> None:
        loss.backward()
        self.losses.append(float(loss.detach()))

    def run(self, title: str, **more: Any) -> dict[str, Any]:
        names = {**self.names(), **more}
        exec(compile(section(title), str(PAGE), "exec"), names)
        return names


def trainer_of(daemon: FakeDaemon) -> Peer:
    """The only session, after its end."""
    (peer,) = [peer for peer in daemon.peers if peer.hello]
    assert peer.bye.wait(20)
    return peer


def means(peer: Peer) -> list[float]:
    """The mean loss of each step that a session reported."""
    assert [one.step for one in peer.values] == list(range(len(peer.values)))
    return [one.sum / one.weight for one in peer.values]
