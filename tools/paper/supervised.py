"""Training runs under a supervisor that starts again all that dies, and faults at given times."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from paper.experiment import Context
from paper.programs import FailedError, Program
from paper.streams import Site, Trainer

_POLL_SECONDS, _DEATHS_MAX = 0.02, 20
STEPS_MAX = 1 << 20
"""More steps than a run makes until it is stopped."""


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
        self.restarts: dict[str, int] = {}
        self.began = self._made = time.monotonic()
        self._starts: dict[str, Callable[[], Program]] = {}
        self._trainers: list[Trainer] = []

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.running.values():
            program.kill()

    def add(self, name: str, start: Callable[[], Program]) -> None:
        """Starts a process, and again when it has ended."""
        self._starts[name] = start
        self.running[name] = start()

    def trainer(self, words: Sequence[str], **more: Any) -> None:
        """Adds the trainer; it continues from its checkpoint."""

        def start() -> Program:
            all_words = [*words, "--state", str(self.state)]
            self._trainers.append(Trainer(self.ctx, self.folder, all_words, **more))
            return self._trainers[-1]

        self.add("trainer", start)

    def ours(self, given: Path, kind: str, of: int, words: Sequence[str], **more: Any) -> None:
        """Adds producers p0 ..., the consumer and the trainer of BatchWeave."""
        site, consumer = self.site, more.pop("consumer")
        assert site is not None

        def producer(index: int) -> Callable[[], Program]:
            return lambda: site.producer(index, of, given, kind, **more)

        for index in range(of):
            self.add(f"p{index}", producer(index))
        self.add("consumer", lambda: site.consumer(**consumer)[0])
        self.trainer(["batchweave", "--place", str(site.folder / "s"), *words])

    def steps(self) -> list[dict[str, Any]]:
        """Returns the steps of all starts of the trainer, in order."""
        return [step for trainer in self._trainers for step in trainer.steps()]

    def kill(self, name: str) -> float:
        """Kills a process and its children, and returns the moment."""
        now = time.monotonic()
        self.running[name].kill()
        return now

    def signal_child(self, name: str, number: int) -> None:
        """Sends a signal to a child of a process, as a worker of its DataLoader."""
        for pid in children(self.running[name].process.pid)[-1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def poll(self) -> None:
        """Starts again what has ended."""
        for name, program in self.running.items():
            if program.ended():
                program.kill()
                self.restarts[name] = self.restarts.get(name, 0) + 1
                if self.restarts[name] > _DEATHS_MAX + 2 * int(time.monotonic() - self._made):
                    raise program.failed("ends again and again")
                self.running[name] = self._starts[name]()
        time.sleep(_POLL_SECONDS)

    def go(self, seconds: float, faults: Sequence[Fault] = ()) -> list[tuple[float, str]]:
        """Runs for this time with these faults; returns their moments since the begin."""
        self.began, marks = time.monotonic(), []
        due = [(fault.at, fault.name, fault.act) for fault in faults]
        due += [(fault.until, "", fault.undo) for fault in faults if fault.until]
        due.sort(key=lambda each: each[0])
        while (now := time.monotonic() - self.began) < seconds:
            while due and due[0][0] <= now:
                _, name, act = due.pop(0)
                marks += [(now, name)] if name else []
                act()
            self.poll()
        return marks

    def until_step(self, step: int, seconds: float = 120.0) -> None:
        """Runs until the trainer has made a step."""
        deadline = time.monotonic() + seconds
        while not any(each["step"] >= step for each in self.steps()[-1:]):
            self.poll()
            if time.monotonic() > deadline:
                said = self.site.messages() if self.site else ""
                raise FailedError(f"no step {step} within {seconds:g} s: {said}")


def children(pid: int) -> list[int]:
    """Returns the processes that a process has started, without helpers that only wait."""
    found = []
    with contextlib.suppress(OSError):
        for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if b"resource_tracker" not in Path(f"/proc/{each}/cmdline").read_bytes():
                found.append(int(each))
    return found


def gaps(steps: Sequence[Mapping[str, Any]], began: float) -> list[tuple[float, float]]:
    """Returns of each step its end since the begin of the run, and the time since the last end."""
    ends = [float(each["at"]) - began for each in steps]
    return [(end, end - before) for before, end in itertools.pairwise(ends) if end > 0]


STOP, GO, KILL = signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL
