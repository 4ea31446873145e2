"""The rows or samples of a batch, one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from batchweave._bins import COSTS, LOSS_TOKENS, Bins
from batchweave._joined import OFFSETS
from batchweave._layout import Array
from batchweave._rows import DOCUMENTS, SEGMENTS, count, cut, is_balanced, is_offsets

# Arrays that have an entry per token of a row.
_PER_TOKEN = (
    "tokens",
    "loss_mask",
    "positions",
    "segment_ids",
    "document_ids",
    "source_ids",
)


class Sample(dict[str, Array]):
    """One row of tokens, or one sample of an `opaque` stream: its arrays by name, without copies.

    Arrays of documents (NAME) have the items of all documents of the row, and `NAME.offsets` the
    first item of each in them. Arrays without an entry per row are the same in all samples of a
    slice. A bin of a balanced stream is a row; its `documents` are the borders in its tokens.
    """

    __slots__ = ("index", "slice", "row", "_of_bin")

    def __init__(
        self,
        arrays: Mapping[str, Array],
        index: int,
        piece: int,
        row: int,
        of_bin: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__(arrays)
        self.index = index
        """The sample's number in this batch."""
        self.slice = piece
        """The number of its slice in the step."""
        self.row = row
        """Its number in that slice."""
        # The names of arrays with an entry per token; None where there are rows instead of bins.
        self._of_bin = of_bin

    @property
    def is_bin(self) -> bool:
        """Whether the sample is a bin of a balanced stream."""
        return self._of_bin is not None

    @property
    def documents(self) -> list[dict[str, Array]]:
        """The arrays of each document of the row, without padding, as views.

        The per-token ones are in it where the stream stores borders (`packing.fields`, with
        segment_ids or document_ids) or is balanced, those of `packing.arrays` always. Empty
        without both.
        """
        names = [name for name in self._of_bin or _PER_TOKEN if name in self]
        parts = [{name: self[name][at:to] for name in names} for at, to in borders(self)]
        ragged = [name for name in self if is_offsets(name + OFFSETS, self)]
        for name in ragged:
            offsets = self[name + OFFSETS].tolist()
            # Neighbouring pieces of one document are not told apart by document_ids.
            if len(parts) != len(offsets) - 1:
                parts = [{} for _ in offsets[1:]]
            for part, (at, to) in zip(parts, itertools.pairwise(offsets), strict=True):
                part[name] = self[name][at:to]
        return parts

    def __repr__(self) -> str:
        arrays = ", ".join(f"{name}: {a.dtype}{list(a.shape)}" for name, a in self.items())
        return f"<Sample {self.index} {arrays}>"


def borders(sample: Mapping[str, Array]) -> list[tuple[int, int]]:
    """Returns the beginning and end of each document in a row of tokens, without padding."""
    if isinstance(sample, Sample) and sample.is_bin:
        return list(itertools.pairwise(sample[DOCUMENTS].tolist()))
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
    if is_balanced(arrays):
        bins = Bins(arrays, f"slice {piece}")
        for row in range(len(bins)):
            found = bins.arrays(row)
            found[COSTS], found[LOSS_TOKENS] = arrays[COSTS][row, ...], arrays[LOSS_TOKENS]
            yield Sample(found, first + row, piece, row, bins.per_token)
        return
    rows = count(arrays)
    for row in range(rows):
        yield Sample(_of_row(arrays, row, rows), first + row, piece, row)


def _of_row(arrays: Mapping[str, Array], row: int, rows: int) -> dict[str, Array]:
    # Arrays with neither an entry per row nor offsets belong to all rows.
    whole = {
        name: array
        for name, array in arrays.items()
        if not (array.ndim and len(array) == rows) and not _is_ragged(name, arrays)
    }
    own = {name: array for name, array in arrays.items() if name not in whole}
    documents = SEGMENTS in arrays
    found = {}
    for name, array in cut(own, row, row + 1).items():
        if name == SEGMENTS or (is_offsets(name, arrays) and not documents):
            continue
        # An ellipsis keeps an array of one entry an array.
        found[name] = array if _is_ragged(name, arrays) else array[0, ...]
    return {
        name: found[name] if name in found else whole[name]
        for name in arrays
        if name in found or name in whole
    }


def _is_ragged(name: str, arrays: Mapping[str, Array]) -> bool:
    return name == SEGMENTS or is_offsets(name, arrays) or is_offsets(name + OFFSETS, arrays)
