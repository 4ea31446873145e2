"""Frames that a rank holds: detecting that a root array is gone, and releasing its frame."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from types import FrameType

from batchweave._layout import Array
from batchweave._places import Place, line_of, outer_place, shown

_LISTED_MAX = 8


class Hold(weakref.ref[Array]):
    """A frame that is not released yet; calling it returns its root array while that lives."""

    __slots__ = ("frame", "index", "place", "sender", "size", "step")
    sender: weakref.ref[Array]
    frame: int
    step: int
    index: int
    size: int
    place: Place | None
    """The caller's line that took the batch."""


class Sender(weakref.ref[Array]):
    """Called when a root array is gone; the frames of a step share one count."""

    __slots__ = ("deaths", "of")
    deaths: Iterator[int]
    of: int


class Taker:
    """The place of the reader's current call, shared by a reader and its sessions."""

    __slots__ = ("_measured", "_outer", "place")

    def __init__(self) -> None:
        self.place: Place | None = None
        self._measured: Place | None = None
        # The variables of a module outside of this package, compared by identity for speed.
        self._outer: dict[str, object] | None = None

    def takes(self, caller: FrameType) -> None:
        """Notes the place that takes a batch; called for every batch."""
        if caller.f_globals is self._outer:
            self.place = (caller.f_code, caller.f_lasti)
            return
        self.place = outer_place(caller)
        # A loop over a Dataset, or over updates(), is further out.
        if self.place[0] is caller.f_code:
            self._outer = caller.f_globals

    def measures(self, caller: FrameType) -> None:
        """Notes the place that asks for the reader's length."""
        self._measured = outer_place(caller)

    def keeps_all(self) -> bool:
        """Returns whether batches are taken by `list`, `tuple` or the like, which drop none.

        These ask for the length first, at the same instruction of their caller.
        """
        return self.place is not None and self.place == self._measured


def steps_of(holds: Sequence[Hold]) -> list[int]:
    """Returns the steps of these frames, ascending."""
    return sorted({hold.step for hold in holds})


def listed(holds: Sequence[Hold]) -> str:
    """Describes held frames in one line: their steps and bytes, by the lines that took them."""
    groups: dict[tuple[str, int] | None, list[Hold]] = {}
    for hold in holds:
        groups.setdefault(line_of(hold.place) if hold.place else None, []).append(hold)
    found = []
    for line, group in groups.items():
        steps = steps_of(group)
        noun = "step" if len(steps) == 1 else "steps"
        size = sum(hold.size for hold in group)
        text = f"{noun} {_runs(steps)} ({size:,} bytes)"
        found.append(f"{text} taken at {shown(*line)}" if line else text)
    more = f", and more from {len(found) - _LISTED_MAX} other lines"
    return ", ".join(found[:_LISTED_MAX]) + (more if len(found) > _LISTED_MAX else "")


def _runs(steps: Sequence[int]) -> str:
    """Returns ascending numbers as text, neighbours together: 0 to 3, 7."""
    runs: list[tuple[int, int]] = []
    for step in steps:
        if runs and runs[-1][1] == step - 1:
            runs[-1] = (runs[-1][0], step)
        else:
            runs.append((step, step))
    texts = [str(a) if a == b else f"{a} to {b}" for a, b in runs]
    more = f" and {len(texts) - _LISTED_MAX} more ranges"
    return ", ".join(texts[:_LISTED_MAX]) + (more if len(texts) > _LISTED_MAX else "")
