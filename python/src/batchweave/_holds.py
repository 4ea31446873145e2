"""Frames that a rank holds: detecting that a root array is gone, and releasing its frame."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

from batchweave._layout import Array


class Hold(weakref.ref[Array]):
    """A frame that is not released yet; calling it returns its root array while that lives."""

    __slots__ = ("frame", "index", "sender", "size", "step")
    sender: weakref.ref[Array]
    frame: int
    step: int
    index: int
    size: int

    def __str__(self) -> str:
        return f"step {self.step} slice {self.index} (frame {self.frame}, {self.size} bytes)"


class Sender(weakref.ref[Array]):
    """Called when a root array is gone; the frames of a step share one count."""

    __slots__ = ("deaths", "of")
    deaths: Iterator[int]
    of: int
