"""The Python in the documentation compiles; README.md and docs/python.md run, with any slices."""

from __future__ import annotations

import builtins
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import fake_torch
import numpy as np
import pytest
from fake_daemon import FakeDaemon

import batchweave
from batchweave import errors

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "python/README.md",
    "docs/python.md",
    "docs/pytorch.md",
    "docs/reports.md",
    "docs/even-steps.md",
    "docs/first-steps.md",
    "docs/engines.md",
    "docs/inbox.md",
]
PAGE = (ROOT / "docs" / "python.md").read_text()
README = (ROOT / "README.md").read_text()


def blocks(text: str, kind: str = "python") -> Iterator[tuple[int, str]]:
    """The Python blocks of a page, or those of another kind, with the line where each begins."""
    inside = ""
    block: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            if inside == kind:
                yield number - len(block), "\n".join(block) + "\n"
            inside, block = ("" if inside else line[3:].strip() or "text"), []
        else:
            block.append(line)


def test_blocks_are_found() -> None:
    text = "a\n```python\nb\n\nc\n```\n```sh\nd\n```\n```python\ne\n```\n"
    assert list(blocks(text)) == [(3, "b\n\nc\n"), (11, "e\n")]


@pytest.mark.parametrize("page", PAGES)
def test_python_on_the_pages_is_python(page: str) -> None:
    found = list(blocks((ROOT / page).read_text()))
    assert found, "the page has none: take it off the list"
    for line, block in found:
        compile("\n" * (line - 1) + block, str(ROOT / page), "exec")


class Model:
    """The page's model: counts steps."""

    def __init__(self) -> None:
        self.steps = 0

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]


class Accelerator:
    """The parts of Accelerate that the page uses."""

    def __init__(self) -> None:
        self.parts: list[Any] = []

    def register_for_checkpointing(self, part: Any) -> None:
        self.parts.append(part)

    def save_state(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "part").write_text(self.parts[0].state_dict()["batchweave"])

    def load_state(self, folder: Path) -> None:
        self.parts[0].load_state_dict({"batchweave": (folder / "part").read_text()})


def frameworks() -> dict[str, ModuleType]:
    ranks = fake_torch.Ranks(1)
    ranks.enter(0)
    found = fake_torch.modules(ranks)
    vars(found["torch.distributed"])["init_process_group"] = lambda backend: backend
    for name in ("accelerate", "jax", "jax.experimental.multihost_utils", "lightning"):
        found[name] = ModuleType(name)
    vars(found["accelerate"])["Accelerator"] = Accelerator
    vars(found["jax"]).update(process_index=lambda: 0, process_count=lambda: 1)
    vars(found["jax.experimental.multihost_utils"])["broadcast_one_to_all"] = np.array
    vars(found["lightning"]).update(
        pytorch=SimpleNamespace(Callback=object), LightningModule=object
    )
    return found


class Stage:
    """The names that the page does not define."""

    def __init__(self, folder: Path, slices: int) -> None:
        self.folder, self.slices, self.steps = folder, slices, 0
        self.saved: dict[str, Any] = {}

    def train(self, *arrays: Any) -> None:
        assert [each.shape for each in arrays] == [(4 * self.slices, 15)] * 2
        self.steps += 1

    def names(self) -> dict[str, Any]:
        return {
            "__name__": "page",
            "train": self.train,
            "model": Model(),
            "path": self.folder / "last.pt",
            "folder": self.folder / "checkpoint",
            "save": self.saved.update,
            "load": lambda: self.saved,
            "exists": lambda: bool(self.saved),
        }


def fit(names: dict[str, Any], trained: Stage) -> None:
    """As Lightning does: asks for the loader, takes a batch ahead, tells the callback."""
    data = names["Data"]()
    trainer = SimpleNamespace(save_checkpoint=lambda _: data.state_dict())
    with data.position:
        loader = names["Module"](data).train_dataloader()
        ahead = next(loader, None)
        while ahead is not None:
            batch, ahead = ahead, next(loader, None)
            trained.train(batch.inputs, batch.labels)
            data.on_train_batch_end(trainer, None, None, batch, batch.step)


END = 2_000


