"""A rank's batch at one step: slices of named arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from batchweave._layout import Array, Arrays, Layout
from batchweave.errors import BadMeshError
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

    def copy(self) -> Slice:
        """Returns private, writable copies of the arrays."""
        return Slice(self.index, {name: view.copy() for name, view in self.items()}, self._layout)

    def rows(self, part: int, parts: int) -> Slice:
        """Returns the rows of one of `parts` equal parts of each array, as views."""
        counts = {name: array.shape[0] if array.ndim else 0 for name, array in self.items()}
        each = max(counts.values())
        if set(counts.values()) != {each} or each % parts:
            raise BadMeshError(
                f"slice {self.index} cannot be split into {parts} parts of whole rows: its arrays "
                f"have {counts} rows; use fewer ranks, or a stream with more slices"
            )
        own = slice(each // parts * part, each // parts * (part + 1))
        return Slice(self.index, {name: array[own] for name, array in self.items()}, self._layout)

    @property
    def inputs(self) -> Array:
        """The rows of `tokens` without their last token."""
        return self["tokens"][:, :-1]

    @property
    def labels(self) -> Array:
        """The rows of `tokens` without their first token: the token after each input."""
        return self["tokens"][:, 1:]

    def is_bfloat16(self, name: str) -> bool:
        """Returns whether the array holds bfloat16, which numpy shows as uint16."""
        return name in self._layout.bfloat16

    def __repr__(self) -> str:
        arrays = ", ".join(f"{n}: {a.dtype}{list(a.shape)}" for n, a in self.items())
        return f"<Slice {self.index} {arrays}>"


class Batch:
    """The slices of this rank at one step."""

    __slots__ = ("step", "slices", "_origin", "__weakref__")

    def __init__(self, step: int, slices: list[Slice], origin: State) -> None:
        self.step = step
        self.slices = slices
        # A state of this reader without the step: most batches' states are never needed.
        self._origin = origin

    def state_dict(self) -> dict[str, str]:
        """Returns the position after this batch: save it with the model trained on it."""
        return dataclasses.replace(self._origin, next_step=self.step + 1).to_dict()

    def micro_batches(self, rows: int) -> Iterator[dict[str, Array]]:
        """Yields the arrays `rows` rows at a time: views, or copies where one spans slices."""
        return micro_batches(self, rows)

    def __getitem__(self, name: str) -> Array:
        """Returns an array of the only slice."""
        return self._only()[name]

    @property
    def inputs(self) -> Array:
        """`inputs` of the only slice."""
        return self._only().inputs

    @property
    def labels(self) -> Array:
        """`labels` of the only slice."""
        return self._only().labels

    def _only(self) -> Slice:
        if len(self.slices) != 1:
            raise TypeError(
                f"step {self.step} has {len(self.slices)} slices for this rank: "
                "loop over batch.slices (they are its micro-batches)"
            )
        return self.slices[0]

    def __repr__(self) -> str:
        return f"<Batch step {self.step} {self.slices!r}>"

    def __reduce__(self) -> Any:
        raise TypeError(
            "a batch views this process's memory and cannot be pickled: send copies of its arrays"
        )
