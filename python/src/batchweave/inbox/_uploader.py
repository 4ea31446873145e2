"""The rows that wait, and the thread that makes files of them and uploads these one by one."""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from batchweave.inbox._columns import Kind
from batchweave.inbox._core import Phase
from batchweave.inbox._drive import Driver
from batchweave.inbox._files import encode
from batchweave.inbox._rows import Rows, table_of
from batchweave.inbox.errors import InboxError, StoreNotAnsweringError, StoreRefusedError

_log = logging.getLogger("batchweave")
_RETRIED = (StoreRefusedError, StoreNotAnsweringError)


class Batch(NamedTuple):
    """The rows of one file."""

    kinds: dict[str, Kind]
    columns: dict[str, list[Any]]
    rows: int
    state: str
    state_row: int


class Uploader:
    """At most three files are in memory: one that is uploaded, one that waits, one that fills."""

    def __init__(
        self, driver: Driver, writer: str, file_bytes: int, linger: float, step_rows: int
    ) -> None:
        self._driver, self._writer, self._step_rows = driver, writer, step_rows
        self._file_bytes, self._linger = file_bytes, linger
        core = driver.core
        self.next_row = self._sealed_to = self._flush_to = core.rows
        self._state, self._state_row = core.state, core.state_row
        self._rows = Rows(file_bytes)
        if driver.schema is not None:
            self._rows.continue_schema(driver.schema)
        self._oldest = 0.0
        """When the first of the buffered rows was put, on the monotonic clock."""
        self._waiting: Batch | None = None
        self._failure: BaseException | None = None
        self._stopping = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"inbox {writer}", daemon=True)
        self._is_started = False

    @property
    def durable_rows(self) -> int:
        """Rows that are acknowledged."""
        return self._driver.core.rows

    def put(self, row: Mapping[str, Any], state: str | None) -> None:
        """Buffers a row; waits while a full file is buffered and another one waits."""
        with self._changed:
            self._raise_failure()
            values, size = self._rows.converted(row)
            self._make_room(size)
            self._rows.add(values, size)
            self._added(1, state)

    def put_step(self, rows: Sequence[Mapping[str, Any]], state: str | None) -> None:
        """Buffers the rows of a step, all of them into one file; waits as `put` does."""
        with self._changed:
            self._raise_failure()
            converted, total = self._rows.converted_step(rows)
            self._make_room(total)
            for values, size in converted:
                self._rows.add(values, size)
            self._added(len(rows), state)

    def _make_room(self, size: int) -> None:
        while self._rows.count and self._rows.bytes + size > self._file_bytes:
            if self._waiting is None:
                self._seal()
                break
            self._changed.wait()
            self._raise_failure()
        if not self._rows.count:
            self._oldest = time.monotonic()

    def _added(self, count: int, state: str | None) -> None:
        self.next_row += count
        if state is not None:
            self._state, self._state_row = state, self.next_row
        if self._rows.count == count:
            self._wake()

    def check(self) -> None:
        """Raises the failure of the upload, where there was one."""
        with self._changed:
            self._raise_failure()

    def flush(self) -> None:
        """Waits until all rows that were put before are durable; tries again after a refusal."""
        with self._changed:
            target = self.next_row
            if isinstance(self._failure, _RETRIED):
                self._failure = None
            self._flush_to = max(self._flush_to, target)
            if self.durable_rows < target:
                self._wake()
            while self.durable_rows < target:
                self._raise_failure()
                self._changed.wait()

    def stop(self) -> None:
        """Ends the thread; rows that are not durable are given up."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._driver.stop()
        if self._is_started:
            self._thread.join()
        self._driver.restart()

    def abandon(self) -> None:
        """Ends the thread of a writer that was never closed."""
        if lost := self.next_row - self.durable_rows:
            _log.warning(
                "inbox writer %s was not closed: %d rows are not known to be durable; use `with`, "
                "or call close()",
                self._writer,
                lost,
            )
        self.stop()

    def _wake(self) -> None:
        if not self._is_started:
            self._is_started = True
            self._thread.start()
        self._changed.notify_all()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            # The same object would collect the tracebacks of all calls.
            raise copy.copy(self._failure) from self._failure

    def _seal(self) -> None:
        count = self._rows.count
        kinds, columns = self._rows.take()
        self._waiting = Batch(kinds, columns, count, self._state, self._state_row)
        self._sealed_to += count
        self._changed.notify_all()

    def _run(self) -> None:
        while (batch := self._next_batch()) is not None:
            data = b""
            while True:
                try:
                    data = data or self._begin(batch)
                    self._driver.run(data)
                    break
                except BaseException as failure:
                    if not isinstance(failure, InboxError):
                        _log.exception("inbox writer %s failed", self._writer)
                    if not self._wait_after(failure):
                        return
            with self._changed:
                self._changed.notify_all()

    def _begin(self, batch: Batch) -> bytes:
        core = self._driver.core
        if core.phase is Phase.READY:
            core = self._driver.core = core.submit(batch.rows, batch.state, batch.state_row)
        assert core.pending is not None
        table = table_of(batch.kinds, batch.columns)
        return encode(table, self._writer, core.pending, self._step_rows)

    def _next_batch(self) -> Batch | None:
        with self._changed:
            while self._waiting is None:
                if self._stopping:
                    return None
                wait = None
                if self._rows.count:
                    wait = self._oldest + self._linger - time.monotonic()
                    if wait <= 0 or self._flush_to > self._sealed_to:
                        self._seal()
                        break
                self._changed.wait(wait)
            batch, self._waiting = self._waiting, None
            self._changed.notify_all()
            return batch

    def _wait_after(self, failure: BaseException) -> bool:
        """Keeps the failure for the callers; returns whether to try again."""
        with self._changed:
            self._failure = failure
            self._changed.notify_all()
            while self._failure is not None and not self._stopping:
                self._changed.wait()
            return not self._stopping
