"""Opening a session: connect, send hello, wait for the daemon's welcome, all before a deadline."""

from __future__ import annotations

import errno
import logging
import platform
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchweave import _wire
from batchweave._events import Event, Lost
from batchweave._launch import socket_places
from batchweave._session import Session
from batchweave._stages import Stage
from batchweave._stopping import StopRequest
from batchweave.errors import (
    AttemptNotOpenedError,
    BadMessageError,
    BatchWeaveError,
    DaemonGoneError,
    JobNotOpenError,
    NoDaemonError,
    SystemRefusedError,
)

__version__ = "0.1.0"

_log = logging.getLogger("batchweave")

_PAUSE_FIRST, _PAUSE_MAX = 0.005, 0.25
# Failures that may pass: no socket yet, no listener, or a full queue.
_PASSING = {
    errno.ENOENT: "there is no such socket",
    errno.ECONNREFUSED: "no daemon listens on the socket",
    errno.EAGAIN: "the daemon accepts no connections (its queue is full)",
    errno.ECONNRESET: "the daemon closed the connection",
    errno.EPIPE: "the daemon closed the connection",
}


@dataclass(frozen=True)
class Options:
    """The constants of a reader."""

    socket: str
    job: str | None
    dp_rank: int
    dp_size: int
    global_rank: int | None
    attempt: str | None
    parent: dict[str, Any] | None
    """The attempt and step of the state that this rank starts from, in the form of hello."""
    credits: int
    copy: bool
    timeout: float
    slices: int | None
    seq_len: int | None
    rows_per_slice: int | None
    on_stage: Callable[[Stage | None], object] | None = None
    """Called before a batch is returned whose stage is not that of the batch before."""
    limit: int | None = None
    """The number of steps to read, from the first one or the last seek on."""
    begin: str | None = None
    """Without a stated position: "unstated", or "latest" for the newest restart point."""
    yields: bool = False
    """Whether the attempt ends no other that runs on this node."""
    shared: bool = False
    """Whether other ranks read the same coordinate."""
    split_rows: int = 1
    """The number of ranks that share a slice, each with an equal part of its rows."""

    @property
    def part(self) -> int:
        """The index of this rank's part of a slice's rows."""
        return self.dp_rank % self.split_rows


class Unserved(Exception):  # noqa: N818 - not an error yet: the caller knows which one
    """The deadline passed without a welcome; the text is the last cause."""


def unserved(options: Options, cause: str, position: int | None) -> BatchWeaveError:
    """Returns the error for `Unserved`; `position` is None when there never was a daemon."""
    place = f"{options.socket} ({cause})"
    if cause.startswith("attempt_not_open"):
        return AttemptNotOpenedError(
            f"attempt {options.attempt} of job {options.job} did not begin in time: the daemon at "
            f"{place} waits for global rank 0's; check that global rank 0 runs, reaches its daemon "
            "and has the same attempt"
        )
    if cause.startswith("job_not_open"):
        return JobNotOpenError(
            f"job {options.job} was not opened in time, says the daemon at {place}; open it with "
            f"`batchweave job open {options.job}`, or set job.open in the daemon's config"
        )
    if position is None:
        return NoDaemonError(
            f"no consumer daemon answers at {place} within the connect timeout; start "
            "batchweave-consumer (or `batchweave run`), or name its socket in BATCHWEAVE_SOCKET or "
            "socket="
        )
    return DaemonGoneError(
        f"daemon_restarting: the consumer daemon at {place} disconnected before step {position} "
        f"and did not return within {options.timeout:g} s; restart it and read again, or resume "
        "from the saved state",
        step=position,
    )


def hello(options: Options, **of_session: Any) -> bytes:
    """Returns a session's hello; `of_session`: mode, next_step, stream, replaces, mapped_bytes."""
    client = f"batchweave-python {__version__}, Python {platform.python_version()}"
    fields = {
        "client": f"{client}, numpy {np.__version__}",
        "job": options.job,
        "attempt": options.attempt,
        "parent": options.parent,
        # Ranks that share a slice are one coordinate to the daemon.
        "dp_rank": options.dp_rank // options.split_rows,
        "dp_size": options.dp_size // options.split_rows,
        "global_rank": options.global_rank,
        "credits": options.credits,
        "slices": options.slices,
        "seq_len": options.seq_len,
        "rows_per_slice": options.rows_per_slice,
        "forms": ["balanced", "stages"],
    }
    if options.shared:
        fields["shared"] = True
    return _wire.hello({**fields, **of_session})


