"""A rank's batch at one step: slices of named arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, overload

import numpy as np

from batchweave import _html, _micro_batches, _ragged
from batchweave._bins import LOSS_TOKENS, loss_tokens, no_rows
from batchweave._documents import Decoder, Source
from batchweave._joined import OFFSETS, joined
from batchweave._layout import Array, Arrays, Layout
from batchweave._micro_batches import MicroBatch
from batchweave._packed import mask_of_labels
from batchweave._ragged import Ragged
from batchweave._rows import BINS, DOCUMENTS, SEGMENTS, count, counts, cut, is_balanced
from batchweave._samples import Sample, of_slice
from batchweave._stages import Stage
from batchweave.errors import BadMeshError, BadShapeError, NoSourcesError, NoTokenizerError
from batchweave.state import State
from batchweave.views import micro_batches


class Slice(Mapping[str, Array]):
    """Named arrays of one data coordinate, read-only views of the daemon's memory.

    Each array, and each view of one, keeps the memory; the daemon reuses it when the last is gone.
    bfloat16 arrays are uint16, bit for bit, because numpy has no such type.
    """

    __slots__ = ("index", "_arrays", "_layout", "__weakref__")

    def __init__(self, index: int, arrays: Arrays, layout: Layout) -> None:
        self.index = index
        """The slice's number in its step, over all ranks."""
        self._arrays = arrays
        self._layout = layout

    def __getitem__(self, name: str) -> Array:
        if name in self._layout.names:
            return self._arrays[name]
        raise KeyError(f"{name!r}; this slice has {sorted(self)}")

    def __iter__(self) -> Iterator[str]:
        return (name for name, _, _, _ in self._layout.arrays)

    def __len__(self) -> int:
        return len(self._layout.arrays)

    def __contains__(self, name: object) -> bool:
        return name in self._layout.names

    def copy(self) -> Slice:
        """Returns private, writable copies of the arrays."""
        return Slice(self.index, {name: view.copy() for name, view in self.items()}, self._layout)

    def rows(self, part: int, parts: int) -> Slice:
        """Returns the rows of one of `parts` equal parts of each array, as views.

        Arrays of documents or samples (NAME with `NAME.offsets`) have the items of these rows.
        """
        if is_balanced(self):
            raise BadMeshError(
                f"slice {self.index} of a balanced stream cannot be split into {parts} parts: its "
                "bins are micro-batches of one rank, in the order of their costs; use fewer ranks, "
                "or a stream with more slices"
            )
        found = counts(self)
        each = max(found.values())
        if set(found.values()) != {each} or each % parts:
            raise BadMeshError(
                f"slice {self.index} cannot be split into {parts} parts of whole rows: its arrays "
                f"have {found} rows; use fewer ranks, or a stream with more slices"
            )
        own = cut(self, each // parts * part, each // parts * (part + 1))
        return Slice(self.index, own, self._layout)

    def ragged(self, name: str, shape: str | None = None) -> Ragged:
        """Returns an array with `NAME.offsets` as views: see `Batch.ragged`."""
        return _ragged.of(self, name, shape, self[BINS] if is_balanced(self) else None)

    @property
    def inputs(self) -> Array:
        """The rows of `tokens` without their last token."""
        return _rows(self, f"slice {self.index}")[:, :-1]

    @property
    def labels(self) -> Array:
        """The rows of `tokens` without their first token: the token after each input."""
        return _rows(self, f"slice {self.index}")[:, 1:]

    @property
    def loss_mask(self) -> Array:
        """1 where a label is to be learned, 0 elsewhere, as wide as `labels`.

        The stream's `loss_mask`; without one, from `segment_ids` (0 at padding and at the first
        token of each document); without either, 1 everywhere.
        """
        return _loss_mask(self, f"slice {self.index}")

    def is_bfloat16(self, name: str) -> bool:
        """Returns whether the array holds bfloat16, which numpy shows as uint16."""
        return name in self._layout.bfloat16

    def __repr__(self) -> str:
        arrays = ", ".join(_shape(name, array) for name, array in self.items())
        return f"<Slice {self.index} {arrays}>"


class Batch:
    """This rank's rows at one step: whole arrays by name, and the slices that they come from.

    `inputs`, `labels` and `batch[name]` have the rows of all slices: a read-only view of the
    daemon's memory where the rank has one slice, and a read-only copy where it has several. So a
    loop is the same on any number of ranks. `slices` are never copied.
    """

    __slots__ = ("step", "slices", "stage", "_origin", "_whole", "__weakref__")
    # Of a batch of `batchweave.open` only: readers make many batches a second.
    _decoder: Decoder | None = None

    def __init__(self, step: int, slices: list[Slice], origin: State) -> None:
        self.step = step
        self.slices = slices
        self.stage: Stage | None = None
        """The stage of the batch; None for the shape of stream.json."""
        # A state of this reader without the step: most batches' states are never needed.
        self._origin = origin
        self._whole: dict[str, Array] | None = None

    def state_dict(self) -> dict[str, str]:
        """Returns the position after this batch: save it with the model trained on it."""
        return dataclasses.replace(self._origin, next_step=self.step + 1).to_dict()

    @property
    def attempt(self) -> str | None:
        """The attempt in which it was read; None without a job."""
        return self._origin.attempt

    @overload
    def micro_batches(self) -> Iterator[MicroBatch]: ...

    @overload
    def micro_batches(self, rows: int) -> Iterator[dict[str, Array]]: ...

    def micro_batches(
        self, rows: int | None = None
    ) -> Iterator[MicroBatch] | Iterator[dict[str, Array]]:
        """Yields the bins of a balanced stream, or the rows of another one, `rows` at a time.

        Bins are views. Those of several slices come by index: the first bin of each slice, then
        the second of each, so any number of ranks makes the same micro-batches of a step. A
        stream of rows needs `rows`; its arrays are views, or copies where a micro-batch spans
        slices.
        """
        return _micro_batches.of_batch(self) if rows is None else micro_batches(self, rows)

    @property
    def loss_tokens(self) -> int:
        """The number of learned tokens of the global batch, over all ranks: balanced streams only.

        A sum of losses divided by it is this rank's part of the mean over the global batch.
        """
        if not is_balanced(self.slices[0]):
            raise BadShapeError(
                f"step {self.step}: only balanced streams have loss_tokens, and a rank knows no "
                "masks of other ranks: add up batch.loss_mask.sum() of all ranks (all_reduce)",
                step=self.step,
            )
        return loss_tokens(self.step, self.slices)

    def __getitem__(self, name: str) -> Array:
        """Returns an array of all slices, one after another along the first axis.

        An array without axes has one entry per slice; `NAME.offsets` of samples are counted on, as
        are `documents` and `bins` of a balanced stream. Its `loss_tokens` are those of one slice.
        """
        if self._whole is None:
            self._whole = {}
        found = self._whole.get(name)
        if found is None:
            parts = [piece[name] for piece in self.slices]
            borders = False
            if name in (BINS, DOCUMENTS, LOSS_TOKENS) and is_balanced(self.slices[0]):
                borders, parts = name != LOSS_TOKENS, parts[: 1 if name == LOSS_TOKENS else None]
            found = self._whole[name] = joined(self.step, name, parts, borders=borders)
            if len(parts) > 1:
                found.flags.writeable = parts[0].flags.writeable
        return found

    def __contains__(self, name: object) -> bool:
        return name in self.slices[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.slices[0])

    def keys(self) -> list[str]:
        """Returns the names of the arrays, so that `dict(batch)` has them all."""
        return list(self.slices[0])

    @property
    def inputs(self) -> Array:
        """The rows of `tokens` without their last token, of all slices."""
        return _rows(self, f"step {self.step}")[:, :-1]

    @property
    def labels(self) -> Array:
        """The rows of `tokens` without their first token: the token after each input."""
        return _rows(self, f"step {self.step}")[:, 1:]

    @property
    def loss_mask(self) -> Array:
        """1 where a label is to be learned, 0 elsewhere: see `Slice.loss_mask`."""
        return _loss_mask(self, f"step {self.step}")

    def is_bfloat16(self, name: str) -> bool:
        """Returns whether the array holds bfloat16, which numpy shows as uint16."""
        return self.slices[0].is_bfloat16(name)

    def ragged(self, name: str, shape: str | None = None) -> Ragged:
        """Returns an array with `NAME.offsets` as read-only views: one per sample or document.

        `shape` names an array with the shapes of pictures or other tables, as "size" for "pixels":
        then there is a view per row of that array. Copies nothing where the rank has one slice.
        """
        names = [name] if shape is None else [name, shape]
        more = [each + OFFSETS for each in names] + [SEGMENTS]
        arrays = {each: self[each] for each in names + [each for each in more if each in self]}
        if is_balanced(self.slices[0]):
            arrays[SEGMENTS] = self[BINS]
        return _ragged.of(arrays, name, shape)

    def samples(self) -> Iterator[Sample]:
        """Yields each row, each bin of a balanced stream, or each sample of an `opaque` one.

        Their arrays by name are views.
        """
        first = 0
        for piece in self.slices:
            yield from of_slice(piece, first, piece.index)
            first += count(piece)

    def sources(self) -> list[Source]:
        """Returns the documents of this batch by name: only of a stream of `batchweave.open`."""
        if self._decoder is None:
            raise NoSourcesError(
                f"the documents of step {self.step} are unknown to a reader of connect(): read it "
                f"as batchweave.open(url)[{self.step}], or `batchweave show {self.step} --decode`",
                step=self.step,
            )
        return self._decoder.sources(count(self.slices[0]), self.slices[0].index)

    def text(self) -> list[str]:
        """Returns the text of each row or bin, without padding: only with `batchweave.open`.

        Special tokens are visible. It starts `batchweave`: for many steps, decode the rows by the
        stream's `tokenizer`.
        """
        if self._decoder is None:
            raise NoTokenizerError(
                f"the text of step {self.step} is unknown to a reader of connect(): decode its "
                "rows by reader.tokenizer.decode(row)",
                step=self.step,
            )
        return self._decoder.text()

    def html(self) -> str:
        """Returns a page of the first 64 rows for a browser, with more of each than a notebook.

        It runs and loads nothing: `Path("step-5.html").write_text(batch.html())` keeps it. Text and
        names of documents are in it where `batchweave.open` has read the batch.
        """
        return _html.page(self, self._decoder)

    def _repr_html_(self) -> str:
        """Returns the first rows for a notebook: as text, where `batchweave.open` has read them."""
        return _html.batch(self, self._decoder)

    def __repr__(self) -> str:
        slices = f"{len(self.slices)} slice{'s' if len(self.slices) > 1 else ''}"
        arrays = ", ".join(_shape(name, array) for name, array in self.slices[0].items())
        return f"<Batch step {self.step}, {slices} of {arrays}>"

    def __reduce__(self) -> Any:
        raise TypeError(
            "a batch views this process's memory and cannot be pickled: send copies of its arrays"
        )


def _rows(source: Slice | Batch, where: str) -> Array:
    tokens = source["tokens"]
    if tokens.ndim == 1:
        raise no_rows(where, "loop over batch.micro_batches(), which have inputs and labels")
    return tokens


def _loss_mask(source: Slice | Batch, where: str) -> Array:
    _rows(source, where)
    names = ("tokens", "loss_mask", "segment_ids")
    found: Array | None = mask_of_labels({name: source[name] for name in names if name in source})
    return np.ones(source.labels.shape, np.uint8) if found is None else found


def _shape(name: str, array: Array) -> str:
    return f"{name}: {array.dtype}{list(array.shape)}"
