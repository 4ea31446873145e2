"""A rank interrupted once: `interrupted_once.py SOCKET STEPS UNIT STRIDE`.

Each reader is interrupted STRIDE lines of the client later than the one before, or instructions
where UNIT is `opcode`, until one reads to the end without; the first line is drawn. A process of
its own, as interrupted.py. Prints how many there were and what went wrong, as JSON.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import linecache
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import batchweave
from batchweave.state import State

CLIENT = str(Path(batchweave.__file__).parent)
# The last line of `Reader.__next__`.
HANDED_OUT = "return batch"


@functools.cache
def handed_out(file: str, line: int) -> bool:
    """Whether this is the line that hands a batch out."""
    return linecache.getline(file, line).strip() == HANDED_OUT


def ctrl_c() -> None:
    """Python's own handler."""
    raise KeyboardInterrupt


class Interrupt:
    """A signal, by default Ctrl-C, before the n-th line, or instruction, of the client."""

    def __init__(self, nth: int, unit: str, handler: Callable[[], None] = ctrl_c) -> None:
        self.left = nth
        self.unit = unit
        self.handler = handler
        self.at = ""

    def trace(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        """For `sys.settrace`."""
        # Once only: the rest runs without a trace.
        if self.left <= 0:
            return None
        file, line = frame.f_code.co_filename, frame.f_lineno
        if not file.startswith(CLIENT):
            return None
        if event == "call":
            frame.f_trace_opcodes = self.unit == "opcode"
        # After a store, Python does not check for signals before it returns.
        # Comprehensions have instructions without a line.
        if event in (self.unit, "call") and not (line and handed_out(file, line)):
            self.left -= 1
            if self.left == 0:
                self.at = f"{Path(file).name}:{line}"
                self.handler()
        return self.trace


def read(path: str, interrupt: Interrupt) -> tuple[list[int], str]:
    """Reads to the end, over one interrupt; returns the steps and other failures.

    Behind the first step a checkpoint is marked, and the session begins anew, as after a lost
    message.
    """
    got: list[int] = []
    reader = batchweave.connect(path, job="j", timeout=30, connect_timeout=30)
    origin = State.from_dict(reader.state_dict())
    try:
        while not reader.ended:
            try:
                sys.settrace(interrupt.trace)
                for batch in reader:
                    got.append(batch.step)
                    sys.settrace(None)
                    state = dataclasses.replace(origin, next_step=batch.step + 1).to_dict()
                    if batch.state_dict() != state:
                        return got, f"a wrong state {batch.state_dict()}"
                    if batch.step == 0:
                        reader.checkpoint(state)
                        assert reader._session is not None
                        reader._session.torn = True
                    sys.settrace(interrupt.trace)
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(None)
    except batchweave.BatchWeaveError as error:
        return got, repr(error)
    finally:
        reader.close()
    return got, "a mark is lost" if reader._marks.unconfirmed() else ""


def moments(stride: int) -> itertools.count[int]:
    """Returns numbers of lines, the first of which is drawn."""
    return itertools.count(random.randint(1, stride), stride)


def main() -> None:
    """Moves the interrupt forward until none occurs before the end."""
    path, steps, unit, stride = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    wrong: list[str] = []
    for nth in moments(stride):
        interrupt = Interrupt(nth, unit)
        got, why = read(path, interrupt)
        if why or got != list(range(steps)):
            wrong.append(f"{nth}, {interrupt.at}: {got} {why}")
        if interrupt.left > 0:
            print(json.dumps([nth, wrong]), flush=True)
            break


if __name__ == "__main__":
    main()
