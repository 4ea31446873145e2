"""One thread at a time: two that read with one reader would each get some of its steps.

A reader may pass from one thread to another, but not while a call of the first one runs. The usual
case costs one comparison; only a change of threads reads the other thread's stack.
"""

from __future__ import annotations

import sys
import threading
from types import CodeType, FrameType

from batchweave.errors import OneThreadError


class Turns:
    """The thread that reads now, or did last."""

    __slots__ = ("_changing", "_codes", "_reader", "thread")

    def __init__(self, reader: object, codes: frozenset[CodeType]) -> None:
        self.thread: int | None = None
        """The identifier of that thread."""
        # For a signal handler that reads while its own thread changes the turn.
        self._changing = threading.RLock()
        self._codes, self._reader = codes, id(reader)

    def change(self) -> None:
        """Gives the turn to the calling thread; an error while a call of the other one runs."""
        with self._changing:
            before, own = self.thread, threading.get_ident()
            # First, so that a call of the other thread that begins now asks for its turn, too.
            self.thread = own
            if before is not None and before != own and self._reads(before):
                self.thread = before
                raise OneThreadError(
                    f"thread {_name(own)} reads while thread {_name(before)} waits in the same "
                    "reader: one thread at a time; give each thread a reader of its own, or pass "
                    "batches on through a queue.Queue"
                )

    def _reads(self, thread: int) -> bool:
        frame: FrameType | None = sys._current_frames().get(thread)
        while frame is not None:
            # Of no other frame: its variables could keep a batch alive.
            if frame.f_code in self._codes and id(frame.f_locals.get("self")) == self._reader:
                return True
            frame = frame.f_back
        return False


def _name(thread: int) -> str:
    names = [each.name for each in threading.enumerate() if each.ident == thread]
    return repr(names[0]) if names else str(thread)
