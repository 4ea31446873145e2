"""Checkpoint marks until the daemon has stored or refused them; sent again in new sessions."""

from __future__ import annotations

import contextlib
import logging
from collections import deque

from batchweave import _wire
from batchweave._reports import Reports
from batchweave._session import Session
from batchweave.errors import BatchWeaveError, MarkNotStoredError, MarkRefusedError

_log = logging.getLogger("batchweave")

# Most marks kept; beyond it the oldest are dropped, because newer ones replace them.
_MARKS_MAX = 64


class Marks:
    """The marks of a reader. Any thread may add one; each operation on the containers is atomic."""

    def __init__(self) -> None:
        self._waiting: dict[int, bytes] = {}
        self._refused: deque[MarkRefusedError] = deque(maxlen=_MARKS_MAX)

    def add(self, step: int, text: bytes) -> None:
        """Records a mark; send it afterwards, so that a concurrent reconnect does not miss it."""
        self._waiting[step] = text
        while len(self._waiting) > _MARKS_MAX:
            with contextlib.suppress(KeyError, RuntimeError):
                self._waiting.pop(next(iter(self._waiting)))

    def send_again(self, session: Session, reports: Reports) -> None:
        """Sends all marks in a new session, behind the reports before them."""
        for step, text in list(self._waiting.items()):
            reports.mark(session, _wire.checkpoint(step, text))
        reports.send(session)

    def stored(self, step: int) -> None:
        """Removes the mark of `step`, which the daemon has stored."""
        self._waiting.pop(step, None)

    def refused(self, why: BatchWeaveError) -> None:
        """Removes and logs a refused mark; keeps the error if the trainer caused it."""
        if why.step is not None:
            self._waiting.pop(why.step, None)
        _log.warning("a checkpoint is not a restart point: %s", why)
        if isinstance(why, MarkRefusedError) and not isinstance(why, MarkNotStoredError):
            self._refused.append(why)

    def raise_refusal(self) -> None:
        """Raises the oldest refusal that was not raised yet."""
        why = None
        with contextlib.suppress(IndexError):
            why = self._refused.popleft()
        if why is not None:
            raise why

    def unconfirmed(self) -> list[int]:
        """Returns the steps of marks that are neither stored nor refused."""
        return sorted(self._waiting)