def words(block: str) -> set[str]:
    """What the tests below tell blocks apart by."""
    return {word for word in ("batchweave.open(", ".stop()") if word in block}


def test_a_preempted_rank_of_the_page_marks_its_last_step(
    monkeypatch: pytest.MonkeyPatch, path: Path, tmp_path: Path
) -> None:
    (block,) = (text for _, text in blocks(PAGE) if ".stop()" in text)
    monkeypatch.setenv("BATCHWEAVE_SOCKET", str(path))
    stage = Stage(tmp_path, 1)

    def train(*arrays: Any) -> None:
        stage.train(*arrays)
        if stage.steps == 7:
            signal.raise_signal(signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    try:
        with FakeDaemon(path) as daemon:
            exec(block, {**stage.names(), "batchweave": batchweave, "train": train})
            assert [step for step, _ in daemon.peers[0].checkpoints] == [7]
    finally:
        signal.signal(signal.SIGTERM, before)
    assert '"next_step": 7' in stage.saved["data"]["batchweave"].replace('":7', '": 7')


@pytest.mark.parametrize("slices", [1, 3])
@pytest.mark.parametrize(
    ("line", "block"),
    [found for found in blocks(PAGE) if not {"batchweave.open(", ".stop()"} & words(found[1])],
)
def test_the_trainers_page_runs(
    monkeypatch: pytest.MonkeyPatch,
    path: Path,
    tmp_path: Path,
    line: int,
    block: str,
    slices: int,
) -> None:
    for name, module in frameworks().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("BATCHWEAVE_SOCKET", str(path))
    stage = Stage(tmp_path, slices)
    # Earlier blocks of the page import what later ones use.
    names = stage.names()
    imports = "\n".join(row for row in PAGE.splitlines() if row.startswith(("import ", "from ")))
    exec(imports, names)
    program = compile("\n" * (line - 1) + block, str(ROOT / "docs" / "python.md"), "exec")
    with FakeDaemon(path, end=END, slices=slices) as daemon:
        daemon.on_describe = lambda peer: peer.send_info()
        for _ in range(2):
            exec(program, names)
            if "Module" in names:
                fit(names, stage)
        # One may ask for the tokenizer beside its session.
        first, again = [peer for peer in daemon.peers if peer.hello]
        # One that saves continues at its last checkpoint, the end; others read again.
        resumes = any(word in block for word in ("load(", "load_state("))
        assert again.hello["next_step"] == (END if resumes else 0)
        looks = "reader.tokenizer" in block
        assert stage.steps == (0 if looks else END if resumes else 2 * END)
        marks = [step for step, _ in first.checkpoints]
        tells = any(word in block for word in (".checkpoint(", ".after_"))
        assert sorted(marks) == ([1_000, END] if tells else [])


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_readmes_loop_runs_on_any_number_of_ranks(
    monkeypatch: pytest.MonkeyPatch, path: Path, tmp_path: Path, ranks: int
) -> None:
    (block,) = (text for _, text in blocks(README))
    # A launcher's environment; the broadcast of the attempt is tested with real groups.
    monkeypatch.setenv("BATCHWEAVE_SOCKET", str(path))
    monkeypatch.setenv("WORLD_SIZE", str(ranks))
    monkeypatch.setattr(batchweave.torch, "attempt", lambda: "3f" * 16)
    with FakeDaemon(path, end=1_500, slices=4 // ranks) as daemon:
        for rank in range(ranks):
            monkeypatch.setenv("RANK", str(rank))
            stage = Stage(tmp_path, daemon.slices)
            names = {**stage.names(), "saved": {}, "train_step": stage.train}
            exec(compile(block, str(ROOT / "README.md"), "exec"), names)
            assert stage.steps == 1_500
            assert sorted(stage.saved) == ["data", "model"]
        assert [[step for step, _ in peer.checkpoints] for peer in daemon.peers] == [
            [1_000]
        ] * ranks


def test_the_errors_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`(?:batchweave\.errors\.)?(\w+Error|Stopped)`", PAGE))
    of_python = {name for name in named if hasattr(builtins, name)}
    assert len(named) > 10
    assert [name for name in named - of_python if not hasattr(errors, name)] == []
