"""Follows deploy/README.md on systemd in a booted Debian: `tools/live/systemd.py BINARIES`.

Every command of the page runs as it is written, by a user with sudo. A training rank of another
user reads meanwhile, from before the first fault until the proof. Exit codes: 0 all steps passed,
1 one failed, 2 this machine cannot boot another.
"""

from __future__ import annotations

import sys
from pathlib import Path

from machine import CannotRunError, Machine, StepError
from node import Node
from page import ROOT, Page
from protocol import Protocol, ended_by
from story import SECTIONS, Story

PROGRAMS = ["batchweave", "batchweave-lab", "batchweave-producer", "batchweave-consumer"]


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


def main(binaries: Path) -> int:
    """Boots, follows the page, and prints a summary."""
    page = Page(ROOT / "deploy" / "README.md", SECTIONS)

    def run(protocol: Protocol) -> None:
        if missing := [name for name in PROGRAMS if not (binaries / name).exists()]:
            raise CannotRunError(f"{binaries / missing[0]} is missing: make build")
        machine = Machine.prepare()
        try:
            follow(machine, binaries, page, protocol)
        finally:
            machine.remove()

    return ended_by("live-systemd", run)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: tools/live/systemd.py BINARIES")
    sys.exit(main(Path(sys.argv[1])))
