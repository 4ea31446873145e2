"""Requests of jobs: repeated until they have a definite answer, and objects that are stored once.

A numbered writer has a state machine for this (`_core`). A job needs less: its files have names of
their own, and only their list has one that another job may take.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from batchweave.inbox import _drive
from batchweave.inbox._store import ExistsError, Store, TransientError
from batchweave.inbox.errors import StoreNotAnsweringError

_log = logging.getLogger("batchweave")
_Answer = TypeVar("_Answer")


def insist(request: Callable[[], _Answer], deadline: float) -> _Answer:
    """Repeats a request until it has an answer, for `deadline` seconds and twice at least."""
    attempt, began, warned, backoff = 0, time.monotonic(), False, _drive.BACKOFF
    while True:
        try:
            return request()
        except TransientError as reason:
            attempt += 1
            waited = time.monotonic() - began
            if waited > deadline and attempt > 1:
                raise StoreNotAnsweringError(
                    f"{reason}; gave up after {waited:.0f} s and {attempt} attempts: check the "
                    "store, its endpoint and the network, then run the job again"
                ) from None
            if waited > backoff.warn_after and not warned:
                _log.warning("a job's request to an inbox is repeated: %s", reason)
                warned = True
            pause = min(backoff.most, backoff.first * 2 ** min(attempt, 16))
            time.sleep(random.uniform(0, pause))


def put_once(folder: Store, name: str, data: bytes, deadline: float) -> bool:
    """Stores an object under a new name; returns False where the name has another content.

    A lost answer is resolved by reading the object: the same content is this one.
    """

    def put() -> bool:
        try:
            folder.create(name, data)
        except ExistsError:
            # One byte more than ours, so that a longer object differs.
            found = folder.tail(name, len(data) + 1)
            if found is None:
                raise TransientError(f"{folder.place} refuses {name} and lacks it") from None
            return found[0] == data
        return True

    return insist(put, deadline)
