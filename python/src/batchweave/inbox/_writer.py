"""The writer: rows in, files of an inbox out, each row once."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from batchweave.inbox._core import Phase
from batchweave.inbox._drive import Driver
from batchweave.inbox._lag import Lag
from batchweave.inbox._steps import Row, Step, StepShape
from batchweave.inbox._uploader import Uploader
from batchweave.inbox.errors import (
    BadRowError,
    InboxArgumentError,
    InboxError,
    WriterClosedError,
    WriterEndedError,
)

_log = logging.getLogger("batchweave")
STATE_BYTES_MAX = 4096
_AT_ONCE = contextlib.nullcontext()

MakeRows = Callable[[Any], Iterable[Row | Step | tuple[Row | Step, Any]]]


class Writer:
    """Writes rows into an inbox; made by `batchweave.inbox.open`.

    Any thread may call it. One process per name writes at a time: of two, one gets a
    `WriterFencedError`, and no acknowledged row is lost.
    """

    def __init__(
        self,
        driver: Driver,
        place: str,
        name: str,
        *,
        file_bytes: int,
        linger: float,
        shape: StepShape | None = None,
        lag: Lag | None = None,
    ) -> None:
        self.name = name
        self.place = place
        """The writer's folder, as a URL or a path."""
        self._driver, self._shape, self._lag = driver, shape, lag
        step_rows = shape.rows if shape else 0
        self._uploader = Uploader(driver, name, file_bytes, linger, step_rows)
        self._first = self._uploader.next_row
        self._is_closed = False
        self._pid = os.getpid()
        # The thread has no reference to this object, so that a forgotten writer ends.
        self._forgotten = weakref.finalize(self, _abandon, self._uploader, lag, self._pid)

    @property
    def next_row(self) -> int:
        """The number of the next row that is put. Rows of a writer are numbered from 0 on."""
        return self._uploader.next_row

    @property
    def durable_rows(self) -> int:
        """The number of rows that are durable: rows 0 to `durable_rows` - 1, each once."""
        return self._uploader.durable_rows

    @property
    def state(self) -> Any:
        """The newest durable state, as given to `put`; None before the first."""
        return json.loads(self._driver.core.state)

    @property
    def state_row(self) -> int:
        """The number of rows that were put when `state` was given."""
        return self._driver.core.state_row

    @property
    def ended(self) -> bool:
        """Whether the writer has ended: `put` then raises a `WriterEndedError`."""
        return self._driver.core.phase is Phase.ENDED

    def put(self, row: Row, state: Any = None) -> None:
        """Adds a row. It is durable when `durable_rows` is above its number, or after `flush`.

        `row`: a dict with the columns of all rows of this writer; its values are copied. `state`:
        the caller's position *after* this row, anything that JSON has, at most 4 KiB; it becomes
        durable together with the row. None keeps the one before.
        Waits while two files of `file_bytes` are uploaded or wait, and while `lag` is above
        `max_lag_steps`.
        Raises a `BadRowError` for a row of another form, and the writer goes on without it. Raises
        the failure of the upload, where there was one.
        """
        self._check_open("put a row")
        if self._shape is not None:
            raise InboxArgumentError(
                f"put() on the writer {self.name} of whole steps ({self._shape}): use put_step()"
            )
        self._check_not_ended()
        text = None if state is None else _json(state)
        with self._due():
            self._uploader.put(row, text)

    def put_step(self, slices: Step, state: Any = None) -> None:
        """Adds a whole global batch, which a producer in mode "opaque" makes one step of.

        `slices`: a list of slices, each a list of rows, as many as `slices=` and `rows_per_slice=`
        of `open`. All rows of a step are in one file, durable together. `state`: as in `put`, the
        position after this step.
        Waits as `put` does. Raises a `BadRowError` for a step of another shape, or with a row that
        cannot be stored, and the writer goes on without that step.
        """
        self._check_open("put a step")
        if self._shape is None:
            raise InboxArgumentError(
                f"put_step() on the writer {self.name} of rows: open it with slices= and "
                "rows_per_slice=, as the stream has them"
            )
        self._check_not_ended()
        rows = self._shape.rows_of(slices)
        text = None if state is None else _json(state)
        with self._due():
            self._uploader.put_step(rows, text)

    @property
    def lag(self) -> int:
        """The number of steps that are trained before the step of the row that is put next.

        At most 5 s old; waits for an answer where there is none. Raises a `LagUnknownError` after
        the writer's deadline. Needs `stream=` of `open`.
        """
        self._check_open("read the lag")
        if self._lag is None:
            raise InboxArgumentError("the lag needs the stream: open the writer with stream=")
        return self._lag.read(self.next_row)

    def wait_for_lag(self, timeout: float | None = None) -> bool:
        """Waits until `lag` is at most `max_lag_steps`, as `put` does. Returns whether it is.

        Call it before a sample is made, with the policy that is loaded behind it: then the steps
        that are trained while `put` waits do not make the sample older. With `timeout` (seconds) it
        returns False when the lag is too large until then, as after the end of training. Without an
        answer about the lag it waits for the writer's deadline whatever `timeout` is, and raises a
        `LagUnknownError`.
        """
        self._check_open("wait for the lag")
        if self._lag is None or self._lag.most is None:
            raise InboxArgumentError("wait_for_lag() needs a bound: open with max_lag_steps=")
        if timeout is not None and not 0 <= timeout <= threading.TIMEOUT_MAX:
            raise InboxArgumentError(f"timeout={timeout!r}: give a number of seconds, or None")
        return self._lag.is_due(lambda: self.next_row, self._uploader.check, timeout)

    def flush(self) -> None:
        """Waits until every row that was put is durable.

        Raises a `WriterFencedError`, a `StoreRefusedError` or a `StoreNotAnsweringError`. After
        the last two the rows are still here, and another `flush` goes on where this one stopped.
        """
        self._check_open("flush")
        self._uploader.flush()

    def resume(self, make_rows: MakeRows) -> int:
        """Writes the rows of a source that makes the same rows again, without those that are there.

        `make_rows(state)`: yields the rows from `state` on, as rows or as pairs of a row and the
        state after it; at the first start, and as long as it yields no states, `state` is None and
        it begins at row 0. A writer of steps takes steps, each a list, in place of rows. What is
        durable is dropped. Flushes; returns the number of rows that were written.
        """
        self._check_open("resume")
        if self.next_row != self._first:
            raise InboxArgumentError("resume() after put(): call it first, or once per open")
        number = self.state_row
        for made in make_rows(self.state):
            row, state = made if isinstance(made, tuple) else (made, None)
            if number >= self._first:
                (self.put if self._shape is None else self.put_step)(row, state)
            number += 1 if self._shape is None else self._shape.rows
        if number < self._first:
            raise BadRowError(
                f"the source made rows up to {number}, and {self._first} are in {self.place}: it "
                "must make the same rows at every start"
            )
        self.flush()
        return self.next_row - self._first

    def close(self) -> None:
        """Flushes, and ends the thread. The writer's next process continues where this one ends.

        Raises as `flush` does; the writer is closed then, too. A second call does nothing.
        """
        if self._is_closed or self._pid != os.getpid():
            return
        try:
            if not self.ended:
                self._uploader.flush()
        finally:
            self._is_closed = True
            if self._lag is not None:
                self._lag.stop()
            self._forgotten.detach()
            self._uploader.stop()

    def finish(self) -> None:
        """Flushes, marks the writer as ended for good, and closes it.

        Raises as `flush` does. The mark is the object `end` in the writer's folder.
        """
        if not self._is_closed:
            self.flush()
            self.close()
        if self._driver.core.phase is Phase.READY:
            self._driver.core = self._driver.core.finish()
        self._driver.run()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        # Rows that were put before the error count, but the error is what the caller must see.
        try:
            self.close()
        except InboxError as failure:
            _log.warning("inbox writer %s could not be flushed: %s", self.name, failure)

    def __repr__(self) -> str:
        closed = ", ended" if self.ended else ", closed" if self._is_closed else ""
        rows = f"{self.durable_rows} of {self.next_row} rows durable"
        return f"<Writer {self.name!r} in {self.place}: {rows}{closed}>"

    def _due(self) -> contextlib.AbstractContextManager[None]:
        if self._lag is None or self._lag.most is None:
            return _AT_ONCE
        return self._lag.due(lambda: self.next_row, self._uploader.check)

    def _check_not_ended(self) -> None:
        if self.ended:
            raise WriterEndedError(
                f"the writer {self.name} in {self.place} has ended with {self.durable_rows} rows: "
                "write more rows under another name"
            )

    def _check_open(self, what: str) -> None:
        if self._pid != os.getpid():
            raise WriterClosedError(
                f"cannot {what}: this process inherited the writer {self.name} by a fork; open one "
                "of another name in the child"
            )
        if self._is_closed:
            raise WriterClosedError(f"cannot {what}: the writer {self.name} is closed")


def _abandon(uploader: Uploader, lag: Lag | None, pid: int) -> None:
    """Ends the threads of a writer that was never closed."""
    if pid != os.getpid():
        return  # a forked child: the threads and their locks are its parent's
    if lag is not None:
        lag.stop()
    uploader.abandon()


def _json(state: Any) -> str:
    try:
        text = json.dumps(state, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as reason:
        raise BadRowError(f"the state has no form in JSON: {reason}") from None
    if size > STATE_BYTES_MAX:
        raise BadRowError(
            f"the state has {size:,} bytes of JSON, at most {STATE_BYTES_MAX:,}: keep a position "
            "in it, not data"
        )
    return text
