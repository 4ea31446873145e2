"""Slices of balanced streams: documents side by side, in bins of equal cost instead of rows.

`tokens` of such a slice are one sequence of any length. `documents` has the borders of its
documents in tokens, `bins` those of its bins in documents, `costs` the cost of each bin, and
`loss_tokens` the number of learned tokens of the global batch. A bin is one micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from batchweave._joined import OFFSETS
from batchweave._layout import Array
from batchweave._rows import BINS, DOCUMENTS, from_zero, is_offsets
from batchweave.errors import BadShapeError

COSTS = "costs"
LOSS_TOKENS = "loss_tokens"
_OF_SLICES = frozenset([BINS, COSTS, LOSS_TOKENS])


def no_rows(what: str, remedy: str) -> BadShapeError:
    """Returns the error of a call that needs rows of one length."""
    return BadShapeError(
        f"{what}: a balanced stream has bins of any length instead of rows: {remedy}"
    )


def loss_tokens(step: int, slices: Sequence[Mapping[str, Array]]) -> int:
    """Returns the number of learned tokens of the global batch, which all slices state alike."""
    found = {int(number) for piece in slices for number in piece[LOSS_TOKENS].reshape(-1)}
    if len(found) != 1:
        raise BadShapeError(
            f"step {step}: array {LOSS_TOKENS!r} of this rank's slices has {sorted(found)}, but "
            "all slices of a step have one number; report it with the producer's version",
            step=step,
        )
    return found.pop()


class Bins:
    """The bins of a slice, with borders that divide its arrays."""

    __slots__ = ("_arrays", "_documents", "_tokens", "per_token")

    def __init__(self, arrays: Mapping[str, Array], where: str) -> None:
        self._arrays = arrays
        tokens = len(arrays["tokens"])
        documents = len(arrays[DOCUMENTS]) - 1
        self._documents = _borders(arrays, BINS, documents, "documents", where)
        borders = _borders(arrays, DOCUMENTS, tokens, "tokens", where)
        self._tokens = [borders[document] for document in self._documents]
        known = _OF_SLICES | {DOCUMENTS}
        own = [n for n in arrays if n not in known and not is_offsets(n, arrays)]
        self.per_token = tuple(name for name in own if not is_offsets(name + OFFSETS, arrays))
        """The names of the arrays with an entry per token."""
        counts = {name: (len(arrays[name]), tokens, "tokens") for name in self.per_token}
        counts |= {COSTS: (len(arrays[COSTS]), len(self), "bins")}
        for name in arrays:
            if is_offsets(name, arrays):
                items = name.removesuffix(OFFSETS)
                counts[name] = (len(arrays[name]) - 1, documents, "documents")
                _borders(arrays, name, len(arrays[items]), "items", where)
        for name, (found, wanted, unit) in counts.items():
            if found != wanted:
                raise BadShapeError(
                    f"{where}: array {name!r} has {found} entries for {wanted} {unit}: it is not "
                    "that of a balanced stream; report it with the producer's version"
                )

    def __len__(self) -> int:
        return len(self._documents) - 1

    def cost(self, number: int) -> float:
        """Returns the cost of a bin in tokens."""
        return float(self._arrays[COSTS][number])

    def arrays(self, number: int) -> dict[str, Array]:
        """Returns the arrays of one bin, without those of slices: views, but borders from 0."""
        first, end = self._documents[number : number + 2]
        at, to = self._tokens[number : number + 2]
        found = {}
        for name, array in self._arrays.items():
            if name in _OF_SLICES:
                continue
            if name == DOCUMENTS or is_offsets(name, self._arrays):
                found[name] = from_zero(array, first, end)
            elif name in self.per_token:
                found[name] = array[at:to]
            else:
                offsets = self._arrays[name + OFFSETS]
                found[name] = array[int(offsets[first]) : int(offsets[end])]
        return found


def _borders(
    arrays: Mapping[str, Array], name: str, items: int, unit: str, where: str
) -> list[int]:
    array = arrays[name]
    if (
        array.ndim != 1
        or not len(array)
        or array[0] != 0
        or array[-1] != items
        or (array[1:] < array[:-1]).any()
    ):
        raise BadShapeError(
            f"{where}: array {name!r} does not divide the {max(items, 0)} {unit}: it must rise "
            "from 0 to their number; report it with the producer's version"
        )
    found: list[int] = array.tolist()
    return found
