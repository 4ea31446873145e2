"""Saves the data's position with 2 ranks, and loads it with 1, 3 and 4: for test_torch_runs.

    torch_worlds.py SOCKET FOLDER

Real gloo groups and a real torch.distributed.checkpoint; the ranks are forked, so that torch is
imported once. Prints what each rank of each world found, one line of JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import batchweave

distributed: Any = importlib.import_module("torch.distributed")
dcp: Any = importlib.import_module("torch.distributed.checkpoint")


def ranks(world: int, group: Path, body: Callable[[int], Any]) -> list[Any]:
    """Runs `body` in this number of processes of one group; returns their results."""
    started = []
    for rank in range(world):
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(ours)
                where = f"file://{group}"
                distributed.init_process_group("gloo", where, rank=rank, world_size=world)
                os.write(theirs, json.dumps(body(rank)).encode())
                distributed.barrier()
                distributed.destroy_process_group()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(theirs)
        started.append((child, ours))
    found = []
    for child, pipe in started:
        with os.fdopen(pipe) as said:
            text = said.read()
        _, status = os.waitpid(child, 0)
        if status:
            raise SystemExit(f"a rank of {world} failed with {status}")
        found.append(json.loads(text))
    return found


def saving(socket: str, folder: Path, steps: int) -> Callable[[int], str]:
    """A rank that reads this number of steps and saves."""

    def body(rank: int) -> str:
        attempt = batchweave.torch.attempt()
        with batchweave.torch.Checkpointing() as data:
            reader = data.connect(socket, job="j", attempt=attempt, dp_rank=rank, dp_size=2)
            for _ in range(steps):
                next(reader)
            state = data.state_dict()
            dcp.save({"data": data}, checkpoint_id=folder)
            data.after_save(state)
        return state["batchweave"]

    return body


def loading(socket: str, folder: Path, world: int) -> Callable[[int], Any]:
    """A rank that loads into a fresh object and continues reading."""

    def body(rank: int) -> Any:
        data = batchweave.torch.Checkpointing()
        dcp.load({"data": data}, checkpoint_id=folder)
        loaded = data.state_dict()["batchweave"]
        attempt = batchweave.torch.attempt()
        with data:
            reader = data.connect(socket, job="j", attempt=attempt, dp_rank=rank, dp_size=world)
            return loaded, next(reader).step

    return body


def main() -> None:
    """Positions after no step and after three."""
    socket, root = sys.argv[1], Path(sys.argv[2])
    found: dict[str, Any] = {}
    for steps in (0, 3):
        folder = root / f"after{steps}"
        groups = iter(root / f"group{steps}-{n}" for n in range(9))
        saved = ranks(2, next(groups), saving(socket, folder, steps))
        loads = {n: ranks(n, next(groups), loading(socket, folder, n)) for n in (1, 3, 4)}
        found[str(steps)] = {"saved": saved, "loaded": loads}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
