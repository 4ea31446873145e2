"""The labels of a batch in the order of its losses: which are learned, and of which source, row
and document each is.

Rows have a label per position but the first, bins of a balanced stream likewise. Documents are
numbered row by row, as they lie in the row: a border is where `document_ids` or `segment_ids`
change, or where the bin has one. A document whose only label is in the row before has one with no
label here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from batchweave._layout import Array
from batchweave._micro_batches import MicroBatch
from batchweave._packed import mask_of_labels
from batchweave._rows import SEGMENTS, count, is_balanced
from batchweave._values import DETAILS_MAX, DOCUMENTS, NO_DETAILS, NO_SOURCES, ROWS, SOURCES_MAX
from batchweave.batch import Batch
from batchweave.errors import BadReportError
from batchweave.views import WHOLE, Share, context, padded_for

_SOURCE_IDS, _DOCUMENT_IDS, _SEGMENT_IDS = "source_ids", "document_ids", "segment_ids"
DETAILS = {None: 0, "row": ROWS, "document": DOCUMENTS}


class Plan(NamedTuple):
    """How the losses of a step are added up."""

    step: int
    codes: Array
    """Per loss, int16: 1 where it counts; where known, the indexes of its source and its detail."""
    sources: Array | None
    """The number of each source."""
    details: int
    """The number of details; the index after the last is that of losses without one."""
    kind: int


class _Piece(NamedTuple):
    """The labels of one tensor of losses."""

    mask: Array | None
    sources: Array | None
    details: Array | None
    size: int


def rows_of(batch: Batch, part: int = 0, parts: int = 1) -> tuple[Array, int]:
    """Returns the number of each row of this rank in its coordinate, and the number of all rows.

    `parts`: as `split_rows`, where a rank has a part of each slice's rows.
    """
    places, first = [], 0
    for piece in batch.slices:
        own = count(piece)
        places.append(np.arange(own) + first + part * own)
        first += parts * own
    return np.concatenate(places), first


def documents_of(batch: Batch) -> int | None:
    """Returns the number of documents in a batch; None where the stream does not mark them."""
    if is_balanced(batch.slices[0]):
        return sum(len(piece["documents"]) - 1 for piece in batch.slices)
    if SEGMENTS in batch:
        return int(batch[SEGMENTS][-1])
    found = _documents(batch)
    return None if found is None else found[1]


def learned_tokens(batch: Batch) -> int | None:
    """Returns the number of labels that this rank learns; None for samples without tokens."""
    found = 0
    for piece in batch.slices:
        if "tokens" not in piece or (tokens := piece["tokens"]).ndim != 2:
            return _learned_of_bins(batch)
        # The most frequent case, in few instructions.
        masked = "loss_mask" in piece or _SEGMENT_IDS in piece
        mask = mask_of_labels(piece) if masked else None
        rows, width = tokens.shape
        found += rows * (width - 1) if mask is None else int(np.count_nonzero(mask))
    return found


def _learned_of_bins(batch: Batch) -> int | None:
    if not is_balanced(batch.slices[0]):
        return None
    return sum(int(np.count_nonzero(micro.loss_mask)) for micro in batch.micro_batches())


def plan(
    batch: Batch,
    sizes: Sequence[int],
    detail: str | None,
    share: Share = WHOLE,
    split: tuple[int, int] = (0, 1),
) -> Plan:
    """Returns how to add up losses in tensors of these sizes, in order."""
    kind = DETAILS[detail]
    if is_balanced(batch.slices[0]):
        pieces, details = _of_bins(batch, kind, share)
        if len(sizes) == 1 < len(pieces):
            sizes = _of_each_bin(sizes[0], pieces)
    else:
        whole, details = _of_rows(batch, kind, share, split)
        pieces, sizes = [whole], [sum(sizes)]
    _check_sizes(batch, pieces, sizes, share)
    if details > DETAILS_MAX:
        kind, details = NO_DETAILS, 0
    mask = _joined([piece.mask for piece in pieces], pieces, sizes, 1, 0)
    codes, numbers = [mask], None
    if all(piece.sources is not None for piece in pieces):
        found = _joined([piece.sources for piece in pieces], pieces, sizes, 0, 0)
        numbers = np.flatnonzero(np.bincount(found[mask > 0], minlength=1))
        if len(numbers) > SOURCES_MAX:
            kind, numbers = kind | NO_SOURCES, None
        else:
            index = np.zeros(1 << 16, np.int16)
            index[numbers] = np.arange(len(numbers))
            codes.append(index[found])
    if details:
        last = np.array(details)
        given = [piece.details for piece in pieces]
        codes.append(_joined(given, pieces, sizes, last, last))
    return Plan(
        batch.step, np.stack(codes, dtype=np.int16, casting="unsafe"), numbers, details, kind
    )


def _of_each_bin(size: int, pieces: Sequence[_Piece]) -> list[int]:
    """Returns the sizes of the bins in one tensor: side by side, or as rows of one length."""
    found = [piece.size for piece in pieces]
    padded, rest = divmod(size, len(pieces))
    if size == sum(found):
        return found
    return [size] if rest else [padded] * len(pieces)


def _joined(
    arrays: Sequence[Array | None],
    pieces: Sequence[_Piece],
    sizes: Sequence[int],
    missing: object,
    padding: object,
) -> Array:
    """Returns the pieces' arrays as one, each filled up to the size of its losses."""
    parts: list[Array] = []
    for array, piece, size in zip(arrays, pieces, sizes, strict=True):
        parts.append(np.full(piece.size, missing) if array is None else array.reshape(-1))
        if size > piece.size:
            parts.append(np.full(size - piece.size, padding))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _check_sizes(
    batch: Batch, pieces: Sequence[_Piece], sizes: Sequence[int], share: Share
) -> None:
    wanted = [piece.size for piece in pieces]
    # Bins may have been padded; the parts of longer ones would be other tokens.
    longer = len(wanted) == len(sizes) and is_balanced(batch.slices[0]) and share == WHOLE
    fits = all(a <= b for a, b in zip(wanted, sizes, strict=True)) if longer else False
    if not fits and list(sizes) != wanted:
        raise BadReportError(
            f"step {batch.step}: losses of {_sizes(sizes)} labels, the batch has {_sizes(wanted)}: "
            "give one loss for each label (batch.labels, reduction='none'), or a list with those "
            "of each micro-batch in order; for a part of each row pass part=(rank, size, way)",
            step=batch.step,
        )


