"""Carries out the requests of the state machine, with retries, and names its failures."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from typing import Any, NamedTuple

from batchweave.inbox._core import Core, Create, CreateEnd, Delete, List, Phase, Read
from batchweave.inbox._files import read_footer
from batchweave.inbox._store import END, ExistsError, Store, TransientError, file_name
from batchweave.inbox.errors import (
    InboxDamagedError,
    InboxError,
    StoreNotAnsweringError,
    StoreRefusedError,
    WriterFencedError,
)

_log = logging.getLogger("batchweave")


class Backoff(NamedTuple):
    """Seconds between attempts: the upper bound of the first pause, and of any."""

    first: float = 0.05
    most: float = 5.0
    warn_after: float = 3.0


BACKOFF = Backoff()


class Driver:
    """One instance of a writer with its store. Used by one thread at a time."""

    def __init__(self, store: Store, writer: str, core: Core, deadline: float) -> None:
        self.core = core
        self.schema: Any = None
        """The schema of the newest file at the start."""
        self.step_rows: int | None = None
        """The rows of a step in that file, 0 for a file of rows; None without a file."""
        self._store, self._writer, self._deadline = store, writer, deadline
        self._stop = threading.Event()

    def stop(self) -> None:
        """Lets `run` fail at its next pause."""
        self._stop.set()

    def restart(self) -> None:
        """Lets `run` pause again."""
        self._stop.clear()

    def run(self, data: bytes = b"") -> None:
        """Performs requests until the machine has none; `data` is the file to put.

        Raises for a final phase, for a refusal, and when the store has not given a definite answer
        for `deadline` seconds. After the last two, another call goes on with the same request.
        """
        attempt, began, warned = 0, time.monotonic(), False
        why = f"{self._store.place} contradicts itself: it lists a file and does not have it"
        while self.core.request is not None:
            before = self.core
            try:
                is_answered = self._perform(data)
            except TransientError as reason:
                is_answered, why = False, str(reason)
            if is_answered and self.core.phase is not before.phase:
                continue
            # An answer that changed nothing, a file that was there and is gone, or none at all.
            attempt += 1
            waited = time.monotonic() - began
            # Two, so that every call puts once, also after one that gave up before its read.
            if (waited > self._deadline and attempt > 1) or self._stop.is_set():
                raise StoreNotAnsweringError(
                    f"{why}; gave up after {waited:.0f} s and {attempt} attempts: check the store, "
                    "its endpoint and the network; flush() tries again"
                )
            if waited > BACKOFF.warn_after and not warned:
                _log.warning("inbox writer %s retries: %s", self._writer, why)
                warned = True
            pause = min(BACKOFF.most, BACKOFF.first * 2 ** min(attempt, 16))
            self._stop.wait(random.uniform(0, pause))
        if (failure := self._failure()) is not None:
            raise failure

    def _perform(self, data: bytes) -> bool:
        """Performs one request; returns whether to go on at once, and not after a pause."""
        match self.core.request:
            case List(after):
                self.core = self.core.listed(self._store.numbers(after))
            case Read(number):
                footer = read_footer(self._store, self._writer, number)
                if footer is not None and self.core.phase is Phase.OPEN_READ:
                    self.schema, self.step_rows = footer.schema, footer.step_rows
                self.core = self.core.found(None if footer is None else footer.file)
                return footer is not None
            case Delete(number):
                self._delete_late(file_name(number))
            case Create(file):
                self._put(file_name(file.number), data)
            case CreateEnd():
                self._put(END, self._end())
                return self.core.phase is Phase.ENDED
        return True

    def _delete_late(self, name: str) -> None:
        """Deletes a file that was stored late. If that fails, the next open finds it again."""
        by, place = self.core.late_by, self._store.place
        why = f"{name} in {place} was stored late, by a replaced process (instance {by})"
        try:
            self._store.delete(name)
        except (TransientError, StoreRefusedError) as reason:
            _log.warning(
                "inbox writer %s: %s, and cannot be deleted (%s): delete it by hand, none of its "
                "rows was reported as durable",
                self._writer,
                why,
                reason,
            )
        else:
            _log.warning(
                "inbox writer %s: %s: deleted, none of its rows was reported as durable",
                self._writer,
                why,
            )
        self.core = self.core.deleted()

    def _put(self, name: str, data: bytes) -> None:
        before = self.core
        try:
            self._store.create(name, data)
        except ExistsError:
            self.core = self.core.exists()
        except TransientError:
            self.core = self.core.unknown()
            raise
        else:
            self.core = self.core.created()
            if self.core.phase is before.phase:
                # The probe: the same PUT again, which must be refused.
                self._put(name, data)

    def _end(self) -> bytes:
        core = self.core
        said = {"instance": core.instance, "files": core.newest + 1, "rows": core.rows}
        return json.dumps(said).encode() + b"\n"

    def _failure(self) -> InboxError | None:
        core, place = self.core, self._store.place
        match core.phase:
            case Phase.FENCED if core.other == "end":
                return WriterFencedError(
                    f"another process has ended the writer {self._writer} in {place}; this one "
                    f"stops: rows from {core.rows} on are not durable, start a writer of another "
                    "name for them"
                )
            case Phase.FENCED:
                by = f" (instance {core.other})" if core.other else ""
                return WriterFencedError(
                    f"another process{by} writes as {self._writer} in {place}; this one stops: "
                    f"rows from {core.rows} on are its own; run one process per writer's name. If "
                    "no other one runs, a predecessor's last upload arrived late: start again"
                )
            case Phase.MISSING:
                name = file_name(core.missing)
                return InboxDamagedError(
                    f"{place} misses {name}, and has newer or should have it: restore the file "
                    "(from the backup, or with the lifecycle rule that deleted it turned off); if "
                    "producers have read it, open with allow_gaps=True",
                    key=name,
                )
            case Phase.NOT_EXCLUSIVE:
                return StoreRefusedError(
                    f"the store of {place} replaces existing objects in a create-only PUT "
                    "(If-None-Match: *): two writers could overwrite each other's rows; use a "
                    "store that honours it",
                    remedy="use a store that honours If-None-Match: *",
                )
            case _:
                return None
