"""Arrays of any length per sample or document, as views: `batch.ragged(name)`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import overload

import numpy as np

from batchweave._joined import OFFSETS
from batchweave._layout import Array
from batchweave._rows import SEGMENTS
from batchweave.errors import BadShapeError


class Ragged(Sequence[Array]):
    """Views of one array without copies: an entry per sample, document or picture.

    `batch.ragged("action")` has an entry per sample of an `opaque` stream, or per document of a
    stream of tokens with arrays. With `shape="size"` it has an entry per row of the array `size`,
    as per picture: `batch.ragged("pixels", shape="size")[k]` has the shape [height, width, 3].
    """

    __slots__ = ("name", "values", "offsets", "shapes", "_documents", "_rows")

    def __init__(
        self,
        name: str,
        values: Array,
        offsets: Array,
        *,
        shapes: Array | None = None,
        documents: Array | None = None,
        rows: Array | None = None,
    ) -> None:
        self.name = name
        begin, end = int(offsets[0]), int(offsets[-1])
        self.values = values[begin:end]
        """The items of all entries, one after another."""
        self.offsets = np.asarray(offsets - begin if begin else offsets, np.int64)
        """The first item of each entry in `values`, and the end: int64, one more than entries."""
        self.shapes = shapes
        """The shape of each entry without that of an item; None without `shape=`."""
        # The first entry of each document, and the first document of each row, with their ends.
        self._documents = np.arange(len(offsets)) if documents is None else documents
        self._rows = np.arange(len(self._documents)) if rows is None else rows

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, at: int) -> Array: ...

    @overload
    def __getitem__(self, at: slice) -> list[Array]: ...

    def __getitem__(self, at: int | slice) -> Array | list[Array]:
        if isinstance(at, slice):
            return [self[k] for k in range(*at.indices(len(self)))]
        k = range(len(self))[at]
        items: Array = self.values[self.offsets[k] : self.offsets[k + 1]]
        return items if self.shapes is None else items.reshape(self._shape(k))

    def __iter__(self) -> Iterator[Array]:
        return (self[k] for k in range(len(self)))

    def of_document(self, number: int) -> Ragged:
        """Returns the entries of one document, or of one sample of an `opaque` stream."""
        k = range(len(self._documents) - 1)[number]
        return self._part(int(self._documents[k]), int(self._documents[k + 1]))

    def of_row(self, number: int) -> Ragged:
        """Returns the entries of the documents in one row of tokens, or of one sample."""
        k = range(len(self._rows) - 1)[number]
        first, end = self._documents[self._rows[k]], self._documents[self._rows[k + 1]]
        found = self._part(int(first), int(end))
        documents = self._documents[self._rows[k] : self._rows[k + 1] + 1] - first
        found._documents, found._rows = documents, np.array([0, len(documents) - 1])
        return found

    def stacked(self) -> Array:
        """Returns one array with an entry per axis 0, without a copy: all must have one shape."""
        if not len(self):
            first: tuple[int, ...] = (0,) * (1 if self.shapes is None else self.shapes.shape[1])
            return self.values.reshape(0, *first, *self.values.shape[1:])
        extents = np.diff(self.offsets)[:, None] if self.shapes is None else self.shapes
        differ = np.flatnonzero((extents != extents[0]).any(axis=1))
        if differ.size:
            k = int(differ[0])
            raise BadShapeError(
                f"array {self.name!r}: entry {k} has the shape {list(self._shape(k))}, entry 0 "
                f"{list(self._shape(0))}: loop over the entries, or use padded()"
            )
        return self.values.reshape(len(self), *self._shape(0))

    def padded(self, value: float = 0) -> tuple[Array, Array]:
        """Returns one array, a copy filled up with `value`, and the length of each entry.

        With `shape=` the entries are filled up along each axis, and the second array has the shape
        of each entry without that of an item.
        """
        lengths = np.diff(self.offsets)
        extents = lengths[:, None] if self.shapes is None else self.shapes
        most = extents.max(axis=0, initial=0).tolist()
        dense = np.full((len(self), *most, *self.values.shape[1:]), value, self.values.dtype)
        for k, (entry, extent) in enumerate(zip(self, extents.tolist(), strict=True)):
            dense[k][tuple(slice(0, n) for n in extent)] = entry
        return dense, lengths if self.shapes is None else self.shapes

    def _part(self, first: int, end: int) -> Ragged:
        shapes = None if self.shapes is None else self.shapes[first:end]
        return Ragged(self.name, self.values, self.offsets[first : end + 1], shapes=shapes)

    def _shape(self, k: int) -> tuple[int, ...]:
        one = self.offsets[k + 1] - self.offsets[k]
        extent = [int(one)] if self.shapes is None else self.shapes[k].tolist()
        return (*extent, *self.values.shape[1:])

    def __repr__(self) -> str:
        items = f"{self.values.dtype}{['*', *self.values.shape[1:]]}".replace("'", "")
        return f"<Ragged {self.name!r}, {len(self)} of {items}>"


def of(
    arrays: Mapping[str, Array], name: str, shape: str | None = None, rows: Array | None = None
) -> Ragged:
    """Returns an array of a slice or a batch as views; `shape` names the array of their shapes.

    `rows`: the first document of each row, where `segments.offsets` is not what says so.
    """
    values, offsets = arrays[name], _offsets(arrays, name)
    rows = arrays.get(SEGMENTS) if rows is None else rows
    if shape is None:
        return Ragged(name, values, offsets, rows=rows)
    shapes, owners = arrays[shape], _offsets(arrays, shape)
    if shapes.ndim != 2 or shapes.dtype.kind not in "iu":
        raise BadShapeError(
            f"shape={shape!r}: {shapes.dtype}{list(shapes.shape)} are not shapes: an array of "
            'whole numbers is needed, with one entry per axis, as image = "size" of packing.arrays'
        )
    shapes = shapes.astype(np.int64, copy=False)
    shapes, owners = shapes[owners[0] : owners[-1]], owners - owners[0]
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(shapes.prod(axis=1))])
    wrong = _disagreement(shapes, ends, owners, offsets)
    if wrong is not None:
        found = shapes[owners[wrong] : owners[wrong + 1]].tolist()
        items = offsets[wrong + 1] - offsets[wrong]
        kind = "sample" if rows is None else "document"
        raise BadShapeError(
            f"array {name!r}: {kind} {wrong} has {items} items, which are not of the "
            f"shapes {found} in {shape!r}: both arrays must be made of the same "
            "images, with the same `shortest`"
        )
    return Ragged(name, values, ends + offsets[0], shapes=shapes, documents=owners, rows=rows)


def _disagreement(shapes: Array, ends: Array, owners: Array, offsets: Array) -> int | None:
    """Returns the first sample whose shapes do not have as many items as it has."""
    if len(owners) != len(offsets):
        return min(len(owners), len(offsets)) - 2
    wrong = np.diff(ends[owners]) != np.diff(offsets)
    negative = np.flatnonzero((shapes < 0).any(axis=1))
    wrong[np.searchsorted(owners, negative, side="right") - 1] = True
    return int(wrong.argmax()) if wrong.any() else None


def _offsets(arrays: Mapping[str, Array], name: str) -> Array:
    if name + OFFSETS not in arrays:
        raise BadShapeError(
            f"array {name!r} has no {name + OFFSETS!r}: it has an entry per row, so use "
            f"batch[{name!r}]"
        )
    found: Array = arrays[name + OFFSETS].astype(np.int64, copy=False)
    if (
        found.ndim != 1
        or not len(found)
        or found[0] < 0
        or found[-1] > len(arrays[name])
        or (np.diff(found) < 0).any()
    ):
        raise BadShapeError(
            f"array {name + OFFSETS!r} does not divide the {len(arrays[name])} items of {name!r}: "
            "it must rise from 0 to their number"
        )
    return found
