"""The sending half of a session: its messages, and the releases of frames whose arrays are gone.

Any thread may use it. The rules are those of `_session`.
"""

from __future__ import annotations

import contextlib
import socket
import weakref
from collections import deque
from typing import Any, cast

from batchweave import _wire
from batchweave._holds import Hold
from batchweave._layout import Array

# As a plain number: an operation on the enum takes microseconds.
_SEND_FLAGS = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


class Position:
    """The step after the last batch that a reader returned; shared with its session."""

    __slots__ = ("step",)

    def __init__(self, step: int) -> None:
        self.step = step


class Sending:
    """A connected socket to send on, and the frames that this rank holds."""

    def __init__(self, connected: socket.socket, next_step: int) -> None:
        self.next_step = next_step
        """The next step when the reader last waited; `position` may be further."""
        self.position = Position(next_step)
        self.due = 1
        """The number of unused frames that are released at once; fewer wait for others."""
        self.held: dict[int, Hold] = {}
        self.lost = self.torn = self.forked = self.parked = False
        self.interrupts: list[BaseException] = []
        """Raised while an array was dropped, for the next `next()`; shared with the reader."""
        self._socket = connected
        self._gone: deque[weakref.ref[Array]] = deque()
        self._outbox: deque[bytes] = deque()
        # Bound once: it is used for every step.
        self._send_now = connected.send

    def post(self, message: bytes) -> None:
        """Sends a message in order with others posted; `flush` sends the rest of a full socket."""
        self._outbox.append(message)
        self.flush()

    def offer(self, message: bytes) -> None:
        """Sends a message that may be dropped when the socket is full."""
        if not self._outbox:
            self._send(message)

    def is_clear(self) -> bool:
        """Returns whether the socket has taken all messages that were posted."""
        return not self._outbox or self.flush()

    def flush(self) -> bool:
        """Sends queued messages, as far as the socket has space; returns whether all were sent."""
        try:
            return self._flush_outbox() and self._flush_releases()
        except BaseException:
            self.torn = True
            raise

    def _flush_outbox(self) -> bool:
        while self._outbox:
            with contextlib.suppress(IndexError):
                message = self._outbox.popleft()
                if not self._send(message):
                    self._outbox.appendleft(message)
                    return False
        return True

    def _flush_releases(self) -> bool:
        while self._gone:
            holds: list[Hold] = []
            with contextlib.suppress(IndexError):
                while len(holds) < _wire.FRAMES_MAX:
                    holds.append(cast(Hold, self._gone.popleft()))
            # An interrupt during its creation leaves one without a frame: the session is torn then.
            frames = [hold.frame for hold in holds if hasattr(hold, "frame")]
            if frames and not self._send(_wire.release(self.received(), frames)):
                self._gone.extendleft(reversed(holds))
                return False
            for frame in frames:
                self.held.pop(frame, None)
        return True

    def release_few(self) -> bool:
        """Releases the frames that wait for it, if they are few, in few instructions.

        Returns False in all other cases, which `flush` handles.
        """
        gone = self._gone
        count = len(gone)
        if not 0 < count <= _wire.FEW or self._outbox or self.lost or self.forked:
            return False
        holds: list[Any] = []
        try:
            try:
                while len(holds) < count:
                    holds.append(gone.popleft())
                frames = [hold.frame for hold in holds]
                header, pack = _wire.RELEASES[count]
                self._send_now(pack(header, self.received(), count, *frames), _SEND_FLAGS)
            except (IndexError, AttributeError, OSError):
                # Another thread was first, an interrupt came during the creation of a hold, or the
                # socket is full or lost.
                gone.extendleft(reversed(holds))
                return False
            for frame in frames:
                self.held.pop(frame, None)
        except BaseException:
            self.torn = True
            raise
        return True

    def received(self) -> int:
        """Returns the step below which the trainer has all steps; producers may wait for it."""
        at = self.position.step
        return at if at > self.next_step else self.next_step

    def _send(self, message: bytes) -> bool:
        if self.lost or self.forked:
            return True
        try:
            self._socket.send(message, _SEND_FLAGS)
        except BlockingIOError:
            return False
        except OSError:
            self.lost = True
        return True
