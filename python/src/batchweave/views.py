"""Parts of a batch: micro-batches of rows, and a rank's share of each row (context parallelism).

They are views of the daemon's memory where that is possible, and work on numpy arrays and torch
tensors alike.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from batchweave._bins import no_rows
from batchweave._conventions import MASK, OF_INPUTS
from batchweave._joined import OFFSETS, joined
from batchweave._micro_batches import MicroBatch
from batchweave._packed import packed, unshifted_already
from batchweave._rows import counts, cut, is_balanced, is_offsets
from batchweave.errors import BadMeshError
from batchweave.mesh import divisors

if TYPE_CHECKING:
    from batchweave.batch import Batch

WAYS = ("full", "contiguous", "zigzag")

Share = tuple[int, int, str]
"""A part of each row: a context-parallel rank, the number of ranks, and one of the WAYS."""
WHOLE: Share = (0, 1, "full")

# Arrays with an entry per position of a row, by the names of `packed`.
_CUT = frozenset(["input_ids", "labels", *OF_INPUTS.values(), MASK])
# Borders in the whole row, the same for all its ranks.
_KEPT = frozenset(["cu_seqlens", "num_segments"])


def context(array: Any, rank: int, size: int, way: str = "zigzag") -> Any:
    """Returns a context-parallel rank's share of each row; the last axis is the sequence.

    `full`: the whole row. `contiguous`: one of `size` equal parts. `zigzag`: two of 2 x `size`
    equal parts, counted from both ends, so that causal attention costs all ranks the same; the
    result has an axis of these two before the last one. Neither copies. Shift labels first
    (`context_parallel` does, for all arrays of a slice).
    """
    length = array.shape[-1]
    check_share(length, (rank, size, way))
    if way == "full":
        return array
    parts = size if way == "contiguous" else 2 * size
    cut = array.reshape(*array.shape[:-1], parts, length // parts)
    if way == "contiguous":
        return cut[..., rank, :]
    # Two elements: the rank's part from the front, and the one from the back.
    return cut[..., rank : parts - rank : parts - 1 - 2 * rank, :]


def context_parallel(
    arrays: Mapping[str, Any], rank: int, size: int, way: str = "zigzag"
) -> dict[str, Any]:
    """Returns a context-parallel rank's share of the arguments of a model's call, as views.

    `arrays`: a slice, a micro-batch, tensors of either, or the result of `packed` with
    `labels="shifted"`. `tokens` are shifted before they are cut, so a part's last label is the
    first input of the next part, on any rank; unshifted labels are an error, because a model cannot
    shift its part by itself. Arrays with an entry per position of a row are cut as by `context`:
    inputs, labels, position_ids, segment_ids, document_ids, loss_mask. `cu_seqlens` stays whole:
    its borders are positions in the whole row, which all its ranks need. Other arrays are passed
    on; those as wide as a row are an error, because only the caller knows how to shift them.

    A micro-batch of a balanced stream is padded first (`padded_for`), so its parts are copies:
    lengths of bins are arbitrary, so an error for those that do not divide would be the rule, and
    the padding is less than `size` tokens, or twice that for zigzag. Its borders are those of the
    whole bin, for ring attention over packed documents. Zigzag makes the parts of a bin equal, not
    those of each document.
    """
    if isinstance(arrays, MicroBatch):
        arrays = padded_for(arrays, (rank, size, way))
    given = packed(arrays, labels="shifted")
    if way == "full":
        check_share(0, (rank, size, way))
        return given
    if "input_ids" not in given:
        raise BadMeshError(
            f"context-parallel parts of {sorted(given)}: only rows of tokens have parts, but there "
            "are neither tokens nor input_ids; cut single arrays with batchweave.views.context"
        )
    if unshifted_already(given):
        raise BadMeshError(
            "context-parallel parts of unshifted labels: the last label of a part is in the part "
            'of another rank, so shift before dividing: packed(arrays, labels="shifted"), or '
            'to_device(batch, labels="shifted")'
        )
    width = given["input_ids"].shape[-1]
    for name, value in given.items():
        # Items of documents are passed on: they are independent of the positions in a row.
        if hasattr(value, "shape") and not is_offsets(name + OFFSETS, given):
            _check_array(name, value.shape, width)
    return {
        name: context(value, rank, size, way) if name in _CUT else value
        for name, value in given.items()
    }


def padded_for(micro: MicroBatch, share: Share) -> MicroBatch:
    """Returns a micro-batch with the least padding that lets it have such a share."""
    _, size, way = share
    # Rows of length 0 have any share, so this checks only the arguments.
    check_share(0, share)
    parts = _parts(size, way)
    return micro.padded(math.ceil(len(micro.inputs) / parts) * parts)


def _parts(size: int, way: str) -> int:
    return {"full": 1, "contiguous": size, "zigzag": 2 * size}[way]


def check_share(length: int, share: Share) -> None:
    """Checks that rows of `length` have such a share; an error lists valid arguments."""
    rank, size, way = share
    if way not in WAYS or size < 1 or not 0 <= rank < size:
        raise BadMeshError(
            f"context-parallel rank {rank} of {size}, way {way!r}: ranks are 0 to {size - 1}, ways "
            f"{', '.join(WAYS)}"
        )
    parts = _parts(size, way)
    if length % parts:
        fit = [n for n in divisors(length) if way == "contiguous" or length % (2 * n) == 0]
        raise BadMeshError(
            f"cannot cut rows of {length} into {parts} equal parts ({way} for {size} ranks); "
            f"numbers of ranks that fit: {', '.join(map(str, fit)) or 'none'}"
        )


def _check_array(name: str, shape: tuple[int, ...], width: int) -> None:
    if name in _CUT:
        if shape[-1] != width:
            raise BadMeshError(
                f"{name} has rows of {shape[-1]}, input_ids of {width}: they cannot be cut alike; "
                "pass arrays of one slice, all of them or the result of packed()"
            )
    elif name not in _KEPT and len(shape) > 1 and shape[-1] in (width, width + 1):
        raise BadMeshError(
            f"array {name!r} is as wide as a row ({list(shape)}), but whether it belongs to inputs "
            "or labels is unknown: shift it, cut it with batchweave.views.context, or leave it out"
        )


def micro_batches(batch: Batch, rows: int) -> Iterator[dict[str, Any]]:
    """Returns the arrays of a batch `rows` rows at a time, in order.

    Views where a micro-batch lies in one slice; copies where it spans several. Arrays of documents
    or samples (NAME with `NAME.offsets`) have the items of these rows, and offsets count from 0.
    """
    if any(is_balanced(piece) for piece in batch.slices):
        raise no_rows(
            f"step {batch.step}: micro-batches of {rows} rows",
            "call micro_batches() without rows, which yields the bins",
        )
    return _of_rows(batch, rows)


def _of_rows(batch: Batch, rows: int) -> Iterator[dict[str, Any]]:
    slices: list[Mapping[str, Any]] = [dict(piece) for piece in batch.slices]
    found = [counts(piece) for piece in slices]
    for of_slice in found:
        if len(set(of_slice.values())) != 1 or 0 in of_slice.values():
            raise BadMeshError(
                f"step {batch.step}: its arrays have different numbers of rows ({of_slice}), so "
                "they cannot be split by rows: loop over batch.slices"
            )
    ends = [0, *itertools.accumulate(next(iter(of_slice.values())) for of_slice in found)]
    if rows < 1 or ends[-1] % rows:
        raise BadMeshError(
            f"micro-batches of {rows} rows: this rank has {ends[-1]} rows a step, in {len(slices)} "
            f"slices; sizes that fit: {', '.join(map(str, divisors(ends[-1])))}"
        )
    for first in range(0, ends[-1], rows):
        parts = [
            cut(piece, max(first, at) - at, min(first + rows, end) - at)
            for piece, (at, end) in zip(slices, itertools.pairwise(ends), strict=True)
            if at < first + rows and end > first
        ]
        yield {name: joined(batch.step, name, [part[name] for part in parts]) for name in slices[0]}
