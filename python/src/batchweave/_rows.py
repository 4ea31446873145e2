"""Rows of a slice: their number, and the arrays of some of them.

An array NAME with `NAME.offsets` has items of any number per sample of an `opaque` stream, or per
document of a stream of tokens with arrays. Then `segments.offsets` has the first document of each
row, and the end. A slice of a balanced stream has bins instead of rows: see `_bins`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batchweave._joined import OFFSETS

SEGMENTS = "segments" + OFFSETS
"""The array of the first document of each row."""
BINS = "bins"
"""The array of the first document of each bin, in a balanced stream."""
DOCUMENTS = "documents"
"""The array of the first token of each document, in a balanced stream."""


def is_balanced(arrays: Mapping[str, Any]) -> bool:
    """Returns whether a slice is one of a balanced stream."""
    return all(name in arrays for name in (BINS, DOCUMENTS, "tokens")) and _is_flat(arrays)


def is_of_a_bin(arrays: Mapping[str, Any]) -> bool:
    """Returns whether these are the arrays of one bin: borders of documents, but none of bins."""
    return DOCUMENTS in arrays and "tokens" in arrays and _is_flat(arrays)


def _is_flat(arrays: Mapping[str, Any]) -> bool:
    return len(arrays["tokens"].shape) == 1 == len(arrays[DOCUMENTS].shape)


def is_offsets(name: str, arrays: Mapping[str, Any]) -> bool:
    """Returns whether an array has the first item of each sample or document of another."""
    if not name.endswith(OFFSETS) or name not in arrays:
        return False
    return name.removesuffix(OFFSETS) in arrays and len(arrays[name].shape) == 1


def counts(arrays: Mapping[str, Any]) -> dict[str, int]:
    """Returns the number of rows that each array has by itself, without the items of documents."""
    found = {}
    segments = SEGMENTS in arrays
    for name, array in arrays.items():
        if name == SEGMENTS or (is_offsets(name, arrays) and not segments):
            found[name] = max(array.shape[0] - 1, 0)
        elif not is_offsets(name, arrays) and not is_offsets(name + OFFSETS, arrays):
            found[name] = array.shape[0] if array.shape else 0
    return found


def count(arrays: Mapping[str, Any]) -> int:
    """Returns the number of rows, bins or samples of a slice."""
    if is_balanced(arrays):
        return len(arrays[BINS]) - 1
    found = counts(arrays)
    borders = [n for name, n in found.items() if name == SEGMENTS or is_offsets(name, arrays)]
    if borders:
        return borders[0]
    if "tokens" in found:
        return found["tokens"]
    return min((n for name, n in found.items() if arrays[name].shape), default=0)


def cut(arrays: Mapping[str, Any], at: int, to: int) -> dict[str, Any]:
    """Returns the arrays of the rows `at` to `to`: views, but offsets that count from 0 again."""
    first, end = at, to
    if SEGMENTS in arrays:
        first, end = (int(arrays[SEGMENTS][row]) for row in (at, to))
    found = {}
    for name, array in arrays.items():
        if name == SEGMENTS:
            found[name] = from_zero(array, at, to)
        elif is_offsets(name, arrays):
            found[name] = from_zero(array, first, end)
        elif is_offsets(name + OFFSETS, arrays):
            offsets = arrays[name + OFFSETS]
            found[name] = array[int(offsets[first]) : int(offsets[end])]
        else:
            found[name] = array[at:to]
    return found


def from_zero(offsets: Any, at: int, to: int) -> Any:
    """Returns the borders `at` to `to`, counted from 0 again."""
    own = offsets[at : to + 1]
    return own - own[:1] if int(own[0]) else own
