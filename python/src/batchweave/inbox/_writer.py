"""The writer: rows in, files of an inbox out, each row once."""

from __future__ import annotations

import json
import logging
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

from batchweave.inbox._core import Phase
from batchweave.inbox._drive import Driver
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

Row = Mapping[str, Any]
MakeRows = Callable[[Any], Iterable[Row | tuple[Row, Any]]]


class Writer:
    """Writes rows into an inbox; made by `batchweave.inbox.open`.

    Any thread may call it. One process per name writes at a time: of two, one gets a
    `WriterFencedError`, and no acknowledged row is lost.
    """

    def __init__(
        self, driver: Driver, place: str, name: str, *, file_bytes: int, linger: float
    ) -> None:
        self.name = name
        self.place = place
        """The writer's folder, as a URL or a path."""
        self._driver = driver
        self._uploader = Uploader(driver, name, file_bytes, linger)
        self._first = self._uploader.next_row
        self._is_closed = False
        self._pid = os.getpid()
        # The thread has no reference to this object, so that a forgotten writer ends.
        self._forgotten = weakref.finalize(self, self._uploader.abandon)

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
        Waits while two files of `file_bytes` are uploaded or wait.
        Raises a `BadRowError` for a row of another form, and the writer goes on without it. Raises
        the failure of the upload, where there was one.
        """
        self._check_open("put a row")
        if self.ended:
            raise WriterEndedError(
                f"the writer {self.name} in {self.place} has ended with {self.durable_rows} rows: "
                "write more rows under another name"
            )
        self._uploader.put(row, None if state is None else _json(state))

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
        it begins at row 0. Rows that are durable are dropped. Flushes; returns the number of rows
        that were written.
        """
        self._check_open("resume")
        if self.next_row != self._first:
            raise InboxArgumentError("resume() after put(): call it first, or once per open")
        number = self.state_row
        for made in make_rows(self.state):
            row, state = made if isinstance(made, tuple) else (made, None)
            if number >= self._first:
                self.put(row, state)
            number += 1
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

    def _check_open(self, what: str) -> None:
        if self._pid != os.getpid():
            raise WriterClosedError(
                f"cannot {what}: this process inherited the writer {self.name} by a fork; open one "
                "of another name in the child"
            )
        if self._is_closed:
            raise WriterClosedError(f"cannot {what}: the writer {self.name} is closed")


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
