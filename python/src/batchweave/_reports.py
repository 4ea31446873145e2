"""Reports of trained steps until the daemon has stored them; sent again in new sessions.

1. A daemon of an earlier release ends a session at a report. So nothing is sent before the daemon
   of the session has said, on a connection of its own, that it takes reports.
2. Reports and marks go through one queue: a mark never overtakes the reports before it.
3. Any thread and any signal handler may call, and calls return at once. They take no lock, since
   an interrupt could leave it locked. Each operation on a container is atomic, and an item leaves
   the queue after it was sent, so two simultaneous calls may both send a report; the daemon counts
   the first.
4. The losses of a step travel with its state. Above 1 MiB that is not confirmed, losses are
   dropped, said once and counted; states are kept. Nothing is encoded before the socket has taken
   all messages before, which would be copies that nothing bounds.
5. An exception in the middle of a send leaves the session `torn`: the next one repeats its reports.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence

from batchweave import _arena, _wire
from batchweave._connect import connected
from batchweave._session import Session
from batchweave._values import DroppedLosses, Kept, State
from batchweave.errors import BadMessageError, BatchWeaveError

_log = logging.getLogger("batchweave")

# Steps that are sent together, unless a mark or a second passes before.
_TOGETHER = 64
# The same for losses.
_TOGETHER_BYTES = 32 << 10
_ANCILLARY_BYTES = socket.CMSG_SPACE(16 * 4)
# Shortest interval between two connections that ask.
_ASK_SECONDS = 0.1


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
        self.before_marks: list[Callable[[float], None]] = []
        """Calls that report steps whose losses are on a device, within a number of seconds."""
        self._kept, self._waiting_bytes, self._warned_of_losses = Kept(), 0, False

    def add(
        self,
        session: Session | None,
        step: int,
        left_out: str | None,
        values: bytes | None = None,
    ) -> None:
        """Adds the state of a step, with its losses as a record; sends it with others."""
        self._queue.append(State(step, left_out, values))
        if values is not None:
            self._waiting_bytes += len(values)
            if self._kept.add(len(values)):
                self._fit()
        known = self._known
        is_new = known is None or known[0] is not session
        many = len(self._queue) >= _TOGETHER or self._waiting_bytes >= _TOGETHER_BYTES
        if session is not None and (is_new or many):
            self.send(session)

    def finish(self, seconds: float) -> None:
        """Reports the steps whose losses are on a device, and waits for them this long."""
        for report in self.before_marks.copy():
            report(seconds)

    def leave(self, session: Session) -> None:
        """Sends all reports, with the losses that are there by now."""
        self.finish(0.0)
        self.send(session)

    def leave_out(self, why: str, *, details: int = 0, sources: int = 0, values: int = 0) -> None:
        """Counts steps whose losses are not reported, or in part, and says why once."""
        kept = self._kept
        kept.details += details
        kept.sources += sources
        kept.values += values
        if not self._warned_of_losses:
            self._warned_of_losses = True
            _log.warning("losses of steps are left out: %s; reader.dropped_losses counts them", why)

    @property
    def dropped(self) -> DroppedLosses:
        """The number of steps whose losses were dropped, whole or in part."""
        return DroppedLosses(self._kept.details, self._kept.sources, self._kept.values)

    def _fit(self) -> None:
        """Drops losses above their bound, the oldest first."""
        sent = (state for states in self._sent.copy() for state in states)
        waiting = (item for item in self._queue.copy() if isinstance(item, State))
        # Once each: a call that was interrupted while it sent them leaves them in both.
        if self._kept.fit(list(dict.fromkeys([*sent, *waiting]))):
            self.leave_out(
                f"the daemon at {self._path} has not confirmed the last MiB of them; its log says "
                "whether it reaches the store"
            )

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
            self._waiting_bytes = 0
            while self._queue and self._send_some(session):
                pass
        except BaseException:
            session.torn = True
            raise

    def _begin(self, session: Session) -> None:
        """Repeats in a new session what was not confirmed in the last one."""
        for states in reversed(self._sent.copy()):
            self._queue.extendleft(reversed(states))
            with contextlib.suppress(ValueError):
                self._sent.remove(states)
        self._confirmed = 0
        self._session = session

    def _send_some(self, session: Session) -> bool:
        """Sends one message; returns False if nothing can be sent now."""
        if not session.is_clear():
            return False
        queue = list(self._queue.copy())
        head = next(iter(queue), None)
        if isinstance(head, Mark):
            session.post(head.message)
            self._remove(head)
            return True
        taken = self._takes(session)
        if taken is None:
            return False
        states = together(queue)
        if taken and states:
            self._sent.append(tuple(states))
            values = [state.values for state in states if state.values is not None]
            session.post(_wire.report(session.received(), ranges_of(states), values))
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


def together(queue: Sequence[State | Mark]) -> list[State]:
    """Returns the states at the beginning of a queue that fit into one message."""
    size, steps = _wire.REPORT_BYTES, set()
    states: list[State] = []
    for item in queue[: _wire.STATES_MAX]:
        if not isinstance(item, State):
            break
        values = item.values or b""
        # A range of its own, at most: consecutive steps are joined.
        reason = len((item.left_out or "").encode())
        size += _wire.STATE_OF_REPORT_BYTES + reason + len(values)
        # A message has the losses of a step once.
        if states and (size > _wire.MESSAGE_BYTES_MAX or (values and item.step in steps)):
            break
        states.append(item)
        if values:
            steps.add(item.step)
    return states


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
