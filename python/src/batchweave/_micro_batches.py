"""Micro-batches of balanced streams: the bins of a rank's slices, as views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from batchweave import _ragged
from batchweave._bins import Bins, loss_tokens
from batchweave._conventions import MASK
from batchweave._joined import OFFSETS
from batchweave._layout import Array
from batchweave._ragged import Ragged
from batchweave._rows import DOCUMENTS, SEGMENTS, is_balanced
from batchweave.errors import BadShapeError

if TYPE_CHECKING:
    from batchweave.batch import Batch

POSITIONS = "positions"
SEGMENT_IDS = "segment_ids"


class MicroBatch(Mapping[str, Array]):
    """One bin of a balanced stream: documents side by side, without padding.

    `inputs`, `labels`, `loss_mask`, `positions` and `segment_ids` are as wide as one another: all
    tokens but the last, or but the first. `cu_seqlens` and `max_seqlen` are what attention of
    variable length takes for these inputs. Arrays by name (`micro["weight"]`) are as stored, with
    an entry per token of the bin: `[:-1]` belongs to the inputs, `[1:]` to the labels.

    Stored arrays are views of the daemon's memory, and keep it. `loss_mask`, `positions` and
    `segment_ids` that the stream lacks are computed. In the last batch of a stream a bin may be
    empty: its micro-batch has no inputs, so that every rank makes the same number of steps.
    """

    __slots__ = (
        *("index", "slice", "cost", "loss_tokens", "padding"),
        *("_arrays", "_bfloat16", "per_token", "__weakref__"),
    )

    def __init__(
        self,
        arrays: Mapping[str, Array],
        per_token: tuple[str, ...],
        *,
        index: int,
        piece: int,
        cost: float,
        loss_tokens: int,
        bfloat16: frozenset[str] = frozenset(),
        padding: int = 0,
    ) -> None:
        self._arrays = arrays
        self._bfloat16 = bfloat16
        self.per_token = per_token
        """The names of the arrays with an entry per token."""
        self.index = index
        """The number of the bin in its slice: all ranks work on one index at the same time."""
        self.slice = piece
        """The number of the slice in the step, over all ranks."""
        self.cost = cost
        """The cost in tokens, by the producer's measure."""
        self.loss_tokens = loss_tokens
        """The number of learned tokens of the global batch, over all ranks: `Batch.loss_tokens`."""
        self.padding = padding
        """The number of tokens at the end that belong to no document: 0 except by `padded`."""

    def __getitem__(self, name: str) -> Array:
        if name in self._arrays:
            return self._arrays[name]
        raise KeyError(f"{name!r}; this micro-batch has {sorted(self._arrays)}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    @property
    def tokens(self) -> Array:
        """All tokens of the bin."""
        return self._arrays["tokens"]

    @property
    def documents(self) -> Array:
        """The borders of the documents in `tokens`, from 0: one more than documents."""
        return self._arrays[DOCUMENTS]

    @property
    def inputs(self) -> Array:
        """The tokens without the last one."""
        return self.tokens[:-1]

    @property
    def labels(self) -> Array:
        """The tokens without the first one: the token after each input."""
        return self.tokens[1:]

    @property
    def loss_mask(self) -> Array:
        """1 where a label is to be learned, 0 elsewhere: uint8, as wide as `labels`.

        The stream's `loss_mask`; without one, 0 at the first token of each document.
        """
        return self.mask_of_tokens()[1:]

    @property
    def positions(self) -> Array:
        """The index of each input in its document: int32."""
        return self.positions_of_tokens()[:-1]

    @property
    def segment_ids(self) -> Array:
        """The number of each input's document in the bin, from 1, and 0 at padding: int32."""
        return self.segments_of_tokens()[:-1]

    @property
    def cu_seqlens(self) -> Array:
        """The borders of the documents among the inputs, from 0 to their number: int32.

        A last document of which only the label is left has none.
        """
        return self.borders(len(self.inputs))

    @property
    def max_seqlen(self) -> int:
        """The length of the longest document among the inputs."""
        return int(np.diff(self.cu_seqlens).max(initial=0))

    def borders(self, width: int) -> Array:
        """Returns the borders of the documents among the first `width` tokens, and of padding."""
        found = self._all_borders()
        count = int(np.count_nonzero(found[:-1] < width))
        ends: Array = np.minimum(found[: count + 1], np.int32(width))
        return ends

    def mask_of_tokens(self) -> Array:
        """Returns 1 at each token that is to be learned as a label."""
        if MASK in self._arrays:
            return self._arrays[MASK]
        found = np.ones(len(self.tokens), np.uint8)
        borders = self.documents
        found[borders[:-1][borders[:-1] < borders[1:]]] = 0
        found[len(found) - self.padding :] = 0
        return found

    def positions_of_tokens(self) -> Array:
        """Returns the index of each token in its document."""
        if POSITIONS in self._arrays:
            return self._arrays[POSITIONS]
        borders = self._all_borders()
        starts = np.repeat(borders[:-1], np.diff(borders))
        found: Array = np.arange(len(self.tokens), dtype=np.int32) - starts
        return found

    def segments_of_tokens(self) -> Array:
        """Returns the number of each token's document in the bin, from 1, and 0 at padding."""
        if SEGMENT_IDS in self._arrays:
            return self._arrays[SEGMENT_IDS]
        found: Array = np.repeat(self._numbers(), np.diff(self._all_borders()))
        return found

    def ragged(self, name: str, shape: str | None = None) -> Ragged:
        """Returns an array with `NAME.offsets` as views, one per document: see `Batch.ragged`."""
        names = [name] if shape is None else [name, shape]
        more = [each + OFFSETS for each in names if each + OFFSETS in self]
        arrays = {each: self[each] for each in [*names, *more]}
        rows = np.array([0, len(self.documents) - 1])
        return _ragged.of({**arrays, SEGMENTS: rows}, name, shape)

    def is_bfloat16(self, name: str) -> bool:
        """Returns whether the array holds bfloat16, which numpy shows as uint16."""
        return name in self._bfloat16

    def padded(self, inputs: int) -> MicroBatch:
        """Returns this micro-batch with as many inputs, for shapes that must not vary: a copy.

        Added tokens are 0, and `loss_mask` and `segment_ids` are 0 there. They are a sequence of
        their own in `cu_seqlens` and `positions`, so attention sees them from no document. One
        that has this number of inputs is returned as it is.
        """
        more = inputs + 1 - len(self.tokens)
        if inputs == len(self.inputs):
            return self
        if more <= 0:
            raise BadShapeError(
                f"padded({inputs}): this micro-batch has {len(self.inputs)} inputs; pass at least "
                "that, such as reader.info.seq_len"
            )
        arrays = {
            name: _longer(name, array, self.padding, more) if name in self.per_token else array
            for name, array in self._arrays.items()
        }
        return MicroBatch(
            arrays,
            self.per_token,
            index=self.index,
            piece=self.slice,
            cost=self.cost,
            loss_tokens=self.loss_tokens,
            bfloat16=self._bfloat16,
            padding=self.padding + more,
        )

    def _all_borders(self) -> Array:
        if not self.padding:
            return self.documents
        return np.append(self.documents, np.int32(len(self.tokens)))

    def _numbers(self) -> Array:
        numbers = np.arange(1, len(self.documents), dtype=np.int32)
        return np.append(numbers, np.int32(0)) if self.padding else numbers

    def __repr__(self) -> str:
        number = len(self.documents) - 1
        documents = f"{number} document{'' if number == 1 else 's'}"
        tokens = f"{len(self.tokens)} tokens"
        return f"<MicroBatch {self.index} of slice {self.slice}, {documents}, {tokens}>"


def of_batch(batch: Batch) -> Iterator[MicroBatch]:
    """Returns the micro-batches of all slices: the first of each slice, then the second, ..."""
    if not all(is_balanced(piece) for piece in batch.slices):
        raise BadShapeError(
            f"step {batch.step}: the rows of a stream have no division of their own: give the "
            "number of rows of a micro-batch, as micro_batches(rows=4)",
            step=batch.step,
        )
    slices = [(piece, Bins(piece, f"slice {piece.index}")) for piece in batch.slices]
    counts = {len(bins) for _, bins in slices}
    if len(counts) != 1:
        raise BadShapeError(
            f"step {batch.step}: this rank's slices have {sorted(counts)} bins, but all slices of "
            "a stream have the same number; report it with the producer's version",
            step=batch.step,
        )
    learned = loss_tokens(batch.step, batch.slices)
    return (
        MicroBatch(
            bins.arrays(index),
            bins.per_token,
            index=index,
            piece=piece.index,
            cost=bins.cost(index),
            loss_tokens=learned,
            bfloat16=frozenset(name for name in piece if piece.is_bfloat16(name)),
        )
        for index in range(counts.pop())
        for piece, bins in slices
    )


def _longer(name: str, array: Array, before: int, more: int) -> Array:
    found = np.zeros((len(array) + more, *array.shape[1:]), array.dtype)
    found[: len(array)] = array
    if name == POSITIONS:
        found[len(array) :] = np.arange(before, before + more)
    elif name == "document_ids":
        found[len(array) :] = -1
    return found