def _sizes(sizes: Sequence[int]) -> str:
    return " + ".join(map(str, sizes[:4])) + (" + ..." if len(sizes) > 4 else "")


def _of_rows(batch: Batch, kind: int, share: Share, split: tuple[int, int]) -> tuple[_Piece, int]:
    if "tokens" not in batch or batch["tokens"].ndim != 2:
        raise BadReportError(
            f"step {batch.step} has no tokens, so its losses belong to no labels: give them with "
            "reader.report(batch, loss=..., tokens=..., rows=...)",
            step=batch.step,
        )
    tokens = batch["tokens"]
    names = ("tokens", "loss_mask", _SEGMENT_IDS)
    cut = _cut(share)
    shape = (tokens.shape[0], tokens.shape[1] - 1)
    mask = mask_of_labels({name: batch[name] for name in names if name in batch})
    sources = None
    if _SOURCE_IDS in batch and batch[_SOURCE_IDS].shape == tokens.shape:
        sources = cut(batch[_SOURCE_IDS][:, 1:])
    details, number = None, 0
    if kind == ROWS:
        places, number = rows_of(batch, *split)
        details = np.broadcast_to(places[:, None], shape)
    elif kind == DOCUMENTS:
        found = _documents(batch)
        if found is None:
            raise BadReportError(
                f"step {batch.step}: the stream does not mark its documents: packing.fields needs "
                '"document_ids" or "segment_ids" for losses by document',
                step=batch.step,
            )
        index, number = found
        details = np.where(index < 0, number, index)[:, 1:]
    size = cut(np.broadcast_to(np.uint8(0), shape)).size
    learned = None if mask is None else cut(mask)
    return _Piece(learned, sources, None if details is None else cut(details), size), number


def _documents(batch: Batch) -> tuple[Array, int] | None:
    """Returns the document of each token, -1 for padding, and the number of documents."""
    shape = batch["tokens"].shape if "tokens" in batch else ()
    new, padding = np.zeros(shape, bool), np.zeros(shape, bool)
    known = False
    for name, of_padding in ((_DOCUMENT_IDS, -1), (_SEGMENT_IDS, 0)):
        if name in batch and len(shape) == 2 and batch[name].shape == shape:
            ids, known = batch[name], True
            new[:, 1:] |= ids[:, 1:] != ids[:, :-1]
            padding |= ids == of_padding
    if not known:
        return None
    new[:, :1] = True
    new &= ~padding
    index = np.cumsum(new.reshape(-1)).reshape(shape) - 1
    return np.where(padding, -1, index), int(np.count_nonzero(new))


def _of_bins(batch: Batch, kind: int, share: Share) -> tuple[list[_Piece], int]:
    micros = list(batch.micro_batches())
    place = {piece.index: position for position, piece in enumerate(batch.slices)}
    in_order = sorted(micros, key=lambda micro: (place[micro.slice], micro.index))
    first, total = {}, 0
    for micro in in_order:
        first[id(micro)] = total
        total += 1 if kind == ROWS else len(micro.documents) - 1
    total = total if kind else 0
    return [_of_bin(micro, kind, share, first[id(micro)], total) for micro in micros], total


def _of_bin(micro: MicroBatch, kind: int, share: Share, first: int, last: int) -> _Piece:
    borders = micro.documents
    micro = micro if share == WHOLE else padded_for(micro, share)
    cut = _cut(share)
    details: Array | None = None
    if kind == ROWS:
        details = np.full(len(micro.labels), first)
    elif kind == DOCUMENTS:
        numbers = np.append(np.arange(len(borders) - 1) + first, last)
        padding = len(micro.tokens) - int(borders[-1])
        details = np.repeat(numbers, np.append(np.diff(borders), padding))[1:]
    sources = cut(micro[_SOURCE_IDS][1:]) if _SOURCE_IDS in micro.per_token else None
    mask = cut(micro.loss_mask)
    return _Piece(mask, sources, None if details is None else cut(details), mask.size)


def _cut(share: Share) -> Callable[[Array], Array]:
    return lambda array: array if share == WHOLE else context(array, *share)
