"""The end of the interpreter: sessions end while the modules that end them still work.

Arrays may be dropped later than that. Their callbacks are removed, and the system closes the
sockets with the process: until then the daemon keeps the frames.
"""

from __future__ import annotations

import atexit
import contextlib
import weakref
from typing import Protocol

from batchweave import _session


class Ending(Protocol):
    """A reader, as far as its end is concerned."""

    def leave(self) -> None:
        """Ends the session without waiting and without a warning."""


_readers: weakref.WeakSet[Ending] = weakref.WeakSet()


def ends_with_the_interpreter(reader: Ending) -> None:
    """Lets a reader that nobody closed end its session at exit."""
    _readers.add(reader)


def _end_all() -> None:
    for reader in list(_readers):
        # Whatever fails here, the process ends.
        with contextlib.suppress(Exception):
            reader.leave()
    for session in list(_session._sessions):
        session.lost = True
        session.held.clear()
        session._socket.detach()


atexit.register(_end_all)
