"""What a rank reads at one step: slices of named arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from batchweave._layout import Array
from batchweave.state import State


class Slice(Mapping[str, Array]):
    """Named arrays of one data coordinate, read-only views of the daemon's memory.

    Any of them (and any view of one) keeps the memory; when the last is gone, the daemon may use it
    again. bfloat16 arrays come as uint16, bit for bit, since numpy has no such type.
    """

    __slots__ = ("index", "_arrays", "__weakref__")

    def __init__(self, index: int, arrays: dict[str, Array]) -> None:
        self.index = index
        """The slice's number in its step, over all ranks."""
        self._arrays = arrays

    def __getitem__(self, name: str) -> Array:
        try:
            return self._arrays[name]
        except KeyError:
            raise KeyError(f"{name!r}; this slice has {sorted(self._arrays)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    @property
    def inputs(self) -> Array:
        """The rows of `tokens` without their last token."""
        return self["tokens"][:, :-1]

    @property
    def labels(self) -> Array:
        """The rows of `tokens` without their first token: what follows each input."""
        return self["tokens"][:, 1:]

    def __repr__(self) -> str:
        arrays = ", ".join(f"{n}: {a.dtype}{list(a.shape)}" for n, a in self._arrays.items())
        return f"<Slice {self.index} {arrays}>"


class Batch:
    """The slices of this rank at one step."""

    __slots__ = ("step", "slices", "_state", "__weakref__")

    def __init__(self, step: int, slices: list[Slice], state: State) -> None:
        self.step = step
        self.slices = slices
        self._state = state

    def state_dict(self) -> dict[str, str]:
        """The position after this batch: save it with the model that was trained on it."""
        return self._state.to_dict()

    def __getitem__(self, name: str) -> Array:
        """An array of the only slice."""
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
            "a batch views this process's memory and can't be pickled: send copies of its arrays"
        )
