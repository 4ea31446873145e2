"""Ending a wait from outside: `reader.stop()` in any thread or signal handler.

A handler runs between two lines of the call that waits, so a lock of that call would never be free
for it. A request is a flag, which the waiting call takes and raises as `Stopped`; the descriptor
only wakes that call.
"""

from __future__ import annotations

import contextlib
import os
import select
import weakref
from collections.abc import Iterator
from contextvars import ContextVar

from batchweave.errors import Stopped


class StopRequest:
    """A request to end one wait; shared by the readers that follow one another in its owner."""

    __slots__ = ("__weakref__", "asked", "descriptor")

    def __init__(self, *, ended: bool = False) -> None:
        self.asked = False
        self.descriptor = -1
        """Readable from a request on, until `wake` empties it."""
        if not ended:
            self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            # Never closed while a call of `ask` runs: its number could be another file's by then.
            weakref.finalize(self, os.close, self.descriptor).atexit = False

    def ask(self) -> None:
        """Ends the wait that is in progress, or else the next one."""
        if self.descriptor < 0:
            return
        self.asked = True
        os.eventfd_write(self.descriptor, 1)

    def take(self, step: int) -> None:
        """Raises `Stopped` once for a request; `step` is the one that was waited for."""
        if self.asked:
            self.asked = False
            raise Stopped(
                f"stop() has ended the wait for step {step}; the next call reads that step",
                step=step,
            )

    def wake(self) -> None:
        """Empties the descriptor, so that the next wait sleeps again."""
        if self.asked:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.descriptor)

    def register(self, readable: select.poll) -> None:
        """Lets a request wake a poll."""
        if self.descriptor >= 0:
            readable.register(self.descriptor, select.POLLIN)

    def sleep(self, seconds: float) -> None:
        """Sleeps until a request at most."""
        readable = select.poll()
        self.register(readable)
        readable.poll(max(1, int(seconds * 1000)))
        self.wake()

    def __reduce__(self) -> tuple[type[StopRequest], tuple[()]]:
        # A request belongs to its process.
        return StopRequest, ()


ENDED = StopRequest(ended=True)
"""That of a closed reader, which waits no more."""

_given: ContextVar[StopRequest | None] = ContextVar("batchweave_stop_request", default=None)


@contextlib.contextmanager
def used_by_readers(request: StopRequest) -> Iterator[None]:
    """Lets the readers made in this block obey `request`, from their first try to connect on."""
    token = _given.set(request)
    try:
        yield
    finally:
        _given.reset(token)


def of_new_reader() -> StopRequest:
    """Returns the request that a new reader obeys."""
    return _given.get() or StopRequest()
