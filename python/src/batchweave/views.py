"""Parts of a batch: micro-batches of rows, and a rank's share of each row (context parallelism).

They are views of the daemon's memory where that is possible, and work on numpy arrays and torch
tensors alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from batchweave.errors import BadMeshError
from batchweave.mesh import divisors

if TYPE_CHECKING:
    from batchweave.batch import Batch

WAYS = ("full", "contiguous", "zigzag")


def context(array: Any, rank: int, size: int, way: str = "zigzag") -> Any:
    """A context-parallel rank's share of each row; the last axis is the sequence.

    `full`: all of it. `contiguous`: the rank's part of `size` equal ones. `zigzag`: of 2 x `size`
    equal parts the rank's, counted from both ends, so that causal attention costs all ranks the
    same; the result has an axis of these two before the last one. Neither copies. Shift labels
    before (`packed` does).
    """
    if way not in WAYS or size < 1 or not 0 <= rank < size:
        raise BadMeshError(
            f"context-parallel rank {rank} of {size}, way {way!r}: ranks are 0 to {size - 1}, ways "
            f"{', '.join(WAYS)}"
        )
    if way == "full":
        return array
    parts = size if way == "contiguous" else 2 * size
    length = array.shape[-1]
    if length % parts:
        fit = [n for n in divisors(length) if way == "contiguous" or length % (2 * n) == 0]
        raise BadMeshError(
            f"rows of {length} can't be cut into {parts} equal parts ({way} for {size} ranks); "
            f"numbers of ranks that fit: {', '.join(map(str, fit)) or 'none'}"
        )
    cut = array.reshape(*array.shape[:-1], parts, length // parts)
    if way == "contiguous":
        return cut[..., rank, :]
    # Two elements: the rank's part from the front, and the one from the back.
    return cut[..., rank : parts - rank : parts - 1 - 2 * rank, :]


def micro_batches(batch: Batch, rows: int) -> Iterator[dict[str, Any]]:
    """The arrays of a batch, so many rows at a time, in order.

    Views where `rows` divides the rows of a slice; where a micro-batch spans slices, copies.
    """
    slices: list[Mapping[str, Any]] = [dict(piece) for piece in batch.slices]
    counts = {array.shape[0] if array.ndim else 0 for piece in slices for array in piece.values()}
    each = counts.pop()
    if counts or not each:
        raise BadMeshError(
            f"step {batch.step}: its arrays have different numbers of rows ({sorted(counts)} and "
            f"{each}), so they can't be split by rows: loop over batch.slices"
        )
    if rows >= 1 and each % rows == 0:
        for piece in slices:
            for at in range(0, each, rows):
                yield {name: array[at : at + rows] for name, array in piece.items()}
        return
    spans, rest = divmod(rows, each)
    if rows < 1 or rest or len(slices) % spans:
        fit = [*divisors(each), *(each * n for n in divisors(len(slices)) if n > 1)]
        raise BadMeshError(
            f"micro-batches of {rows} rows: this rank has {len(slices)} slices of {each} rows a "
            f"step; sizes that fit: {', '.join(map(str, fit))}"
        )
    for first in range(0, len(slices), spans):
        group = slices[first : first + spans]
        yield {name: np.concatenate([piece[name] for piece in group]) for name in group[0]}
