"""Follows deploy/README.md on systemd in a booted Debian: `tools/live/systemd.py BINARIES`.

Every command of the page runs as it is written, by a user with sudo. A training rank of another
user reads meanwhile, from before the first fault until the proof. Exit codes: 0 all steps passed,
1 one failed, 2 this machine cannot boot another.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from machine import CannotRunError, Machine, StepError
from node import Node
from page import ROOT, Page
from story import SECTIONS, Story

PROGRAMS = ["batchweave", "batchweave-lab", "batchweave-producer", "batchweave-consumer"]


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


def follow(machine: Machine, binaries: Path, page: Page, protocol: Protocol) -> None:
    """Boots and follows the page."""
    node = Node(machine)
    try:
        protocol.step("Debian", machine.install)
        protocol.step("boot", machine.boot)
        protocol.step("users, documents, store", lambda: node.furnish(binaries, PROGRAMS))
        for name, action in Story(node, page).steps():
            protocol.step(name, action)
        if left := page.left():
            raise StepError(f"commands of the page that no step has run: {'; '.join(left)}")
    finally:
        node.end()


def interrupted(number: int, _frame: object) -> None:
    """Ends with all clean-up, which a further signal does not cut short."""
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    sys.exit(128 + number)


def main(binaries: Path) -> int:
    """Boots, follows the page, and prints a summary."""
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, interrupted)
    protocol = Protocol()
    page = Page(ROOT / "deploy" / "README.md", SECTIONS)
    try:
        if missing := [name for name in PROGRAMS if not (binaries / name).exists()]:
            raise CannotRunError(f"{binaries / missing[0]} is missing: make build")
        machine = Machine.prepare()
        try:
            follow(machine, binaries, page, protocol)
        finally:
            machine.remove()
    except CannotRunError as why:
        print(f"live-systemd cannot run here: {why}", file=sys.stderr)
        return 2
    except StepError as why:
        print(f"live-systemd failed: {why}", file=sys.stderr)
        return 1
    print(f"live-systemd: {protocol.summary()}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: tools/live/systemd.py BINARIES")
    sys.exit(main(Path(sys.argv[1])))
