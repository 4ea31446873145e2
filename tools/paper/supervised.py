"""Training runs under a supervisor that starts again all that dies, and faults at given times."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from paper import streams
from paper.experiment import Context
from paper.programs import FailedError, Program
from paper.streams import Site

_POLL_SECONDS = 0.02
_DIED_AT_ONCE_SECONDS, _DEATHS_MAX = 2.0, 20


class Role(NamedTuple):
    """A process that is started again when it has ended."""

    name: str
    start: Callable[[], Program]


class Fault(NamedTuple):
    """An event at a time of the run, with the end of its effect, if it has one."""

    at: float
    name: str
    act: Callable[[], object]
    until: float = 0.0
    undo: Callable[[], object] = lambda: None


class Run:
    """A trainer and its helpers; its records hold all steps of all its starts."""

    def __init__(self, ctx: Context, folder: Path, site: Site | None = None) -> None:
        self.ctx, self.folder, self.site = ctx, folder, site
        self.state = folder / "checkpoint.json"
        self.running: dict[str, Program] = {}
        self.roles: dict[str, Role] = {}
        self.held: set[str] = set()
        """Roles that are not started for now."""
        self.restarts: dict[str, int] = {}
        self.began = time.monotonic()
        self._records: list[Path] = []

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.running.values():
            program.signal(signal.SIGCONT)
            program.kill()

    def add(self, role: Role) -> None:
        """Starts a process."""
        self.roles[role.name] = role
        self.running[role.name] = role.start()

    def trainer(self, words: Sequence[str], **more: Any) -> None:
        """Adds the trainer; it continues from its checkpoint."""

        def start() -> Program:
            all_words = [*words, "--state", str(self.state)]
            made = streams.trainer(self.ctx, self.folder, all_words, **more)
            self._records.append(made.record)
            return made.program

        self.add(Role("trainer", start))

    def steps(self) -> list[dict[str, Any]]:
        """Returns the steps of all starts of the trainer, in order."""
        return [step for record in self._records for step in streams.read_steps(record)]

    def kill(self, name: str) -> float:
        """Kills a process and its children, and returns the moment."""
        now = time.monotonic()
        self.running[name].kill()
        return now

    def kill_child(self, name: str, chance: random.Random) -> None:
        """Kills a child of a process, as a worker of its DataLoader."""
        found = children(self.running[name].process.pid)
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(found), signal.SIGKILL)

    def freeze(self, name: str, stopped: bool, child: bool = False) -> None:
        """Stops a process group or a child, or lets it go on."""
        number = signal.SIGSTOP if stopped else signal.SIGCONT
        if not child:
            self.running[name].signal(number)
            return
        for pid in children(self.running[name].process.pid)[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def poll(self) -> None:
        """Starts again what has ended."""
        for name, program in self.running.items():
            if name in self.held or not program.ended():
                continue
            program.kill()
            self.restarts[name] = self.restarts.get(name, 0) + 1
            if self.restarts[name] > _DEATHS_MAX + 2 * int(time.monotonic() - self.began):
                raise program.failed("ends again and again")
            self.running[name] = self.roles[name].start()

    def go(self, seconds: float, faults: Sequence[Fault] = ()) -> list[tuple[float, str]]:
        """Runs for this time with these faults; returns their moments since the begin."""
        self.began, marks = time.monotonic(), []
        due = sorted(
            [(fault.at, fault.name, fault.act) for fault in faults]
            + [(fault.until, "", fault.undo) for fault in faults if fault.until],
            key=lambda each: each[0],
        )
        while (now := time.monotonic() - self.began) < seconds:
            while due and due[0][0] <= now:
                _, name, act = due.pop(0)
                if name:
                    marks.append((now, name))
                act()
            self.poll()
            time.sleep(_POLL_SECONDS)
        return marks

    def until_step(self, step: int, seconds: float) -> None:
        """Runs until the trainer has made a step."""
        deadline = time.monotonic() + seconds
        while not any(each["step"] >= step for each in self.steps()[-1:]):
            self.poll()
            if time.monotonic() > deadline:
                said = self.site.messages() if self.site else ""
                raise FailedError(f"no step {step} within {seconds:g} s: {said}")
            time.sleep(_POLL_SECONDS)


def children(pid: int) -> list[int]:
    """Returns the processes that a process has started, without helpers that only wait."""
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    found = []
    for each in listed:
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{each}/cmdline").read_bytes()
            if b"resource_tracker" not in command:
                found.append(int(each))
    return found


def ours(
    ctx: Context,
    site: Site,
    given: Path,
    workload: str,
    *,
    producers: int,
    workers: int,
    wait_ms: float,
    lead: int,
    trainer_words: Sequence[str],
    consumer: Mapping[str, Any],
) -> Run:
    """Returns a run of BatchWeave with roles p0 ..., consumer and trainer."""
    run = Run(ctx, site.folder, site)

    def producer(index: int) -> Callable[[], Program]:
        return lambda: site.producer(
            index, producers, given, workload, workers=workers, wait_ms=wait_ms, lead=lead
        )

    for index in range(producers):
        run.add(Role(f"p{index}", producer(index)))
    run.add(Role("consumer", lambda: site.consumer(**consumer)[0]))
    place = ["batchweave", "--place", str(site.folder / "s")]
    run.trainer([*place, *trainer_words])
    return run


def gaps(steps: Sequence[Mapping[str, Any]], began: float) -> list[tuple[float, float]]:
    """Returns of each step its end since the begin of the run, and the time since the last end."""
    ends = [float(each["at"]) - began for each in steps]
    pairs = zip(ends[1:], ends, strict=False)
    return [(end, end - before) for end, before in pairs if end > 0]


def seconds_lost(found: Sequence[tuple[float, float]], usual: float) -> float:
    """Returns the time beyond a usual step of all steps that took more than twice that."""
    return sum(gap - usual for _, gap in found if gap > 2 * usual)
