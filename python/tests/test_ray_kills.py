"""Workers of a real Ray that are killed while a task writes, and tasks that make other rows."""

from __future__ import annotations

import importlib
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import eventually
from engine_world import NOISY, in_folder, job_rows

import batchweave

ray: Any = importlib.import_module("ray")
pytestmark = [*NOISY, pytest.mark.usefixtures("cluster")]


class Interrupted(batchweave.ray.Inbox):
    """Calls `then` in a task that has stored its third file."""

    def __init__(self, inbox: Path, name: str, then: Callable[[int], None]) -> None:
        super().__init__(inbox, name, file_bytes=60)
        self._then, self._task = then, -1

    def write(self, blocks: Any, ctx: Any) -> Any:
        self._task = ctx.task_idx
        return super().write(blocks, ctx)

    def _folder(self) -> Any:
        folder = super()._folder()
        create, names = folder.create, []

        def creating(name: str, data: bytes) -> None:
            create(name, data)
            names.append(name)
            if len(names) == 3 and self._task >= 0:
                self._then(self._task)

        folder.create = creating  # type: ignore[method-assign]
        return folder


def orphans(files: dict[str, bytes]) -> int:
    """Returns the number of files that no list names."""
    return len(files) - 1 - files["commit.json"].count(b"part-")


def test_a_task_that_dies_and_makes_other_rows_counts_once(tmp_path: Path) -> None:
    def made(batch: dict[str, Any]) -> dict[str, Any]:
        died = (tmp_path / f"died-{int(batch['id'][0]) // 20}").exists()
        word = "second" if died else "first"
        return {"text": np.array([f"{word} {number}" for number in batch["id"]])}

    def dies(task: int) -> None:
        mark = tmp_path / f"died-{task}"
        if task % 2 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    data = ray.data.range(80, override_num_blocks=4).map_batches(made, batch_size=None)
    data.write_datasink(Interrupted(tmp_path / "inbox", "job", dies))
    files = in_folder(tmp_path / "inbox" / "job")
    listed = [row["text"] for row in job_rows(files)]
    assert listed == [f"{'second' if n // 20 % 2 else 'first'} {n}" for n in range(80)]
    assert orphans(files) == 2 * 3


def test_a_worker_that_is_killed_in_the_middle_loses_nothing(tmp_path: Path) -> None:
    killed, attempts = tmp_path / "killed", tmp_path / "attempts"
    attempts.mkdir()

    def waits(task: int) -> None:
        if task == 0:
            (attempts / str(os.getpid())).touch()
            # The first one waits to be killed from outside.
            eventually(killed.exists, 120)

    failed: list[Exception] = []

    def write() -> None:
        data = ray.data.range(40, override_num_blocks=2)
        data = data.map(lambda row: {"text": f"row {row['id']}"})
        try:
            data.write_datasink(Interrupted(tmp_path / "inbox", "job", waits))
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    eventually(lambda: any(attempts.iterdir()), 120)
    (first,) = attempts.iterdir()
    os.kill(int(first.name), signal.SIGKILL)
    killed.touch()
    thread.join()
    assert not failed
    assert len(list(attempts.iterdir())) == 2
    files = in_folder(tmp_path / "inbox" / "job")
    assert [row["text"] for row in job_rows(files)] == [f"row {n}" for n in range(40)]
    assert orphans(files) == 3
