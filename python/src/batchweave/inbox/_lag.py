"""The lag of a writer: the number of steps that are trained before the row that is put next.

The arithmetic is pure: `answer_of` and `lag_steps`. `Lag` polls `batchweave inbox ls` on a thread
while rows are put or the lag is read, and lets `put` wait.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from batchweave import _programs
from batchweave.errors import BatchWeaveError
from batchweave.inbox.errors import InboxArgumentError, LagUnknownError, WriterClosedError

_log = logging.getLogger("batchweave")


class Times(NamedTuple):
    """Seconds between polls, up to which an answer counts, after which a wait is logged, and for
    which a poll may take.
    """

    every: float = 0.5
    fresh: float = 5.0
    log_after: float = 3.0
    poll: float = 30.0


TIMES = Times()


class Answer(NamedTuple):
    """The state of a writer and its stream, as `batchweave inbox ls` reports it."""

    rows_committed: int
    """Rows from the writer's first one on that are in committed batches."""
    steps: int
    """Steps of the stream."""
    job_steps: int | None
    """Steps that the slowest open job has received; None without a job."""


def answer_of(report: Mapping[str, Any], writer: str) -> Answer:
    """Returns a writer's part of the report; without files, or without a stream, it is all zero.

    Raises a ValueError for a report of another form.
    """
    try:
        rows = [each["rows_committed"] for each in report["writers"] if each["name"] == writer] or [
            0
        ]
        stream = report["stream"] or {"steps": 0, "job_steps": None}
        answer = Answer(rows[0], stream["steps"], stream["job_steps"])
    except (KeyError, TypeError, AttributeError) as reason:
        raise ValueError(f"`batchweave inbox ls` printed another form: {reason!r}") from None
    for name, number in answer._asdict().items():
        optional = name == "job_steps" and number is None
        if not optional and (type(number) is not int or number < 0):
            raise ValueError(f"`batchweave inbox ls` printed {name}={number!r}")
    return answer


class Share(NamedTuple):
    """The rows of a step, and the number of writers that put alike."""

    rows_per_step: int
    writers: int


def lag_steps(answer: Answer, next_row: int, share: Share) -> int:
    """Returns the number of steps that are trained before the step of row `next_row`.

    These are the steps of the stream that the slowest job has not received, and the whole steps
    that this writer's rows before `next_row` become, with as many rows of each other writer. Rows
    that were committed since the answer are counted in the second part, so an old answer never
    makes the lag too small.
    """
    untrained = answer.steps - min(answer.job_steps or 0, answer.steps)
    waiting = max(0, next_row - answer.rows_committed) * share.writers
    return untrained + waiting // share.rows_per_step


