"""Lines of the caller's code that took batches, for messages about memory that they hold.

A place costs a fraction of a microsecond per batch: the line number and the text are read only for
a message. Frames are never kept, because their variables would keep batches alive.
"""

from __future__ import annotations

import linecache
import os
from types import CodeType, FrameType

Place = tuple[CodeType, int]
"""The code and the index of its current instruction."""

# Between a loop and the reader: lines there mean nothing to a user. Programs of this package are in
# packages below it.
_OWN = "batchweave"
_LOADERS = frozenset({"torch", "torchdata", "accelerate", "transformers"})
_FRAMES = 32
_TEXT_MAX = 80


def outer_place(frame: FrameType) -> Place:
    """Returns the nearest place outside of this package and of loaders; else that of `frame`."""
    above: FrameType | None = frame
    for _ in range(_FRAMES):
        if above is None:
            break
        package = str(above.f_globals.get("__package__") or "")
        if package != _OWN and package.partition(".")[0] not in _LOADERS:
            return above.f_code, above.f_lasti
        above = above.f_back
    return frame.f_code, frame.f_lasti


def line_of(place: Place) -> tuple[str, int]:
    """Returns the file and the line of a place."""
    code, at = place
    for begin, end, line in code.co_lines():
        if begin <= at < end and line is not None:
            return code.co_filename, line
    return code.co_filename, code.co_firstlineno


def shown(file: str, line: int) -> str:
    """Returns a line for a message: the file, the number, and the text where it can be read."""
    text = linecache.getline(file, line).strip()
    if len(text) > _TEXT_MAX:
        text = text[:_TEXT_MAX] + "..."
    folder = os.getcwd() + os.sep  # noqa: PTH109 - the names of code are texts
    return f"{file.removeprefix(folder)}:{line}" + (f" `{text}`" if text else "")
