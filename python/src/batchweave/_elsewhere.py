"""Calls of the client in progress: of other threads, and those that a signal interrupted.

A signal handler runs between two lines of any call, and may call back into the reader: mark a
checkpoint, close it, end the process. So may the garbage collector, by a finalizer.
"""

from __future__ import annotations

import sys
import threading
from types import CodeType, FrameType

from batchweave._session import Session

_PACKAGE = "batchweave"
_READING = frozenset(
    f"{_PACKAGE}.{module}"
    for module in ("reader", "_ending", "_reading", "_session", "_connect", "_wait")
)
# In this call nothing is half received or half sent.
_IDLE: CodeType = Session.wait.__code__


def reads_elsewhere() -> bool:
    """Whether a call besides the caller's may have received a message that it has not handled."""
    stacks = sys._current_frames()
    # A frame that refers to itself would keep all arrays of its callers.
    del stacks[threading.get_ident()]
    return any(map(_reads, [_outside(sys._getframe(1)), *stacks.values()]))


def _reads(innermost: FrameType | None) -> bool:
    frame = innermost
    while frame is not None:
        if _library(frame) != _PACKAGE:
            frame = frame.f_back
            continue
        idle, reads, opens = frame.f_code is _IDLE, False, False
        while frame is not None and _library(frame) == _PACKAGE:
            reads |= frame.f_globals["__name__"] in _READING
            opens |= frame.f_code.co_name == "open_session"
            frame = frame.f_back
        if opens or (reads and not idle):
            return True
    return False


def _library(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _outside(frame: FrameType | None) -> FrameType | None:
    """The frame that called into the package."""
    while frame is not None and _library(frame) == _PACKAGE:
        frame = frame.f_back
    return frame
