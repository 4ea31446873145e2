"""The events of a session for its reader, besides batches."""

from __future__ import annotations

from typing import Any, NamedTuple

from batchweave import _wire
from batchweave.errors import BadMessageError


class Lost(NamedTuple):
    """The daemon closed the socket."""


class Event(NamedTuple):
    """A message for the reader: its type and content."""

    kind: int
    value: Any


def event_of(kind: int, body: memoryview) -> Event:
    """Decodes a message, other than a batch, that does not change the session."""
    if kind == _wire.WELCOME:
        return Event(kind, _wire.welcome(body))
    if kind == _wire.WAITING:
        return Event(kind, _wire.waiting(body))
    if kind == _wire.ERROR:
        return Event(kind, _wire.error(body))
    if kind == _wire.MARK_REFUSED:
        return Event(kind, _wire.mark_refused(body))
    if kind in (_wire.END_OF_STREAM, _wire.MARKED, _wire.REPORTED):
        return Event(kind, _wire.step("end_of_stream, marked or reported", body))
    raise BadMessageError(
        f"the daemon sent a message of type {kind}, which protocol {_wire.PROTOCOL} does not have; "
        "install client and daemon of one release"
    )
