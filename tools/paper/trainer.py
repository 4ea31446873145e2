"""A training process: it takes batches, copies each once, computes (sleeps), and notes each step.

    python -m paper.trainer batchweave --place SOCKET --steps 100 --record FILE
    python -m paper.trainer dataloader --place FOLDER --workload robot --workers 4 ...

Each line of the record has the step, the moment of its end (`at`), the seconds that the loop waited
for data (`wait`), those since the end of the step before (`step`), and the ids of its samples. With
`--state` it saves its position every `--save-every` steps, and continues from there.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paper import kafka_role, loaders

_CONNECT_SECONDS, _TIMEOUT = 120.0, 300.0
Item = tuple[int, Sequence[Mapping[str, Any]], Any]
"""A step, its arrays by name of each slice, and the position after it."""


def saved(path: Path | None) -> dict[str, Any] | None:
    """Returns the last checkpoint."""
    if path is None or not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def save(path: Path, checkpoint: Mapping[str, Any]) -> None:
    """Saves a checkpoint durably."""
    fresh = path.with_suffix(".new")
    with fresh.open("w") as out:
        json.dump(checkpoint, out)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(path)


def batchweave(args: argparse.Namespace, last: Mapping[str, Any] | None) -> Iterator[Item]:
    """Yields the batches of a consumer daemon."""
    client: Any = importlib.import_module("batchweave")
    more: dict[str, Any] = {"state": last["data"]} if last else {"start": 0}
    more |= {"attempt": args.attempt} if args.attempt else {"takeover": True}
    with contextlib.ExitStack() as stack:
        readers = [
            stack.enter_context(
                client.connect(
                    args.place,
                    job=args.job,
                    dp_rank=rank,
                    dp_size=args.world,
                    limit=args.steps - (last["step"] + 1 if last else 0),
                    timeout=_TIMEOUT,
                    connect_timeout=_CONNECT_SECONDS,
                    **more,
                )
            )
            for rank in range(args.first, args.first + args.here)
        ]
        for batches in zip(*readers, strict=True):
            state, step = batches[0].state_dict(), batches[0].step
            yield step, [piece for batch in batches for piece in batch.slices], state
            if (step + 1) % args.save_every == 0 or step + 1 == args.steps:
                # Reported after the save, which the caller makes before it asks for more.
                for reader in readers:
                    reader.checkpoint(state)
            del batches


WAYS = {"batchweave": batchweave, "kafka": kafka_role.batches, **loaders.WAYS}


def copied(pieces: Sequence[Mapping[str, Any]], memory: dict[int, Any]) -> int:
    """Copies all arrays into memory that is used again, as to a device; returns their bytes."""
    total = 0
    for piece in pieces:
        for name in piece:
            array = np.asarray(piece[name])
            if not name.endswith(".offsets") and array.nbytes:
                room = memory.setdefault(total, np.zeros(array.nbytes, np.uint8))
                if room.nbytes != array.nbytes:
                    room = memory[total] = np.zeros(array.nbytes, np.uint8)
                np.copyto(room.view(array.dtype).reshape(array.shape), array)
                total += array.nbytes
    return total


def train(args: argparse.Namespace) -> None:
    """Runs all steps."""
    last = saved(args.state)
    memory: dict[int, Any] = {}
    clock = time.monotonic
    source = WAYS[args.way](args, last)
    lose = int(os.environ.get("PAPER_LOSE_STEP", "-1"))
    with args.record.open("a", buffering=1) as record:
        ended = clock()
        while True:
            asked = clock()
            following = next(source, None)
            waited, wall = clock() - asked, time.time()
            if following is None:
                break
            step, pieces, state = following
            ids = [int(n) for piece in pieces for n in np.ravel(piece["id"])] if args.ids else []
            size = copied(pieces, memory)
            del following, pieces
            time.sleep(args.compute)
            now = clock()
            line = {"step": step, "at": now, "wait": waited, "seconds": now - ended, "ids": ids}
            line |= {"wall": wall, "bytes": size}
            ended = now
            if step != lose:
                record.write(json.dumps(line) + "\n")
            if args.state and ((step + 1) % args.save_every == 0 or step + 1 == args.steps):
                save(args.state, {"step": step, "data": state})


def main() -> None:
    """Runs one trainer."""
    parser = argparse.ArgumentParser(prog="python -m paper.trainer")
    add = parser.add_argument
    add("way", choices=WAYS)
    add("--place", type=Path, required=True, help="the daemon's socket, or the input's folder")
    add("--record", type=Path, required=True)
    add("--steps", type=int, required=True)
    add("--compute", type=float, default=0.0, help="seconds of each step")
    add("--job", default="train")
    add("--world", type=int, default=1, help="data ranks of the job")
    add("--first", type=int, default=0, help="the first rank of this process")
    add("--here", type=int, default=1, help="the ranks of this process, in lock-step")
    add("--attempt", help="the id of the attempt, the same for all processes")
    add("--state", type=Path, help="the checkpoint")
    add("--save-every", type=int, default=1 << 40)
    add("--workload", default="robot")
    add("--workers", type=int, default=1)
    add("--worker-cores", type=int, nargs="*", help="the cores of the workers, if not its own")
    add("--batch", type=int, default=8)
    add("--resume", choices=("skip", "restart", "iterate"), default="skip")
    add("--ranks", type=Path, help="cl100k_base.tiktoken")
    add("--topic", default="", help="Kafka's topic of the slices")
    add("--no-ids", dest="ids", action="store_false")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
