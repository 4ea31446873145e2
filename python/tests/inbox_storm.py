"""Storms: writers, producers, a consumer daemon and ranks as processes, killed by a seed.

`run` starts them over one store, kills each kind, starts again, and returns the ranks' notes;
`check` says whether every row is in them once, and each writer's rows in order.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from real_daemons import BINARIES
from storm_processes import (
    FAILED,
    FENCED,
    FORKED,
    REPEATING,
    Ranking,
    Row,
    Writing,
    forked,
    log_of,
    noted,
    row,
)

WRITERS, PRODUCERS, RANKS = 8, 2, 4
COUNT = 37
"""Rows of each writer, so that the last batch of each producer is not full."""
STEPS = WRITERS * COUNT // RANKS
"""The least number of steps."""
AHEAD = 16
_FIRST_KILL = 20
"""Below this step one producer is killed: both cannot have finished there."""
_SLACK = 4
"""Steps that ranks may go on when a kill is due."""
# Against a hang; nothing is expected of the speed.
_HANG_SECONDS = 540
_STARTS_MAX = 200

PRODUCER = """
store.url = "{root}/stream"
stream = {{ slices = {ranks}, rows_per_slice = 1, seq_len = 1, producers = ["p0", "p1"] }}
producer = {{ name = "{name}", index = {index}, of = {of} }}
source = {{ paths = ["{root}/inbox"], inbox = true, follow_every = "20ms" }}
inbox = {{ writers = [{writers}], delete = "{delete}" }}
packing.mode = "opaque"
packing.last_batch = "pad"
packing.arrays = [
    {{ name = "writer", dtype = "I64" }},
    {{ name = "number", dtype = "I64" }},
    {{ name = "payload", dtype = "U8" }},
]
tokenizer.threads = 1
commit.linger = "5ms"
ahead.max_steps = {ahead}
"""
CONSUMER = """
store.url = "{root}/stream"
job = {{ name = "t", open = true, progress_steps = 2 }}
socket.path = "{folder}/s"
arena = {{ bytes = "16MiB", segment_bytes = "4MiB" }}
prefetch.bytes = "8MiB"
follow.starved = "20ms"
admin.listen = "off"
"""


class Wrong(AssertionError):  # noqa: N818 - a verdict on a storm
    """Rows are lost, doubled or out of order."""


Ranks = list[list[tuple[int, list[Row]]]]
"""The notes of each rank: steps, and their rows."""


def check(ranks: Ranks, acknowledged: dict[int, dict[int, str]]) -> None:
    """Raises where the ranks' notes are not each row once, and each writer's rows in order.

    `acknowledged`: of each writer's rows the start whose row was acknowledged.
    """
    steps = [[step for step, _ in rank] for rank in ranks]
    if any(each != list(range(len(steps[0]))) for each in steps):
        raise Wrong(f"steps are lost or doubled: {steps}")
    delivered = [each for step in zip(*ranks, strict=True) for _, rows in step for each in rows]
    for writer in range(WRITERS):
        found = [each for each in delivered if each.writer == writer]
        numbers = [each.number for each in found]
        if numbers != list(range(COUNT)):
            raise Wrong(f"writer {writer}: rows {numbers} instead of 0 to {COUNT - 1}")
        starts = {each.number: each.start for each in found}
        if writer in REPEATING:
            starts = dict.fromkeys(starts, "")
        starts |= acknowledged[writer]
        if found != [row(writer, number, starts[number]) for number in range(COUNT)]:
            raise Wrong(f"writer {writer}: rows that were not acknowledged: {found}")
    if len(delivered) != WRITERS * COUNT:
        raise Wrong(f"rows of no writer: {[each for each in delivered if each.writer >= WRITERS]}")


class Daemon(NamedTuple):
    """A started daemon, with the interface of a forked process."""

    process: subprocess.Popen[bytes]

    @property
    def exitcode(self) -> int | None:
        return self.process.poll()

    def kill(self) -> None:
        self.process.kill()

    def join(self) -> None:
        self.process.wait()


Running = Daemon | BaseProcess


class Storm:
    """One storm: its processes by name, and the progress at which each is killed."""

    def __init__(self, folder: Path, root: str, environment: dict[str, str], seed: int) -> None:
        self.folder, self.root, self.environment = folder, root, environment
        self.chance = random.Random(seed)
        self.running: dict[str, Running] = {}
        self.older: list[Running] = []
        """Instances of writers that were followed by another one while they ran."""
        self.done: set[str] = set()
        self.killed: list[str] = []
        self.starts = 0
        self.ranks = [f"r{rank}" for rank in range(RANKS)]
        self.writers = [f"w{writer}" for writer in range(WRITERS)]
        self.daemons = ["p0", "p1", "consumer"]
        self.kills = {name: self._drawn(name) for name in self.names}
        self.delete = self.chance.choice(["never", "committed"])
        self.bounded: int | None = -1
        self.bound()
        self._configure()

    @property
    def names(self) -> list[str]:
        return [*self.daemons, *self.ranks, *self.writers]

    def _drawn(self, name: str) -> list[int]:
        """Returns the progress of each kill: rows of a writer, else steps of the slowest rank."""
        if name.startswith("w"):
            return sorted(self.chance.sample(range(COUNT), self.chance.randrange(3)))
        more = self.chance.sample(range(_FIRST_KILL, STEPS - _SLACK), self.chance.randrange(2))
        return [self.chance.randrange(_FIRST_KILL), *more]

    def _configure(self) -> None:
        for number, name in enumerate(["p0", "p1"]):
            text = PRODUCER.format(
                root=self.root,
                name=name,
                index=number,
                of=PRODUCERS,
                writers=", ".join(f'"{writer}"' for writer in self.writers),
                delete=self.delete,
                ranks=RANKS,
                ahead=AHEAD,
            )
            (self.folder / f"{name}.toml").write_text(text)
        text = CONSUMER.format(root=self.root, folder=self.folder)
        (self.folder / "consumer.toml").write_text(text)

    def start(self, name: str) -> None:
        self.starts += 1
        assert self.starts < _STARTS_MAX, self.words(name)
        if name in self.daemons:
            program = "consumer" if name == "consumer" else "producer"
            with (self.folder / f"{name}.log").open("ab") as log:
                self.running[name] = Daemon(
                    subprocess.Popen(
                        [
                            str(BINARIES / f"batchweave-{program}"),
                            "--config",
                            str(self.folder / f"{name}.toml"),
                        ],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        env={"PATH": "", "NO_COLOR": "1", **self.environment},
                    )
                )
            return
        process = FORKED.Process(target=forked, args=(self.environment, self._task(name)))
        process.start()
        self.running[name] = process

    def _task(self, name: str) -> Writing | Ranking:
        number = int(name[1:])
        if name.startswith("r"):
            out = self.folder / f"{name}.out"
            return Ranking(self.folder / "s", number, RANKS, out, self.folder / "bound")
        due = self.kills[name]
        hold_at = min(COUNT, due[0] + self.chance.randrange(1, 8)) if due else COUNT
        # A writer that is due before its last row does not end before.
        hold_at = min(hold_at, COUNT - 1) if due else COUNT
        return Writing(
            f"{self.root}/inbox".removeprefix("file://"),
            number,
            COUNT,
            self.chance.randrange(1 << 30),
            hold_at,
            self.folder / f"{name}.log",
        )

    def progress(self, name: str) -> int:
        if name.startswith("w"):
            return log_of(self.folder / f"{name}.log").durable
        ranks = [name] if name in self.ranks else self.ranks
        return min(lines_of(self.folder / f"{rank}.out") for rank in ranks)

    def supervise(self) -> None:
        """Starts again where a process was killed or gave up; notes the ones that have ended."""
        for name, process in list(self.running.items()):
            code = process.exitcode
            if code is None:
                continue
            process.join()
            del self.running[name]
            if code == 0:
                self.done.add(name)
            elif code in (-signal.SIGKILL, FENCED, FAILED, 69):
                self.start(name)
            else:
                raise AssertionError(f"{name} ended with {code}: {self.words(name)}")

    def bound(self) -> None:
        """Lets the ranks go on to the next kill, and a few steps further."""
        due = [each for name, each in self.kills.items() if not name.startswith("w")]
        step = min((each[0] for each in due if each), default=None)
        if step != self.bounded:
            self.bounded = step
            fresh = self.folder / "bound.new"
            bound = 1 << 40 if step is None else step + self.chance.randrange(1, _SLACK)
            fresh.write_text(str(bound))
            fresh.replace(self.folder / "bound")

    def kill(self) -> None:
        for name, due in self.kills.items():
            if not due or self.progress(name) < due[0]:
                continue
            if name not in self.running:
                # A producer may have finished.
                if name in self.done:
                    due.pop(0)
                continue
            due.pop(0)
            time.sleep(self.chance.random() * 0.01)
            self.killed.append(name)
            process = self.running[name]
            if name.startswith("w") and self.chance.random() < 0.3:
                # The supervisor took it for dead: two instances at once, for a while.
                self.older.append(process)
                self.start(name)
                time.sleep(self.chance.random() * 0.05)
            process.kill()

    def kinds(self) -> dict[str, int]:
        """Returns the number of kills of writers, producers, the consumer and ranks."""
        first = [name[0] for name in self.killed]
        return {kind: first.count(kind) for kind in "wpcr"}

    def words(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return "\n".join(path.read_text().splitlines()[-10:]) if path.exists() else ""

    def end(self) -> None:
        for process in [*self.running.values(), *self.older]:
            process.kill()
            process.join()


def lines_of(path: Path) -> int:
    """Returns the number of whole lines, which is that of the noted steps."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def run(folder: Path, root: str, environment: dict[str, str], seed: int) -> Storm:
    """Runs a storm to its end: every writer and rank is done, and every kill is."""
    storm = Storm(folder, root, environment, seed)
    began = time.monotonic()
    try:
        for name in storm.names:
            storm.start(name)
        while not storm.done.issuperset([*storm.writers, *storm.ranks]):
            storm.supervise()
            storm.kill()
            storm.bound()
            late = time.monotonic() - began > _HANG_SECONDS
            assert not late, {name: storm.words(name) for name in storm.running}
            time.sleep(0.01)
        return storm
    finally:
        storm.end()


def check_storm(storm: Storm) -> None:
    """Raises where rows of an ended storm are lost, doubled, out of order or others."""
    ranks = [noted(storm.folder / f"{rank}.out") for rank in storm.ranks]
    logs = {n: log_of(storm.folder / f"{name}.log") for n, name in enumerate(storm.writers)}
    check(ranks, {writer: log.acknowledged for writer, log in logs.items()})
