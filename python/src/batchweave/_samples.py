"""The rows or samples of a batch, one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from batchweave._joined import OFFSETS
from batchweave._layout import Array

# Arrays that have an entry per token of a row.
_PER_TOKEN = ("tokens", "loss_mask", "positions", "segment_ids", "document_ids")


class Sample(dict[str, Array]):
    """One row of tokens, or one sample of an `opaque` stream: its arrays by name, without copies.

    Arrays without an entry per row are the same in all samples of a slice.
    """

    __slots__ = ("index", "slice", "row")

    def __init__(self, arrays: Mapping[str, Array], index: int, piece: int, row: int) -> None:
        super().__init__(arrays)
        self.index = index
        """The sample's number in this batch."""
        self.slice = piece
        """The number of its slice in the step."""
        self.row = row
        """Its number in that slice."""

    @property
    def documents(self) -> list[dict[str, Array]]:
        """The per-token arrays of each document of the row, without padding.

        Empty where the stream stores no borders (`packing.fields`, with segment_ids or
        document_ids).
        """
        return [
            {name: self[name][at:to] for name in _PER_TOKEN if name in self}
            for at, to in borders(self)
        ]

    def __repr__(self) -> str:
        arrays = ", ".join(f"{name}: {a.dtype}{list(a.shape)}" for name, a in self.items())
        return f"<Sample {self.index} {arrays}>"


def borders(sample: Mapping[str, Array]) -> list[tuple[int, int]]:
    """Returns the beginning and end of each document in a row of tokens, without padding."""
    for name, padding in (("segment_ids", 0), ("document_ids", -1)):
        ids = sample.get(name)
        if ids is None or ids.ndim != 1 or not ids.size:
            continue
        cuts = [0, *(np.flatnonzero(np.diff(ids)) + 1).tolist(), len(ids)]
        pairs = itertools.pairwise(cuts)
        return [(at, to) for at, to in pairs if ids[at] != padding]
    return []


def of_slice(arrays: Mapping[str, Array], first: int, piece: int) -> Iterator[Sample]:
    """Yields the samples of a slice; `first` is the number of the first one in the batch."""
    for row in range(count(arrays)):
        yield Sample(
            {
                name: _of_row(name, array, arrays, row)
                for name, array in arrays.items()
                if not _is_offsets(name, arrays)
            },
            first + row,
            piece,
            row,
        )


def count(arrays: Mapping[str, Array]) -> int:
    """Returns the number of rows or samples of a slice."""
    for name, array in arrays.items():
        if _is_offsets(name, arrays):
            return max(len(array) - 1, 0)
    if "tokens" in arrays:
        return len(arrays["tokens"])
    return min((len(array) for array in arrays.values() if array.ndim), default=0)


def _is_offsets(name: str, arrays: Mapping[str, Array]) -> bool:
    named = name.endswith(OFFSETS) and name.removesuffix(OFFSETS) in arrays
    return named and arrays[name].ndim == 1


def _of_row(name: str, array: Array, arrays: Mapping[str, Array], row: int) -> Array:
    offsets = arrays.get(name + OFFSETS)
    if offsets is not None and offsets.ndim == 1:
        found: Array = array[int(offsets[row]) : int(offsets[row + 1])]
        return found
    if array.ndim and len(array) == count(arrays):
        # An ellipsis keeps an array of one entry an array.
        of_row: Array = array[row, ...]
        return of_row
    return array
