"""Checkpoint marks until the daemon has stored or refused them; sent again in each new session."""

from __future__ import annotations

import contextlib
import logging
from collections import deque

from batchweave import _wire
from batchweave._session import Session
from batchweave.errors import BatchWeaveError, MarkNotStoredError, MarkRefusedError

_log = logging.getLogger("batchweave")

# A trainer that outruns the store so far loses its oldest marks, which newer ones replace.
_MARKS_MAX = 64


class Marks:
    """Adding is allowed in any thread; each operation on the containers is atomic."""

    def __init__(self) -> None:
        self._waiting: dict[int, bytes] = {}
        self._refused: deque[MarkRefusedError] = deque(maxlen=_MARKS_MAX)

    def add(self, step: int, text: bytes) -> None:
        """Notes a mark; send it afterwards, so that a reconnect in another thread can't miss it."""
        self._waiting[step] = text
        while len(self._waiting) > _MARKS_MAX:
            with contextlib.suppress(KeyError, RuntimeError):
                self._waiting.pop(next(iter(self._waiting)))

    def send_again(self, session: Session) -> None:
        """A new session has begun."""
        for step, text in list(self._waiting.items()):
            session.post(_wire.checkpoint(step, text))

    def stored(self, step: int) -> None:
        """The daemon has stored the mark of `step`."""
        self._waiting.pop(step, None)

    def refused(self, why: BatchWeaveError) -> None:
        """The daemon will not store the mark: told in the log, and raised if the trainer erred."""
        if why.step is not None:
            self._waiting.pop(why.step, None)
        _log.warning("a checkpoint is no restart point: %s", why)
        if isinstance(why, MarkRefusedError) and not isinstance(why, MarkNotStoredError):
            self._refused.append(why)

    def raise_refusal(self) -> None:
        """Raises the oldest refusal that nobody was told of yet."""
        why = None
        with contextlib.suppress(IndexError):
            why = self._refused.popleft()
        if why is not None:
            raise why

    def unconfirmed(self) -> list[int]:
        """The steps of marks that are neither stored nor refused."""
        return sorted(self._waiting)
