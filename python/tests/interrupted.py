"""A rank that is interrupted repeatedly: `interrupted.py SOCKET SEED`, for test_interrupts.

A process of its own: pytest keeps every exception that a callback could only print, and with it
the frames on the stack and their arrays. Prints the steps it got and the number of interrupts as
JSON, closes the reader and waits for the end of its input.
"""

from __future__ import annotations

import json
import random
import signal
import sys

from fake_daemon import tokens_of

import batchweave

chance = random.Random(int(sys.argv[2]))
armed: list[bool] = []
got: list[int] = []


def interrupt(*_: object) -> None:
    """Ctrl-C, but only inside `pump`."""
    if armed:
        armed.clear()
        raise KeyboardInterrupt


def arm() -> None:
    """Schedules the next interrupt at a random instant."""
    armed[:] = [True]
    signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0001, 0.003))


def pump(reader: batchweave.Reader) -> None:
    """Reads until the end or an interrupt."""
    try:
        arm()
        for batch in reader:
            got.append(batch.step)
            # One that came at the first line of a callback was printed and forgotten.
            if not armed:
                arm()
            if batch["tokens"][0, 0] != tokens_of(batch.step, 0)[0, 0]:
                raise AssertionError(batch.step)
    finally:
        # A deferred interrupt is raised while the next one is under way.
        armed.clear()


def main() -> None:
    """Continues after each interrupt, as a notebook would."""
    signal.signal(signal.SIGALRM, interrupt)
    interrupts = 0
    reader = batchweave.connect(sys.argv[1], timeout=30)
    while not reader.ended:
        try:
            pump(reader)
        except KeyboardInterrupt:
            interrupts += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    reader.close()
    print(json.dumps([got, interrupts]), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
