"""Reports of trained steps until the daemon has stored them; sent again in new sessions.

1. A daemon of an earlier release ends a session at a report. So nothing is sent before the daemon
   of the session has said, on a connection of its own, that it takes reports.
2. Reports and marks go through one queue: a mark never overtakes the reports before it.
3. Any thread and any signal handler may call, and calls return at once. They take no lock, since
   an interrupt could leave it locked. Each operation on a container is atomic, and an item leaves
   the queue after it was sent, so two simultaneous calls may both send a report; the daemon counts
   the first.
4. An exception in the middle of a send leaves the session `torn`: the next one repeats its reports.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import time
from collections import deque

from batchweave import _arena, _wire
from batchweave._connect import connected
from batchweave._session import Session
from batchweave.errors import BadMessageError, BatchWeaveError

_log = logging.getLogger("batchweave")

# Steps that are sent together, unless a mark or a second passes before.
_TOGETHER = 64
_ANCILLARY_BYTES = socket.CMSG_SPACE(16 * 4)
# Shortest interval between two connections that ask.
_ASK_SECONDS = 0.1


class State:
    """A step, and the reason why it was left out; None if it was trained.

    Compared by identity: an item of the queue is removed once.
    """

    __slots__ = ("step", "left_out")

    def __init__(self, step: int, left_out: str | None) -> None:
        self.step, self.left_out = step, left_out


class Mark:
    """A mark that waits for the reports before it; compared by identity."""

    __slots__ = ("message",)

    def __init__(self, message: bytes) -> None:
        self.message = message


class Reports:
    """The reports and marks of a reader."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._queue: deque[State | Mark] = deque()
        # The states of each report of the session that is not confirmed.
        self._sent: deque[tuple[State, ...]] = deque()
        self._confirmed = 0
        self._session: Session | None = None
        # Whether the daemon of this session takes reports.
        self._known: tuple[Session, bool] | None = None
        self._asking: socket.socket | None = None
        self._ask_at, self._warned = 0.0, False

    def add(self, session: Session | None, step: int, left_out: str | None) -> None:
        """Adds the state of a step; sends it with others."""
        self._queue.append(State(step, left_out))
        known = self._known
        is_new = known is None or known[0] is not session
        if session is not None and (is_new or len(self._queue) >= _TOGETHER):
            self.send(session)

    def mark(self, session: Session | None, message: bytes) -> None:
        """Sends a mark behind the reports before it."""
        self._queue.append(Mark(message))
        if session is not None:
            self.send(session)

    def waiting(self) -> bool:
        """Returns whether reports or marks were not sent yet."""
        return bool(self._queue)

    def stored(self, count: int) -> None:
        """Forgets the first reports of the session, of which the daemon has stored `count`.

        The last of them is kept: two calls at once may have sent theirs in the other order.
        """
        while self._confirmed < count - 1 and self._sent:
            self._sent.popleft()
            self._confirmed += 1

    def send(self, session: Session) -> None:
        """Sends what waits; nothing while it is not known whether the daemon takes reports."""
        try:
            if self._session is not session:
                self._begin(session)
            while self._queue and self._send_some(session):
                pass
        except BaseException:
            session.torn = True
            raise

    def _begin(self, session: Session) -> None:
        """Repeats in a new session what was not confirmed in the last one."""
        for states in self._sent.copy():
            self._queue.extendleft(reversed(states))
            with contextlib.suppress(ValueError):
                self._sent.remove(states)
        self._confirmed = 0
        self._session = session

    def _send_some(self, session: Session) -> bool:
        """Sends one message; returns False if nothing can be sent now."""
        queue = list(self._queue.copy())
        head = next(iter(queue), None)
        if isinstance(head, Mark):
            session.post(head.message)
            self._remove(head)
            return True
        taken = self._takes(session)
        if taken is None:
            return False
        states: list[State] = []
        for item in queue[: _wire.STATES_MAX]:
            if not isinstance(item, State):
                break
            states.append(item)
        if taken and states:
            self._sent.append(tuple(states))
            session.post(_wire.report(session.received(), ranges_of(states)))
        for item in states:
            self._remove(item)
        return True

    def _remove(self, item: State | Mark) -> None:
        # Another call may have sent it, too.
        with contextlib.suppress(ValueError, IndexError):
            self._queue.remove(item)

    def _takes(self, session: Session) -> bool | None:
        """Returns whether the session's daemon takes reports; None while it has not answered."""
        known = self._known
        if known is not None and known[0] is session:
            return known[1]
        taken = None
        with contextlib.suppress(BatchWeaveError, OSError):
            taken = self._ask(session)
        if taken is None:
            return None
        self._known = (session, taken)
        if not taken and not self._warned:
            self._warned = True
            _log.warning(
                "the daemon at %s is of an older release and takes no reports: `batchweave verify "
                "--job NAME --trained` will find none; install client and daemon of one release",
                self._path,
            )
        return taken

    def _ask(self, session: Session) -> bool | None:
        # Kept only while its answer is awaited: an interrupt leads to another connection.
        asking, self._asking = self._asking, None
        if asking is None:
            if time.monotonic() < self._ask_at:
                return None
            self._ask_at = time.monotonic() + _ASK_SECONDS
            asking, _ = connected(self._path)
            if asking is None:
                return None
            asking.send(_wire.encode(_wire.DESCRIBE))
        found: str | bool | None = False
        try:
            found = _answer(asking)
        finally:
            if found is not None:
                asking.close()
        if found is None:
            self._asking = asking
            return None
        # Another run may listen at the same path: the session's one ends soon.
        return False if found is False else (found == session.instance) or None


def _answer(asked: socket.socket) -> str | bool | None:
    """Returns the run of a daemon that takes reports, False for another; None: not yet.

    Raises an error if the daemon is gone, or cannot answer now.
    """
    while True:
        try:
            message, ancillary, flags, _ = asked.recvmsg(
                _wire.MESSAGE_BYTES_MAX, _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return None
        for descriptor in _arena.descriptors_of(ancillary):
            os.close(descriptor)
        if not message or flags & socket.MSG_TRUNC:
            raise BadMessageError("the daemon did not answer")
        kind, body = _wire.split(memoryview(message))
        if kind == _wire.ERROR:
            error = _wire.error(body)
            if isinstance(error, BadMessageError):
                return False
            raise error
        if kind == _wire.STREAM_INFO:
            try:
                info = json.loads(bytes(body))
            except (ValueError, RecursionError) as reason:
                raise BadMessageError(str(reason)) from None
            found = info.get("reports") if isinstance(info, dict) else None
            return found if isinstance(found, str) else False


def ranges_of(states: list[State]) -> list[tuple[int, int, str | None]]:
    """Returns states with consecutive steps joined: the first step, the end, the reason."""
    ranges: list[tuple[int, int, str | None]] = []
    for state in states:
        step, left_out = state.step, state.left_out
        if ranges and ranges[-1][1:] == (step, left_out):
            ranges[-1] = (ranges[-1][0], step + 1, left_out)
        else:
            ranges.append((step, step + 1, left_out))
    return ranges


def is_reason(text: str) -> bool:
    """Returns whether a step may be left out for this reason: one line of 1 to 64 bytes."""
    size = len(text.encode(errors="replace"))
    return 1 <= size <= _wire.REASON_BYTES_MAX and not any(
        ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000 for c in text
    )
