"""One wait of `next()`: its deadline, its cause, and the rank's work meanwhile."""

from __future__ import annotations

import gc
import re
import sys
import time
from collections.abc import Callable

from batchweave import _late
from batchweave._connect import Options
from batchweave._holds import Hold, Taker, listed, steps_of
from batchweave._late import Late, remedy_of
from batchweave._session import Session
from batchweave.errors import FramesHeldError, StepTimeoutError

_LATE_SECONDS = 0.1
_TICK_SECONDS = 0.5
# Interval of polls for the end of copies to a device that hold frames.
_COPIES_SECONDS = 0.001
# Libraries that compute after the call, and drop arrays then, in threads that Python does not know.
_ASYNCHRONOUS = ("jax", "tensorflow", "cupy")
_ARENA = re.compile(r"of the arena's (\d+) bytes")

reapers: list[Callable[[], bool]] = []
"""Release frames of ended copies to a device; each returns whether it holds more."""


class Wait:
    """Begins when `next()` is called."""

    def __init__(self, options: Options, step: int, late: Late, taker: Taker) -> None:
        self.started = time.monotonic()
        self._options = options
        self._step = step
        self._late, self._taker = late, taker
        self._held_since: float | None = None
        self._waited = self._collected = False
        self._counted_from = self.started
        self._reported_at = 0.0
        self.deadline = self.started + options.timeout
        self.cause = "the daemon gave no cause"

    def seconds(self) -> float:
        """Returns the seconds that `next()` waited since the last call of this."""
        if not self._waited:
            return 0.0
        since, self._counted_from = self._counted_from, time.monotonic()
        return self._counted_from - since

    def without_session(self) -> float:
        """Returns the seconds until there was a session again, and resets `seconds`."""
        lost, self._counted_from = time.monotonic() - self._counted_from, time.monotonic()
        return lost

    def pause(self, session: Session) -> bool:
        """Waits for a message; returns whether a report to the daemon is due."""
        first, self._waited = not self._waited, True
        now = time.monotonic()
        if now >= self.deadline:
            raise self._error(session)
        late = self.started + _LATE_SECONDS
        tick = late - now if now < late else _TICK_SECONDS
        if now >= late and not self._collected and self._all_held(session):
            # Trainers turn the collector off; arrays in cycles then keep their frames.
            self._collected = True
            gc.collect()
        copying = False
        for reap in reapers:
            copying |= reap()
        if copying:
            tick = min(tick, _COPIES_SECONDS)
        if now >= late:
            tick = min(tick, self._judge(session, now, copying))
        session.wait(min(tick, self.deadline - now), awake=first)
        return self._due(late)

    def _due(self, late: float) -> bool:
        now = time.monotonic()
        if now < late or now - self._reported_at < 1.0:
            return False
        self._reported_at = now
        return True

    def _judge(self, session: Session, now: float, copying: bool) -> float:
        """Warns if that is due, and fails a wait that cannot end; returns seconds until it can."""
        holds = session.held_now()
        full = self._all_held(session) or self._holds_its_share(holds)
        blamed = self.cause.startswith(("arena_full", "backpressure"))
        guilty = full or (blamed and len(steps_of(holds)) > 1)
        self._late.waits(self.started, self._step, self.cause, holds if guilty else [])
        if not full or copying:
            self._held_since = None
            return _TICK_SECONDS
        if self._held_since is None:
            self._held_since = now
        left = self._held_since + _late.INTERVALS.stuck - now
        if left > 0:
            return left
        if not self._taker.keeps_all() and not _alone():
            return _TICK_SECONDS
        raise FramesHeldError(
            f"step {self._step} cannot arrive: {self._held(session, holds)}, and nothing else in "
            f"this process can release it; {_late.RELEASE}",
            step=self._step,
        )

    def _all_held(self, session: Session) -> bool:
        return len(steps_of(session.held_now())) >= session.credits

    def _holds_its_share(self, holds: list[Hold]) -> bool:
        """Returns whether this rank alone holds half of the arena, beyond which it is sent nothing.

        The arena's size is in a text for people: without it the wait ends at its timeout.
        """
        found = _ARENA.search(self.cause) if self.cause.startswith("arena_full") else None
        # Frames are a little larger than their arrays.
        return found is not None and 2.02 * sum(hold.size for hold in holds) >= int(found[1])

    def _held(self, session: Session, holds: list[Hold]) -> str:
        if self._all_held(session):
            return f"this rank holds all its {session.credits} credits: {listed(holds)}"
        return f"this rank holds its share of the daemon's arena: {listed(holds)}"

    def _error(self, session: Session) -> StepTimeoutError:
        where = f"step {self._step} did not arrive from {self._options.socket} within"
        where += f" {self._options.timeout:g} s"
        holds = session.held_now()
        if self._all_held(session) or self._holds_its_share(holds):
            return FramesHeldError(
                f"{where}: held_frames: {self._held(session, holds)}; {_late.RELEASE}",
                step=self._step,
            )
        return StepTimeoutError(f"{where}: {self.cause}; {remedy_of(self.cause)}", step=self._step)


def _alone() -> bool:
    """Returns whether nothing but this thread can drop arrays."""
    return len(sys._current_frames()) == 1 and not any(
        name in sys.modules for name in _ASYNCHRONOUS
    )
