"""What the live runs share: their steps with times, their signals and exit codes."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable

from machine import CannotRunError, StepError


class Protocol:
    """The steps so far: name, seconds, and what was seen."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.passed: list[tuple[str, float, str]] = []

    def step(self, name: str, action: Callable[[], str]) -> None:
        """Runs a step and prints its line."""
        begin = time.monotonic()
        try:
            seen = action()
        except StepError as why:
            raise StepError(f"{name}: {why}") from why
        self.passed.append((name, time.monotonic() - begin, seen))
        print(f"{begin - self.began:6.1f} s  {name}: {seen}", flush=True)

    def summary(self) -> str:
        """Returns the summary, with the longest steps."""
        total = time.monotonic() - self.began
        longest = sorted(self.passed, key=lambda one: -one[1])[:3]
        shown = ", ".join(f"{name} {seconds:.0f} s" for name, seconds, _ in longest)
        return f"{len(self.passed)} steps in {total:.0f} s; longest: {shown}"


def interrupted(number: int, _frame: object) -> None:
    """Ends with all clean-up, which a further signal does not cut short."""
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    sys.exit(128 + number)


def ended_by(name: str, run: Callable[[Protocol], None]) -> int:
    """Runs all steps; prints the summary or the reason, and returns the exit code."""
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, interrupted)
    protocol = Protocol()
    try:
        run(protocol)
    except CannotRunError as why:
        print(f"{name} cannot run here: {why}", file=sys.stderr)
        return 2
    except StepError as why:
        print(f"{name} failed: {why}", file=sys.stderr)
        return 1
    print(f"{name}: {protocol.summary()}")
    return 0
