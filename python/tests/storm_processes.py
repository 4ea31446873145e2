"""Processes of a storm: a writer that makes the same rows again, and a rank that notes its rows.

They are forked from a process that has imported pyarrow and numpy, so that a start takes
milliseconds, and killed at any instant. This module imports little: each of them imports it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["numpy", "pyarrow.parquet", "obstore.store", "batchweave.inbox"])

FENCED = 75
FAILED = 1
MARK_EVERY = 8


REPEATING = range(6)
"""Writers that make the same rows again; each start of another one makes other rows."""


class Row(NamedTuple):
    """A row, as a rank notes it."""

    writer: int
    number: int
    payload: str

    @property
    def start(self) -> str:
        """The start of its writer that has made it; empty for a repeating writer."""
        return self.payload.partition(";")[0].rpartition("/")[2]


def row(writer: int, number: int, start: str = "") -> Row:
    """Returns a writer's row of a number: the same one in every process of that start."""
    return Row(writer, number, f"{writer}/{number}/{start};" * (1 + number % 5))


class Writing(NamedTuple):
    """The arguments of `write`."""

    location: str
    writer: int
    rows: int
    seed: int
    hold_at: int
    """The row before which the process waits for its death; `rows`: none."""
    log: Path
    """Gets lines of this start's id, the number of durable rows, and the row just put or -1."""

    @property
    def start(self) -> str:
        """The id of this start in its rows."""
        return "" if self.writer in REPEATING else f"{self.seed:x}"


def write(task: Writing) -> None:
    """Writes rows up to `rows` - 1, and ends the writer."""
    from batchweave import inbox

    chance = random.Random(task.seed)
    writer = inbox.open(task.location, f"w{task.writer}", linger=0.01)
    with task.log.open("a", buffering=1) as log:

        def note(number: int = -1) -> None:
            log.write(f"{task.start or '-'} {writer.durable_rows} {number}\n")

        def made(state: Any) -> Iterator[tuple[dict[str, Any], Any]]:
            for number in range((state or {"next": 0})["next"], task.rows):
                while number == task.hold_at:
                    time.sleep(0.01)
                    note()
                values = row(task.writer, number, task.start)._asdict()
                values["payload"] = values["payload"].encode()
                yield values, {"next": number + 1} if chance.random() < 0.5 else None
                time.sleep(chance.random() * 0.004)
                if chance.random() < 0.2:
                    writer.flush()
                note(number)

        try:
            if task.writer in REPEATING:
                writer.resume(made)
            else:
                for values, _ in made({"next": writer.next_row}):
                    writer.put(values)
                writer.flush()
            note()
            writer.finish()
        except inbox.WriterFencedError:
            sys.exit(FENCED)
        except inbox.WriterEndedError:
            # An instance of this name at the same time has ended it.
            assert writer.durable_rows == task.rows


class Noted(NamedTuple):
    """The log of a writer."""

    durable: int
    acknowledged: dict[int, str]
    """The start that has put a row and has reported it as durable."""


def log_of(path: Path) -> Noted:
    """Reads the log of a writer."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    put: dict[str, set[int]] = {}
    durable: dict[str, int] = {}
    for line in lines:
        start, rows, number = line.split()
        put.setdefault(start, set()).add(int(number))
        durable[start] = max(int(rows), durable.get(start, 0))
    acknowledged = {
        number: start.strip("-")
        for start, numbers in put.items()
        for number in numbers
        if 0 <= number < durable[start]
    }
    return Noted(max(durable.values(), default=0), acknowledged)


class Ranking(NamedTuple):
    """The arguments of `train`."""

    socket: Path
    rank: int
    world: int
    out: Path
    """Gets a line of JSON per step: its rows and the state after it, which survive together."""
    bound: Path
    """Holds the step before which ranks wait, for kills that are due."""


def train(task: Ranking) -> None:
    """Notes the rows of each step once: goes on behind the last whole line."""
    import batchweave

    state = _cut(task.out)
    try:
        with (
            task.out.open("a", buffering=1) as out,
            batchweave.connect(
                task.socket,
                job="t",
                attempt="5e" * 16,
                dp_rank=task.rank,
                dp_size=task.world,
                global_rank=task.rank,
                state=state,
                connect_timeout=120,
            ) as reader,
        ):
            while True:
                while reader.next_step >= int(task.bound.read_text()):
                    time.sleep(0.005)
                batch = next(reader, None)
                if batch is None:
                    break
                state, step = batch.state_dict(), batch.step
                rows = [_noted(sample) for sample in batch.samples()]
                del batch
                out.write(json.dumps({"step": step, "rows": rows, "state": state}) + "\n")
                if (step + 1) % MARK_EVERY == 0:
                    reader.checkpoint(state)
    except batchweave.BatchWeaveError as error:
        print(f"rank {task.rank}: {error}", file=sys.stderr, flush=True)
        sys.exit(FAILED)


def _noted(sample: Any) -> Row:
    return Row(
        int(sample["writer"][0]), int(sample["number"][0]), sample["payload"].tobytes().decode()
    )


def _cut(path: Path) -> dict[str, str] | None:
    """Cuts a torn last line off; returns the state of the last whole one."""
    if not path.exists():
        return None
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    os.truncate(path, whole)
    lines = data[:whole].splitlines()
    found: dict[str, str] | None = json.loads(lines[-1])["state"] if lines else None
    return found


def noted(path: Path) -> list[tuple[int, list[Row]]]:
    """Returns the steps in a rank's file, with their rows."""
    if not path.exists():
        return []
    data = path.read_bytes()
    lines = map(json.loads, data[: data.rfind(b"\n") + 1].splitlines())
    return [(line["step"], [Row(*each) for each in line["rows"]]) for line in lines]


def forked(environment: dict[str, str], task: Writing | Ranking) -> None:
    """Runs a task in a process of its own."""
    os.environ.update(environment)
    if isinstance(task, Writing):
        write(task)
    else:
        train(task)
