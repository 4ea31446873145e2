"""The code of docs/reports.md runs, and reports the losses that it computes.

`make test-frameworks` runs this; see conftest.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from fake_daemon import ROWS, FakeDaemon, Peer
from reports_page import Page, means, torch, trainer_of
from test_docs import blocks
from test_reports import covered, taking

__all__ = ["taking"]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def page(taking: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> Page:
    monkeypatch.setenv("BATCHWEAVE_SOCKET", str(taking.path))
    taking.end = 12
    return Page()


def test_the_first_loop_leaves_a_step_out(taking: FakeDaemon, page: Page) -> None:
    taking.end = 1_001
    step = iter(range(2_000))

    def model(*_: Any) -> Any:
        return torch.tensor(float("nan") if next(step) == 3 else 1.0, requires_grad=True)

    page.run("# What the model says back", model=model)
    peer = trainer_of(taking)
    assert covered(peer) == set(range(1_001))
    assert [s for _, states in peer.reports for s in states if s[2]] == [(3, 4, "nan")]
    assert [step for step, _ in peer.checkpoints] == [1_000]
    assert len(page.losses) == 1_000


def test_a_loop_of_ones_own(taking: FakeDaemon, page: Page) -> None:
    page.run("### A loop of your own")
    found = trainer_of(taking)
    assert means(found) == pytest.approx(page.losses, rel=1e-5)
    assert len(page.losses) == 12


def test_an_update_over_several_steps(taking: FakeDaemon, page: Page) -> None:
    page.run("### An update over several steps")
    found = means(trainer_of(taking))
    assert len(found) == 12
    updates = [sum(found[at : at + 4]) / 4 for at in (0, 4, 8)]
    assert updates == pytest.approx(page.losses, rel=1e-5)


def test_ranks_that_share_a_coordinate(
    taking: FakeDaemon, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wider(peer: Peer) -> bool:
        tokens = {"name": "tokens", "dtype": "U16", "shape": [ROWS, 17], "offset": 0}
        peer.send_welcome(seq_len=16)
        peer.send_segment()
        peer.send_layout({"length": 256, "arrays": [tokens]})
        peer.running = True
        peer.push()
        return True

    taking.on_hello = wider
    monkeypatch.setenv("WORLD_SIZE", "8")
    sums = []
    for rank in range(4):
        monkeypatch.setenv("RANK", str(rank))
        page.losses.clear()
        page.run("### Ranks that share a coordinate")
        peer = taking.peers[-1] if taking.peers[-1].hello else taking.peers[-2]
        assert peer.bye.wait(20)
        if rank in (0, 2):
            assert means(peer) == pytest.approx(page.losses, rel=1e-5)
            assert {(one.kind, one.weight) for one in peer.values} == {(4, ROWS * 8)}
            sums.append([one.sum for one in peer.values])
        else:
            assert not peer.reports
    assert sums[0] != sums[1]


def test_a_trainer_of_transformers(taking: FakeDaemon, page: Page, tmp_path: Path) -> None:
    transformers: Any = importlib.import_module("transformers")
    text = (ROOT / "docs" / "pytorch.md").read_text()
    (block,) = (code for _, code in blocks(text) if "class StreamTrainer" in code)
    names = {**page.names(), "DataLoader": torch.utils.data.DataLoader}
    exec(block[: block.index("class Positions")], names)
    config = transformers.GPT2Config(
        vocab_size=1 << 16, n_positions=16, n_embd=8, n_layer=1, n_head=1
    )
    more = {
        "model": transformers.GPT2LMHeadModel(config),
        "arguments": transformers.TrainingArguments(
            **{"output_dir": str(tmp_path), "use_cpu": True, "report_to": "none"},
            **{"max_steps": 7, "logging_steps": 1, "disable_tqdm": True, "save_strategy": "no"},
        ),
    }
    found = page.run("### Trainer of transformers", **{**names, **more})
    history = found["trainer"].state.log_history
    logged = [entry["loss"] for entry in history if "loss" in entry]
    peer = trainer_of(taking)
    assert covered(peer) == set(range(7))
    assert means(peer) == pytest.approx(logged, rel=1e-2)
    assert found["losses"].computed == []