def guards(options: Options) -> dict[str, Any]:
    """Returns the fields of a first hello that protect a job from this rank.

    An older daemon refuses them, see `open_session`.
    """
    found: dict[str, Any] = {"yields": True} if options.yields else {}
    if options.begin is not None:
        found["begin"] = options.begin
    return found


def open_session(
    path: str,
    greetings: list[bytes],
    next_step: int,
    deadline: float,
    opened: list[Session],
    waits: Callable[[str], None] = lambda _: None,
    stopping: StopRequest | None = None,
) -> tuple[Session, _wire.Welcome]:
    """Tries until the daemon sends a welcome or an error; raises `Unserved` at the deadline.

    `greetings` are the hello, and one for an older daemon that does not know all its fields.
    Each session is put into `opened` before anything is sent on it: the caller closes them when an
    interrupt loses the result. `waits` is called with the cause until the welcome comes; a stop
    request wakes it.
    """
    pause, cause = _PAUSE_FIRST, "the deadline was already over"
    while True:
        fresh, why = connected(path)
        cause = why or cause
        if fresh is not None:
            session = Session(fresh, next_step, stopping)
            opened.append(session)
            answer = _answer(path, session, greetings, deadline, waits)
            if answer is None:
                continue
            if isinstance(answer, _wire.Welcome):
                session.credits, session.slices = answer.credits, answer.slice_count
                session.instance = answer.instance
                return session, answer
            session.close()
            cause = answer
        waits(cause)
        left = deadline - time.monotonic()
        if left <= 0:
            raise Unserved(cause)
        (time.sleep if stopping is None else stopping.sleep)(min(pause, left))
        pause = min(pause * 2, _PAUSE_MAX)


def connected(path: str) -> tuple[socket.socket | None, str]:
    """Returns a connection to the first of the socket's places, or the cause that the first has."""
    cause, refused = "", None
    for place in socket_places(path):
        try:
            fresh, why = _connect_to(place)
        except SystemRefusedError as reason:
            refused = refused or reason
            continue
        if fresh is not None:
            return fresh, ""
        cause = cause or why
    if refused is not None:
        raise refused
    return None, cause


def _connect_to(path: str) -> tuple[socket.socket | None, str]:
    fresh = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        fresh.setblocking(False)
        fresh.connect(path)
    except OSError as reason:
        fresh.close()
        if reason.errno in _PASSING:
            return None, _PASSING[reason.errno]
        raise SystemRefusedError(
            f"cannot connect to the consumer daemon at {path}: {reason}; "
            "check the path, and the permissions of the socket and its folder"
        ) from reason
    except BaseException:
        fresh.close()
        raise
    return fresh, ""


def _answer(
    path: str,
    session: Session,
    greetings: list[bytes],
    deadline: float,
    waits: Callable[[str], None],
) -> _wire.Welcome | str | None:
    """Returns the daemon's answer; None if the next greeting is to be tried."""
    try:
        return _greet(session, greetings[0], deadline, waits)
    except BadMessageError as error:
        if len(greetings) == 1 or "unknown field" not in str(error):
            raise
    session.close()
    del greetings[0]
    _log.warning(
        "the daemon at %s is of an older release: it refuses neither a second attempt beside a "
        "running one nor a start without the saved state; install client and daemon of one release",
        path,
    )
    return None


def _greet(
    session: Session, greeting: bytes, deadline: float, waits: Callable[[str], None]
) -> _wire.Welcome | str:
    session.post(greeting)
    cause = "the daemon accepted the connection and does not answer"
    while True:
        found = session.receive()
        if isinstance(found, Lost):
            return "the daemon closed the connection"
        if found is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return cause
            waits(cause)
            session.wait(min(left, 0.5))
            continue
        session.event = None
        if isinstance(found, Event) and isinstance(found.value, _wire.Welcome):
            return found.value
        if isinstance(found, Event) and isinstance(found.value, BatchWeaveError):
            raise found.value
        if not isinstance(found, Event) or found.kind != _wire.WAITING:
            raise BadMessageError("the daemon sent data before its welcome; report it")
        cause = found.value[1]
