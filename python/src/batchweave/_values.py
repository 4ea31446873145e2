"""The losses of a step as one record of a `report` message, and how much of one is kept.

Pure: records are bytes, so that dropping a part of one is one assignment.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from batchweave._layout import Array

SOURCES_MAX, SOURCE_NUMBERS, DETAILS_MAX = 256, 1 << 16, 7168
# Values that were not sent, or not confirmed, of one reader.
BYTES_MAX = 1 << 20
# They are cut down to this, so that not every report has to look for something to drop.
_BYTES_KEPT = BYTES_MAX * 7 // 8

ROWS, DOCUMENTS = 1, 2
PART, NO_DETAILS, NO_SOURCES = 4, 8, 16
_OF_DETAILS = 3

_RECORD = struct.Struct("<QIIIIdd")
_STEP = struct.Struct("<Q")
_SOURCE = struct.Struct("<Iff")
_DETAIL = np.dtype([("mean", "<f4"), ("weight", "<f4")])
_COUNT_MAX = (1 << 32) - 1
# Of numbers that are stored in four bytes.
_FLOAT_MAX = float(np.finfo(np.float32).max)
_FLOAT_MIN = float(np.finfo(np.float32).smallest_subnormal)


class DroppedLosses(NamedTuple):
    """The number of steps whose losses were sent in part, or left out."""

    details: int = 0
    """Steps without the losses of their rows or documents."""
    sources: int = 0
    """Steps without the losses of their sources."""
    values: int = 0
    """Steps without any loss."""


# A source by its number, the sum of its losses and their weight.
Source = tuple[int, float, float]


class Details(NamedTuple):
    """Mean losses of rows or documents, and the weight of each."""

    means: Array
    weights: Array


def record(
    step: int,
    total: float,
    weight: float,
    nonfinite: float,
    kind: int,
    sources: Iterable[Source] = (),
    details: Details | None = None,
) -> bytes:
    """Returns the record of a step; sources without weight or finite sum are left out.

    Raises ValueError where a weight is negative or infinite.
    """
    listed = b"".join(map(_source, sorted(sources)))
    detailed = b"" if details is None else _details(details)
    counts = (len(listed) // _SOURCE.size, len(detailed) // _DETAIL.itemsize)
    bad = min(math.ceil(nonfinite), _COUNT_MAX)
    if not 0 <= weight <= _FLOAT_MAX:
        raise ValueError(f"the weight of a step's tokens is {weight}; it is from 0 to {_FLOAT_MAX}")
    if not math.isfinite(total):
        # Sums of finite losses, too, where they are too large for a number.
        total, weight, bad = 0.0, 0.0, max(bad, min(math.ceil(weight), _COUNT_MAX))
    kind = kind if detailed else kind & ~_OF_DETAILS
    return _RECORD.pack(step, *counts, kind, bad, total, weight) + listed + detailed


def _source(source: Source) -> bytes:
    number, total, weight = source
    if not 0 <= weight <= _FLOAT_MAX:
        raise ValueError("a weight is negative or no finite number")
    if weight < _FLOAT_MIN or not abs(total) <= _FLOAT_MAX:
        return b""
    return _SOURCE.pack(number, total, weight)


def _details(given: Details) -> bytes:
    found = np.zeros(len(given.means), _DETAIL)
    with np.errstate(over="ignore"):
        found["mean"], found["weight"] = given
    weights = found["weight"]
    if not ((weights >= 0) & np.isfinite(weights)).all():
        raise ValueError("a weight is negative or no finite number")
    bad = ~np.isfinite(found["mean"])
    found["mean"][bad] = found["weight"][bad] = 0
    return found.tobytes()


def without_details(whole: bytes) -> bytes:
    """Returns a record without the losses of rows or documents."""
    step, sources, details, kind, *rest = _RECORD.unpack_from(whole)
    if not details:
        return whole
    kind = kind & ~_OF_DETAILS | NO_DETAILS
    end = _RECORD.size + sources * _SOURCE.size
    return _RECORD.pack(step, sources, 0, kind, *rest) + whole[_RECORD.size : end]


def without_sources(whole: bytes) -> bytes:
    """Returns a record without the losses of sources."""
    step, sources, details, kind, *rest = _RECORD.unpack_from(whole)
    if not sources:
        return whole
    end = _RECORD.size + sources * _SOURCE.size
    return _RECORD.pack(step, 0, details, kind | NO_SOURCES, *rest) + whole[end:]


class Kept:
    """Counts bytes of records, and drops parts of the oldest ones above `BYTES_MAX`.

    No lock: a concurrent report may be counted late, and the next one counts all again.
    """

    def __init__(self) -> None:
        self.details = self.sources = self.values = 0
        """Steps by the part that was dropped."""
        self._bytes = 0

    def add(self, size: int) -> bool:
        """Counts a new record; returns whether `fit` is to be called."""
        self._bytes += size
        return self._bytes > BYTES_MAX

    def fit(self, states: list[State]) -> bool:
        """Drops details of the oldest, then sources, then whole values; whether it dropped any."""
        held = [state for state in states if state.values is not None]
        total = sum(len(state.values or b"") for state in held)
        before = total
        if total > BYTES_MAX:
            for part in ("details", "sources", "values"):
                total = self._drop(part, held, total)
        self._bytes = total
        return total < before

    def _drop(self, part: str, held: list[State], total: int) -> int:
        """Drops one part of the oldest records until the rest fits; returns the bytes left."""
        for state in held:
            values = state.values
            if total <= _BYTES_KEPT or values is None:
                continue
            left = {"details": without_details, "sources": without_sources}.get(part, _nothing)(
                values
            )
            if left != values:
                state.values = left or None
                total -= len(values) - len(left)
                setattr(self, part, getattr(self, part) + 1)
        return total


def _nothing(_: bytes) -> bytes:
    return b""


class State:
    """A step, and the reason why it was left out, or its losses, if it was trained.

    Compared by identity: an item of the queue is removed once.
    """

    __slots__ = ("step", "left_out", "values")

    def __init__(self, step: int, left_out: str | None, values: bytes | None = None) -> None:
        self.step, self.left_out, self.values = step, left_out, values
