"""A rank whose signal handler calls the reader, at each line in turn.

Arguments: SOCKET MODE STRIDE, the lines from one handler to the next. Modes: "marks" marks a
checkpoint and returns; "closes" marks, closes and returns; "exits" marks, closes and ends the
process, as a rank that is preempted; "stops" calls `stop()` and reads on. As interrupted_once.py,
but the handler runs from the second `next()` to the end of `close()`. Prints the number of lines
and what went wrong, as JSON.
"""

from __future__ import annotations

import json
import sys

from interrupted_once import Interrupt, moments

import batchweave

STEPS = 2
CODE = 3


class Preempted:
    """The handler of one reader."""

    def __init__(self, reader: batchweave.Reader, mode: str) -> None:
        self.reader, self.mode = reader, mode
        self.last: dict[str, str] = {}
        self.why = ""

    def __call__(self) -> None:
        """Runs between two lines of the client."""
        if self.mode == "stops":
            self.reader.stop()
            return
        closed = self.reader._closed and not self.reader._ending
        self.reader.state_dict()
        if not closed:
            self.reader.checkpoint(self.last)
        if self.mode == "marks":
            return
        self.reader.close()
        if late := self.reader._marks.unconfirmed():
            self.why = f"marks of {late} are not confirmed"
        if self.mode == "exits":
            sys.exit(CODE)


def run(path: str, mode: str, nth: int) -> tuple[str, int, str]:
    """Reads to the end, interrupted once; returns what is wrong, the lines left, and the place."""
    reader = batchweave.connect(path, job="j", timeout=30, connect_timeout=30)
    handler = Preempted(reader, mode)
    interrupt = Interrupt(nth, "line", handler)
    got, end = [], "end"
    try:
        batch = next(reader)
        got.append(batch.step)
        handler.last = batch.state_dict()
        del batch
        assert reader._session is not None
        reader._session.torn = nth % 2 == 0
        sys.settrace(interrupt.trace)
        while True:
            try:
                for batch in reader:
                    got.append(batch.step)
                    batch["tokens"].sum()
                    del batch
                break
            except batchweave.errors.Stopped:
                if mode != "stops" or interrupt.left > 0:
                    raise
        reader.close()
    except SystemExit as ended:
        end = f"exit {ended.code}"
    except batchweave.errors.ClosedError:
        end = "closed"
    except BaseException as error:
        end = repr(error)
    finally:
        sys.settrace(None)
        reader.close()
    happened = interrupt.left <= 0
    whole = got == list(range(STEPS))
    wrong = handler.why
    if late := reader._marks.unconfirmed():
        wrong = wrong or f"at the end marks of {late} are not confirmed"
    expected = {
        "marks": ("end",),
        "stops": ("end",),
        "closes": ("end", "closed"),
        "exits": (f"exit {CODE}", "closed"),
    }
    if not happened:
        wrong = wrong or ("" if end == "end" and whole else f"{end} without an interrupt, {got}")
    elif end not in expected[mode] or got != list(range(len(got))):
        wrong = wrong or f"ended by {end}, steps {got}"
    elif mode in ("marks", "stops") and not whole:
        wrong = wrong or f"steps {got}"
    return wrong, interrupt.left, interrupt.at


def main() -> None:
    """Moves the handler forward until it no longer runs."""
    path, mode, stride = sys.argv[1:4]
    wrong: list[str] = []
    for nth in moments(int(stride)):
        why, left, place = run(path, mode, nth)
        if why:
            wrong.append(f"{nth}, {place}: {why}")
        if left > 0 and nth % 2:
            print(json.dumps([nth, wrong]), flush=True)
            break


if __name__ == "__main__":
    main()
