"""Warnings of a reader that waits: the cause and the remedy, after seconds and again at intervals.

They go to the logger `batchweave`, so that a rank that waits says why before its timeout. The
causes are those of docs/socket.md, from the daemon or found here.
"""

from __future__ import annotations

import logging
import time
from typing import NamedTuple

from batchweave._connect import Options
from batchweave._holds import Hold, listed

_log = logging.getLogger("batchweave")


class Intervals(NamedTuple):
    """Seconds: until the first and second warning of a wait, then between two warnings.

    `stuck`: how long a rank holds all that it may before a wait that nothing can end is an error.
    """

    first: float = 3.0
    second: float = 30.0
    later: float = 60.0
    stuck: float = 5.0


INTERVALS = Intervals()

_MEMORY = "drop batches and their arrays of earlier steps, or raise arena.bytes of the daemon"

# By cause: what it means to a trainer, and what to do.
_CAUSES = {
    "producing": (
        "no producer has committed it yet",
        "check that producers run and that no slower job or rank holds them back: "
        "`batchweave status`",
    ),
    "fetching": (
        "the daemon is fetching it from the store",
        "see the daemon's log and its metrics of the store",
    ),
    "store_unavailable": (
        "the store does not answer the daemon, which retries",
        "check the store's endpoint, network and credentials",
    ),
    "arena_full": ("the daemon's memory is in use by ranks", _MEMORY),
    "held_frames": ("this rank holds all steps of its credits", _MEMORY),
    "backpressure": ("it is fetched late, because ranks held the daemon's memory", _MEMORY),
    "attempt_not_open": (
        "global rank 0 has not begun the attempt",
        "check that global rank 0 runs, reaches its daemon and has the same attempt",
    ),
    "daemon_starting": ("the daemon is starting", "see the daemon's log"),
    "daemon_restarting": ("the daemon is gone", "restart batchweave-consumer"),
    "job_not_open": (
        "the job is not open",
        "open it with `batchweave job open NAME`, or set job.open in the daemon's config",
    ),
}
NO_DAEMON = "no_daemon"
"""The cause of a first connection without a daemon; never in `Reader.cause`."""
RELEASE = (
    "drop each batch before the next, keep copies (copy=True), or raise credits= "
    "(and the daemon's arena.bytes, where those do not fit)"
)


def remedy_of(cause: str) -> str:
    """Returns the remedy for a cause, whose details follow a colon."""
    return _CAUSES.get(cause.partition(":")[0], ("", "see the daemon's log"))[1]


class Late:
    """The warnings of one reader. A wait that lasts has several, many short ones share them."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._last = float("-inf")
        self._count = 0
        self._named: set[str] = set()

    def waits(self, since: float, step: int, cause: str, held: list[Hold]) -> None:
        """Notes a wait for a step, and warns if that is due; `held` are frames that cause it."""
        if not self._due(since, "held_frames" if held else cause):
            return
        if held:
            self._warn(since, step, f"this rank holds {listed(held)}{_others(cause)}; {RELEASE}")
            return
        meaning, remedy = _CAUSES.get(cause.partition(":")[0], ("", "see the daemon's log"))
        why = f"{meaning} ({cause})" if meaning else cause
        # Messages of the store have a remedy of their own.
        self._warn(since, step, why if "; check " in cause else f"{why}; {remedy}")

    def has_no_session(self, since: float, step: int, cause: str, *, first: bool) -> None:
        """Notes a wait for a session; `first` if there never was one."""
        name = cause.partition(":")[0]
        if name in _CAUSES:
            self.waits(since, step, cause, [])
        elif self._due(since, NO_DAEMON if first else "daemon_restarting"):
            remedy = (
                "start batchweave-consumer, or name its socket in BATCHWEAVE_SOCKET or socket="
                if first
                else "restart batchweave-consumer; the reader continues at its step"
            )
            place = f"no consumer daemon answers at {self._options.socket}"
            self._warn(since, step, f"{place} ({cause}); {remedy}")

    def _due(self, since: float, cause: str) -> bool:
        now, between = time.monotonic(), INTERVALS
        if now - since < between.first:
            return False
        name = cause.partition(":")[0]
        quiet = now - self._last
        if quiet >= 2 * between.later:
            self._count = 0
            self._named.clear()
        gap = (0.0, between.second - between.first, between.later)[min(self._count, 2)]
        # Another cause is news, but two that alternate are not.
        if quiet < gap and (name in self._named or quiet < between.first):
            return False
        self._named.add(name)
        self._last, self._count = now, self._count + 1
        return True

    def _warn(self, since: float, step: int, why: str) -> None:
        options = self._options
        job = "" if options.job is None else f" of job {options.job}"
        rank = f" (rank {options.dp_rank} of {options.dp_size})" if options.dp_size > 1 else ""
        seconds = time.monotonic() - since
        _log.warning("waiting %.0f s for step %d%s%s: %s", seconds, step, job, rank, why)


def _others(cause: str) -> str:
    """Returns a daemon's cause beside the frames of this rank, unless it says the same."""
    return "" if cause.startswith(("held_frames", "the daemon gave")) else f" ({cause})"
