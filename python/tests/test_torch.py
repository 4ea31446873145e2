"""The helpers for torch and JAX, with fakes of their interfaces, and the real ones if there."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import logging
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import fake_torch
import numpy as np
import pytest
from conftest import eventually
from fake_daemon import FakeDaemon

import batchweave
from batchweave import _launch, errors
from batchweave.torch import Checkpointing

FIRST, SECOND = "1f" * 16, "2f" * 16
REAL_TORCH = importlib.util.find_spec("torch") is not None
REAL_JAX = importlib.util.find_spec("jax") is not None


def pretend(monkeypatch: pytest.MonkeyPatch, modules: dict[str, ModuleType]) -> None:
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


def step_of(state: dict[str, str]) -> int:
    return int(json.loads(state["batchweave"])["next_step"])


@pytest.fixture(params=["fake", "real"] if REAL_TORCH else ["fake"])
def dcp(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Any]:
    """`torch.distributed.checkpoint`, in a group of one process."""
    if request.param == "fake":
        pretend(monkeypatch, fake_torch.modules())
        yield sys.modules["torch.distributed.checkpoint"]
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = importlib.import_module("torch.distributed.checkpoint")
        group: Any = importlib.import_module("torch.distributed")
        group.init_process_group("gloo", f"file://{tmp_path}/group", rank=0, world_size=1)
        yield found
        group.destroy_process_group()


class Model:
    """Counts the steps it was trained on."""

    def __init__(self) -> None:
        self.steps = 0

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]


@pytest.mark.filterwarnings("ignore")
def test_a_distributed_checkpoint_holds_the_position(
    dcp: Any, daemon: FakeDaemon, path: Path, tmp_path: Path
) -> None:
    model, data = Model(), Checkpointing()
    folder = tmp_path / "checkpoint"
    with data:
        for batch in data.connect(path, job="j", attempt=FIRST):
            model.steps += 1
            if batch.step == 6:
                state = data.state_dict()
                dcp.save({"model": model, "data": data}, checkpoint_id=folder)
                data.after_save(state)
                break
    assert daemon.peers[0].checkpoints == [(7, state["batchweave"])]

    model, data = Model(), Checkpointing()
    assert list(data.state_dict()) == ["batchweave"]
    dcp.load({"model": model, "data": data}, checkpoint_id=folder)
    assert model.steps == 7
    with data:
        reader = data.connect(path, job="j", attempt=SECOND, dp_rank=1, dp_size=2)
        assert next(reader).step == 7
        future = dcp.async_save({"model": model, "data": data}, checkpoint_id=tmp_path / "later")
        later = data.state_dict()
        data.after_async_save(future, later)
        assert next(reader).step == 8
        data.wait(60)
        eventually(lambda: daemon.peers[1].checkpoints == [(8, later["batchweave"])])
    assert daemon.peers[1].hello["parent"] == {"attempt": 0, "id": FIRST, "step": 7}


@pytest.mark.filterwarnings("ignore")
def test_a_plain_save_is_durable_or_has_not_happened(
    dcp: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dcp
    torch: Any = sys.modules["torch"]
    place = tmp_path / "last.pt"
    batchweave.torch.save({"data": {"batchweave": "{}"}}, place)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    batchweave.torch.save({"data": {"batchweave": "{1}"}}, place)
    assert len(synced) == 2, "the file, then its folder"

    def fails(_: Any, out: Any) -> None:
        out.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(torch, "save", fails)
    with pytest.raises(OSError, match="no space left"):
        batchweave.torch.save({}, place)
    assert torch.load(place)["data"] == {"batchweave": "{1}"}
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith("last")] == ["last.pt"]


def test_what_is_no_position_is_refused() -> None:
    data = Checkpointing()
    with pytest.raises(errors.BadStateError, match="names no stream"):
        data.load_state_dict(data.state_dict())
    with pytest.raises(errors.BadStateError, match="no string"):
        data.load_state_dict({"batchweave": 7})
    with pytest.raises(errors.BadStateError, match=r"call connect\(\)"):
        data.after_save(data.state_dict())


def test_positions_follow_training_not_prefetch(daemon: FakeDaemon, path: Path) -> None:
    with batchweave.connect(path, job="j") as reader:
        data = Checkpointing(reader)
        assert step_of(data.state_dict()) == 0
        ahead = [next(reader), next(reader)]
        assert step_of(data.state_dict()) == 2
        data.trained(ahead[0])
        assert step_of(data.state_dict()) == 1
        with pytest.raises(errors.BadStateError, match="has a reader already"):
            data.connect(path)
    assert daemon.peers


def test_a_save_in_the_background_counts_when_it_is_durable(
    daemon: FakeDaemon, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "batchweave")
    saves: list[Future[None]] = [Future() for _ in range(4)]
    with Checkpointing() as data:
        reader = data.connect(path, job="j")
        for save in saves:
            data.trained(next(reader))
            data.after_async_save(save, data.state_dict())
        marks = daemon.peers[0].checkpoints
        assert not marks
        saves[2].set_result(None)
        eventually(lambda: [step for step, _ in marks] == [3])
        saves[0].set_exception(OSError("the disk is full"))
        assert saves[1].cancel()
        threading.Timer(0.05, saves[3].set_result, (None,)).start()
    # The end of the block waited for the last one.
    assert [step for step, _ in marks] == [3, 4]
    assert "not a restart point: the disk is full" in caplog.text
    assert "it was cancelled" in caplog.text


def test_a_refusal_in_the_background_is_raised_by_the_next_call(
    daemon: FakeDaemon, path: Path
) -> None:
    save: Future[None] = Future()
    with Checkpointing() as data:
        reader = data.connect(path, job="j", attempt=FIRST)
        stale = data.state_dict()
        stale["batchweave"] = stale["batchweave"].replace(FIRST, SECOND)
        data.after_async_save(save, stale)
        threading.Thread(target=save.set_result, args=(None,)).start()
        with pytest.raises(errors.MarkOtherAttemptError):
            data.wait(10)
        data.after_save(next(reader).state_dict())
    assert [step for step, _ in daemon.peers[0].checkpoints] == [1]


def test_an_error_in_training_waits_for_no_save(daemon: FakeDaemon, path: Path) -> None:
    save: Future[None] = Future()

    def train() -> None:
        with Checkpointing() as data:
            reader = data.connect(path, job="j")
            next(reader)
            data.after_async_save(save, data.state_dict())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    save.set_result(None)
    assert not daemon.peers[0].checkpoints, "its reader is closed"


def test_rank_0_draws_the_attempt_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[set[str]] = []
    for _ in range(2):
        ranks = fake_torch.Ranks(4)
        ids: list[str] = []
        pretend(monkeypatch, fake_torch.modules(ranks))

        def rank(number: int, ranks: fake_torch.Ranks = ranks, ids: list[str] = ids) -> None:
            ranks.enter(number)
            ids.append(batchweave.torch.attempt())

        threads = [threading.Thread(target=rank, args=(number,)) for number in (3, 1, 0, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert len(ids) == 4
        found.append(set(ids))
    first, second = found
    assert len(first) == len(second) == 1
    assert first != second
    assert len(int(first.pop(), 16).to_bytes(16, "big")) == 16


def test_a_group_of_which_all_ranks_connect_brings_the_attempt_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranks = fake_torch.Ranks(4)
    pretend(monkeypatch, fake_torch.modules(ranks))
    ids: list[str] = []

    def rank(number: int) -> None:
        ranks.enter(number)
        ids.append(_launch.attempt_of(None, 4, number, {}))

    threads = [threading.Thread(target=rank, args=(number,)) for number in (3, 1, 0, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(ids) == 4
    assert len(set(ids)) == 1
    # Two of four ranks read: the others would never come to the broadcast.
    with pytest.raises(errors.NoAttemptError):
        _launch.attempt_of(None, 2, 0, {})
    pretend(monkeypatch, fake_torch.modules())
    with pytest.raises(errors.NoAttemptError):
        _launch.attempt_of(None, 4, 0, {})


def test_without_a_group_or_a_framework_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, fake_torch.modules())
    assert batchweave.torch.attempt() != batchweave.torch.attempt(), "one rank needs no group"
    assert isinstance(batchweave.torch.attempt(), _launch.DrawnId)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(errors.NoAttemptError, match=r"init_process_group\(\) on all ranks"):
        batchweave.torch.attempt()
    # None in sys.modules is an ImportError.
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    with pytest.raises(errors.NoAttemptError, match="needs PyTorch"):
        batchweave.torch.attempt()
    monkeypatch.setitem(sys.modules, "jax.experimental.multihost_utils", None)
    with pytest.raises(errors.NoAttemptError, match="needs JAX"):
        batchweave.jax.attempt()


def test_jax_brings_16_bytes_from_process_0(monkeypatch: pytest.MonkeyPatch) -> None:
    multihost: Any = ModuleType("jax.experimental.multihost_utils")
    sent: list[Any] = []

    def broadcast(value: Any) -> Any:
        sent.append(value)
        return sent[0]

    multihost.broadcast_one_to_all = broadcast
    monkeypatch.setitem(sys.modules, "jax.experimental.multihost_utils", multihost)
    processes = [2]
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(process_count=lambda: processes[0]))
    first = batchweave.jax.attempt()
    assert not isinstance(first, _launch.DrawnId)
    processes[0] = 1
    alone = batchweave.jax.attempt()
    assert alone == first
    assert isinstance(alone, _launch.DrawnId)
    assert sent[0].dtype == np.int32
    assert (sent[0] != sent[1]).any()


def test_importing_the_package_imports_no_framework() -> None:
    program = "import batchweave, sys; batchweave.torch.Checkpointing; print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"torch", "jax"} & set(found)


def test_a_dataset_has_every_argument_of_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    if not REAL_TORCH:
        data: Any = ModuleType("torch.utils.data")
        data.IterableDataset = object
        pretend(monkeypatch, {**fake_torch.modules(), "torch.utils.data": data})
    monkeypatch.setitem(sys.modules, "batchweave._dataset", sys)
    monkeypatch.delitem(sys.modules, "batchweave._dataset")
    found = importlib.import_module("batchweave._dataset")
    own = dict(inspect.signature(found.Dataset.__init__).parameters)
    for name in ("self", "labels", "dtype", "micro_batches", "cp"):
        del own[name]
    of_connect = inspect.signature(batchweave.connect).parameters
    assert [*own.values()] == [*of_connect.values()], "add it to Dataset in _dataset.py, too"


if REAL_TORCH:

    def test_real_processes_save_and_go_on_in_another_number(path: Path, tmp_path: Path) -> None:
        program = str(Path(__file__).with_name("torch_ranks.py"))

        def run(world: int, number: int) -> list[dict[str, Any]]:
            command = [sys.executable, program, str(path), str(tmp_path / f"group{number}")]
            command += [str(tmp_path / "checkpoint"), str(world)]
            ranks = [
                subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, text=True)
                for rank in range(world)
            ]
            said = [rank.communicate(timeout=120)[0] for rank in ranks]
            assert [rank.returncode for rank in ranks] == [0] * world
            return [json.loads(text.splitlines()[-1]) for text in said]

        attempts = []
        with FakeDaemon(path):
            for number, world in enumerate((2, 3, 1)):
                said = run(world, number)
                assert [each["first"] for each in said] == [number * 5] * world
                (attempt,) = {each["attempt"] for each in said}
                attempts.append(attempt)
        assert len(set(attempts)) == 3


if REAL_JAX:

    def test_real_jax_gives_an_attempt() -> None:
        program = "import batchweave; print(batchweave.jax.attempt())"
        found = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout
        assert len(found.strip()) == 32
        assert int(found, 16)
