"""One wait of `next()`: its deadline, its cause, and the rank's work meanwhile."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from batchweave._connect import Options
from batchweave._session import Session
from batchweave.errors import FramesHeldError, StepTimeoutError

_LATE_SECONDS = 0.1
_TICK_SECONDS = 0.5
_LISTED_MAX = 16
# Interval of polls for the end of copies to a device that hold frames.
_COPIES_SECONDS = 0.001

reapers: list[Callable[[], bool]] = []
"""Release frames of ended copies to a device; each returns whether it holds more."""

_REMEDIES = {
    "producing": "check that the producers run (`batchweave status`)",
    "fetching": "see the daemon's log and its metrics of the store",
    "store_unavailable": "check the store's endpoint, network and credentials",
    "arena_full": "other ranks hold the memory: drop their arrays, or raise arena.bytes",
    "backpressure": "ranks hold the memory: drop their arrays, or raise arena.bytes",
    "attempt_not_open": "check that global rank 0 runs and reaches its daemon",
    "daemon_starting": "see the daemon's log",
    "job_not_open": "open it with `batchweave job open`, or set job.open in the daemon's config",
}


class Wait:
    """Begins when `next()` is called."""

    def __init__(self, options: Options, step: int) -> None:
        self._started = time.monotonic()
        self._options = options
        self._step = step
        self._waited = self._collected = False
        self._counted_from = self._started
        self._reported_at = 0.0
        self.deadline = self._started + options.timeout
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
        late = self._started + _LATE_SECONDS
        tick = late - now if now < late else _TICK_SECONDS
        if now >= late and not self._collected and self._all_held(session):
            # Trainers turn the collector off; arrays in cycles then keep their frames.
            self._collected = True
            gc.collect()
        for reap in reapers:
            if reap():
                tick = min(tick, _COPIES_SECONDS)
        session.wait(min(tick, self.deadline - now), awake=first)
        return self._due(late)

    def _due(self, late: float) -> bool:
        now = time.monotonic()
        if now < late or now - self._reported_at < 1.0:
            return False
        self._reported_at = now
        return True

    def _all_held(self, session: Session) -> bool:
        return len({hold.step for hold in session.held_now()}) >= session.credits

    def _error(self, session: Session) -> StepTimeoutError:
        where = f"step {self._step} did not arrive from {self._options.socket} within"
        where += f" {self._options.timeout:g} s"
        if self._all_held(session):
            holds = session.held_now()
            listed = ", ".join(map(str, holds[:_LISTED_MAX]))
            more = f" and {len(holds) - _LISTED_MAX} more" if len(holds) > _LISTED_MAX else ""
            return FramesHeldError(
                f"{where}: held_frames: this rank holds all its {session.credits} credits: "
                f"{listed}{more}; drop arrays of earlier steps, or pass credits= or copy=True",
                step=self._step,
            )
        remedy = _REMEDIES.get(self.cause.split(":")[0], "see the daemon's log")
        return StepTimeoutError(f"{where}: {self.cause}; {remedy}", step=self._step)