class Lag:
    """Polls the state of one writer, and waits until its next row is due."""

    def __init__(
        self,
        ask: Callable[[float], Mapping[str, Any]],
        writer: str,
        share: Share,
        most: int | None,
        deadline: float,
    ) -> None:
        self.most = most
        """`max_lag_steps`; None where the lag is only read."""
        self._turn = threading.Lock()
        self._ask, self._writer = ask, writer
        self._share, self._deadline = share, deadline
        self._changed = threading.Condition()
        self._answer: Answer | None = None
        self._answered = 0.0
        """When the newest answer arrived, on the monotonic clock."""
        self._trouble = ""
        self._is_wanted = self._stopping = False
        self._thread: threading.Thread | None = None

    def read(self, next_row: int) -> int:
        """Returns the lag; waits for an answer where the newest one is old."""
        return self._wait(next_row, None, lambda: None)

    @contextlib.contextmanager
    def due(self, next_row: Callable[[], int], check: Callable[[], None]) -> Iterator[None]:
        """Waits until the lag is at most `max_lag_steps`; `check` raises where waiting is vain.

        Threads have their turns one by one, each with its put, so that they do not pass together.
        """
        with self._turn:
            self._wait(next_row(), self.most, check)
            yield

    def is_due(
        self, next_row: Callable[[], int], check: Callable[[], None], timeout: float | None
    ) -> bool:
        """Waits as `due` does, for `timeout` seconds at most; returns whether the row is due."""
        ends = None if timeout is None else time.monotonic() + timeout
        if not self._turn.acquire(timeout=-1 if timeout is None else timeout):
            return False
        try:
            lag = self._wait(next_row(), self.most, check, ends)
        finally:
            self._turn.release()
        return self.most is None or lag <= self.most

    def stop(self) -> None:
        """Ends the thread after the poll under way, and every wait."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def _wait(
        self,
        next_row: int,
        most: int | None,
        check: Callable[[], None],
        ends: float | None = None,
    ) -> int:
        """Waits for a lag of at most `most`. Returns it, or at `ends` the one that is too large."""
        began = unknown = time.monotonic()
        logs = True
        while True:
            check()
            with self._changed:
                if self._stopping:
                    raise WriterClosedError(f"the writer {self._writer} was closed")
                self._want()
                now, lag = time.monotonic(), self._fresh(next_row)
                is_over = ends is not None and now >= ends
                if lag is not None and (is_over or most is None or lag <= most):
                    return lag
                if lag is not None:
                    unknown = now
                # Not before a poll has failed: it has a time limit of its own.
                elif now - unknown >= self._deadline and self._trouble:
                    raise self._unknown_error(now - unknown)
                if logs and lag is not None and now - began >= TIMES.log_after:
                    logs = False
                    self._log_wait(lag)
                soon = unknown + self._deadline
                if ends is not None and not is_over:
                    soon = min(soon, ends)
                self._changed.wait(min(TIMES.every, max(0.01, soon - now)))

    def _fresh(self, next_row: int) -> int | None:
        if self._answer is None or time.monotonic() - self._answered > TIMES.fresh:
            return None
        return lag_steps(self._answer, next_row, self._share)

    def _want(self) -> None:
        """Requests another poll; without requests the thread makes none."""
        if not self._is_wanted:
            self._is_wanted = True
            self._changed.notify_all()
        if self._thread is None:
            name = f"inbox lag {self._writer}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_wanted and not self._stopping:
                    self._changed.wait()
                if self._stopping:
                    return
                self._is_wanted = False
            self._poll()
            with self._changed:
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._stopping, TIMES.every)

    def _poll(self) -> None:
        try:
            report = self._ask(TIMES.poll)
            answer = answer_of(report, self._writer)
        except (BatchWeaveError, ValueError) as reason:
            why = str(reason.args[0])
            if not self._trouble:
                _log.warning("inbox writer %s cannot read its lag: %s", self._writer, why)
            self._trouble = why
            return
        with self._changed:
            self._answer, self._answered, self._trouble = answer, time.monotonic(), ""

    def _log_wait(self, lag: int) -> None:
        assert self._answer is not None
        job = "no job is open" if self._answer.job_steps is None else "the job is slower"
        _log.info(
            "inbox writer %s waits: its next row would be trained %d steps from now, more than "
            "max_lag_steps=%d; %s",
            self._writer,
            lag,
            self.most,
            job,
        )

    def _unknown_error(self, seconds: float) -> LagUnknownError:
        return LagUnknownError(
            f"the lag of the writer {self._writer} is unknown for {seconds:.0f} s: "
            f"{self._trouble}; the row was not put, so put it again once "
            "`batchweave inbox ls` answers"
        )


_VARIABLES = {
    "endpoint": "AWS_ENDPOINT_URL",
    "region": "AWS_REGION",
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
}


def lag_of(
    inbox: str | os.PathLike[str],
    writer: str,
    stream: str | os.PathLike[str] | None,
    s3: Mapping[str, str | None],
    rows_per_step: int | None,
    writers: int,
    most: int | None,
    deadline: float,
) -> Lag | None:
    """Returns the lag of a writer with a stream, None for one without.

    Raises an InboxArgumentError for arguments that do not fit together, and a NoProgramError
    where `batchweave` is not installed.
    """
    if stream is None:
        if most is not None:
            raise InboxArgumentError(
                f'max_lag_steps={most!r} without the stream: give stream="s3://bucket/stream", too'
            )
        return None
    if not isinstance(stream, str | os.PathLike) or not os.fspath(stream):
        raise InboxArgumentError(
            f"stream={stream!r}: give the root of the stream, s3://bucket/stream or a path"
        )
    for name, count, least in (
        ("max_lag_steps", 0 if most is None else most, 0),
        ("writers", writers, 1),
        ("rows_per_step", rows_per_step, 1),
    ):
        if type(count) is not int or count < least:
            raise InboxArgumentError(
                f"{name}={count!r}: give a number from {least} on; rows_per_step is the most rows "
                "that a step takes, and follows from slices= and rows_per_slice= where they are "
                "given"
            )
    assert rows_per_step is not None
    _programs.find("batchweave")
    environment = {_VARIABLES[name]: value for name, value in s3.items() if value is not None}
    words = ["inbox", "ls", _place(inbox), "--writer", writer]

    def ask(seconds: float) -> Mapping[str, Any]:
        return _programs.ask(_root(stream), words, seconds, environment, remedy="")

    return Lag(ask, writer, Share(rows_per_step, writers), most, deadline)


def _place(location: str | os.PathLike[str]) -> str:
    """Returns the location of an inbox as the program takes it: a URL, or a local path."""
    text = os.fspath(location)
    if "://" in text:
        local = text.removeprefix("file://")
        return urllib.parse.unquote(local) if local != text else text
    return str(Path(text).absolute())


def _root(stream: str | os.PathLike[str]) -> str:
    text = os.fspath(stream)
    return text if "://" in text else f"file://{Path(text).absolute()}"
