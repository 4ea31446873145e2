"""Sums of losses by source, row and document, against a loop over all labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from balanced_slices import FIELDS, arranged, documents, ranks, slice_of
from test_whole import batch_of

from batchweave import errors
from batchweave._label_groups import Plan, documents_of, plan, rows_of
from batchweave.batch import Batch
from batchweave.views import WHOLE, Share, context

SLICES, ROWS, WIDTH = 2, 3, 13


class Sums(dict[int, list[float]]):
    """Sum and weight by group."""

    def add(self, group: int, loss: float, weight: float = 1.0) -> None:
        if weight:
            one = self.setdefault(group, [0.0, 0.0])
            one[0] += loss * weight
            one[1] += weight


Sum = tuple[float, Sums, Sums]


def rows_batch(seed: int = 0, *, fields: Sequence[str] = ("document_ids", "source_ids")) -> Batch:
    """Rows of documents of chance lengths, with padding at the end of some."""
    chance = np.random.default_rng(seed)
    pieces = []
    for _ in range(SLICES):
        ids = np.full((ROWS, WIDTH), -1, np.int64)
        segments = np.zeros((ROWS, WIDTH), np.int32)
        for row in range(ROWS):
            at, number = 0, 0
            while at < WIDTH - int(chance.integers(0, 4)):
                end, number = at + int(chance.integers(1, 6)), number + 1
                ids[row, at:end], segments[row, at:end] = chance.integers(0, 50), number
                at = end
        arrays: dict[str, Any] = {
            "tokens": chance.integers(0, 99, (ROWS, WIDTH)).astype(np.uint16),
            "document_ids": ids,
            "segment_ids": segments,
            "source_ids": np.where(ids < 0, 0, ids % 3 + 7).astype(np.uint16),
            "loss_mask": (chance.random((ROWS, WIDTH)) < 0.7).astype(np.uint8) * (ids >= 0),
        }
        pieces.append({name: arrays[name].copy() for name in ("tokens", "loss_mask", *fields)})
    return batch_of(*pieces)


def added(found: Plan, losses: Any) -> Sum:
    """The sums that a device makes by a plan."""
    mask, *indexes = found.codes
    groups: list[Sums] = []
    for index in indexes:
        groups.append(Sums())
        for weight, of, loss in zip(mask, index, losses, strict=True):
            groups[-1].add(int(of), float(loss), float(weight))
    sources = Sums()
    if found.sources is not None:
        numbers = [int(number) for number in found.sources]
        sources.update({numbers[of]: pair for of, pair in groups[0].items()})
    details = groups[-1] if found.details else Sums()
    details.pop(found.details, None)
    return float((mask * losses).sum()), sources, details


def expected(batch: Batch, losses: Any, detail: str) -> Sum:
    """The same from a loop over the tokens of all rows."""
    total, sources, details = 0.0, Sums(), Sums()
    row = document = -1
    given = iter(losses)
    for piece in batch.slices:
        ids = [piece[name] for name in ("document_ids", "segment_ids") if name in piece]
        padding = -1 if "document_ids" in piece else 0
        for own in range(ROWS):
            row, last = row + 1, None
            for at in range(WIDTH):
                here = tuple(int(of[own, at]) for of in ids)
                if here[0] != padding and here != last:
                    document += 1
                last = here
                loss = next(given) if at else 0.0
                if at and piece["loss_mask"][own, at]:
                    total += loss
                    sources.add(int(piece["source_ids"][own, at]), loss)
                    details.add(row if detail == "row" else document, loss)
    return total, sources, details


def same(found: Sum, want: Sum) -> None:
    assert found[0] == pytest.approx(want[0])
    for one, two in zip(found[1:], want[1:], strict=True):
        assert set(one) == set(two)
        for key, pair in two.items():
            assert one[key] == pytest.approx(pair), key


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("detail", ["row", "document"])
@pytest.mark.parametrize("ids", ["document_ids", "segment_ids", "both"])
def test_rows_are_added_up_by_source_and_detail(seed: int, detail: str, ids: str) -> None:
    names = ("document_ids", "segment_ids") if ids == "both" else (ids,)
    batch = rows_batch(seed, fields=(*names, "source_ids"))
    losses = np.random.default_rng(seed + 100).random(SLICES * ROWS * (WIDTH - 1))
    found = plan(batch, [losses.size], detail)
    want = expected(batch, losses, detail)
    same(added(found, losses), want)
    assert found.details == (SLICES * ROWS if detail == "row" else documents_of(batch))
    parts = plan(batch, [5, losses.size - 5], detail)
    assert (parts.codes == found.codes).all()


@pytest.mark.parametrize("way", ["contiguous", "zigzag"])
def test_parts_of_rows_add_up_to_the_whole(way: str) -> None:
    batch, shape = rows_batch(3), (SLICES * ROWS, WIDTH - 1)
    losses = np.random.default_rng(5).random(shape)
    whole = added(plan(batch, [losses.size], "document"), losses.reshape(-1))
    total, sums = 0.0, (Sums(), Sums())
    for rank in range(3):
        share: Share = (rank, 3, way)
        part = context(losses, *share)
        found = added(plan(batch, [part.size], "document", share), part.reshape(-1))
        total += found[0]
        for into, of in zip(sums, found[1:], strict=True):
            for key, pair in of.items():
                into.add(key, pair[0] / pair[1], pair[1])
    same((total, *sums), whole)


@pytest.mark.parametrize(
    ("form", "share"),
    [
        *((form, WHOLE) for form in ("bins", "side by side", "padded", "one array")),
        # Parts have the least padding.
        ("bins", (1, 2, "zigzag")),
    ],
)
def test_bins_are_added_up_in_the_order_of_slices(form: str, share: Share) -> None:
    slices = arranged(documents(90, seed=2), seed=2)
    batch = ranks(slices, 4)[1]
    micros = list(batch.micro_batches())
    longest = max(len(micro.inputs) for micro in micros) + 3
    pieces = []
    for micro in micros:
        # The loss of a label is its document's number.
        losses = micro["document_ids"][1:].astype(float)
        if share != WHOLE:
            size = -(-len(losses) // 4) * 4
            losses = context(np.append(losses, np.zeros(size - len(losses))), *share).reshape(-1)
        elif form in ("padded", "one array"):
            losses = np.append(losses, np.full(longest - len(losses), 1e9))
        pieces.append(losses)
    sizes = [len(one) for one in pieces]
    if form in ("side by side", "one array"):
        sizes = [sum(sizes)]
    every = np.concatenate(pieces)
    found = plan(batch, sizes, "document", share)
    own = [document for piece in slices[2:4] for one in piece for document in one]
    assert found.details == len(own) == documents_of(batch)
    _, _, details = added(found, every)
    for at, document in enumerate(own):
        total, weight = details.get(at, [0.0, 0.0])
        assert total == pytest.approx(weight * document.number)
        if share == WHOLE:
            # A bin's first label is its second token, and a document's first is never learned.
            assert weight == document.mask.sum()
    rows = plan(batch, sizes, "row", share)
    assert rows.details == 2 * len(slices[0])
    of_rows = added(rows, every)[2]
    if share == WHOLE:
        want = [sum(float(d.mask.sum()) for d in one) for piece in slices[2:4] for one in piece]
        assert [of_rows.get(at, [0, 0.0])[1] for at in range(len(want))] == want


def test_rows_of_a_part_of_the_rows_have_places_in_the_whole() -> None:
    batch = rows_batch()
    assert rows_of(batch)[0].tolist() == [0, 1, 2, 3, 4, 5]
    places, total = rows_of(batch, 1, 2)
    assert (places.tolist(), total) == ([3, 4, 5, 9, 10, 11], 12)


def test_too_many_sources_and_details_are_left_out_and_named() -> None:
    tokens = np.zeros((2, 301), np.uint16)
    ids = np.arange(602, dtype=np.uint16).reshape(2, 301)
    found = plan(batch_of({"tokens": tokens, "source_ids": ids}), [600], None)
    assert (found.kind, found.sources, len(found.codes)) == (16, None, 1)
    many = np.zeros((4, 2001), np.uint16)
    alone = np.arange(8004, dtype=np.int64).reshape(4, 2001)
    found = plan(batch_of({"tokens": many, "document_ids": alone}), [8000], "document")
    assert (found.kind, found.details, len(found.codes)) == (8, 0, 1)


def test_losses_that_fit_no_labels_are_refused() -> None:
    batch = rows_batch()
    labels = SLICES * ROWS * (WIDTH - 1)
    for sizes in ([labels - 1], [labels + SLICES * ROWS], [labels, 1], [1]):
        with pytest.raises(ValueError, match=f"the batch has {labels}: give one loss for each"):
            plan(batch, sizes, None)
    with pytest.raises(ValueError, match="has 18: give one"):
        plan(batch, [labels], None, (0, 4, "contiguous"))
    with pytest.raises(ValueError, match="does not mark its documents"):
        plan(rows_batch(fields=()), [labels], "document")
    with pytest.raises(ValueError, match="no tokens, so its losses belong to no labels"):
        plan(batch_of({"image": np.zeros(6), "image.offsets": np.array([0, 6])}), [1], None)
    balanced = batch_of(slice_of(arranged(documents(20))[0], 0, FIELDS))
    with pytest.raises(errors.BadReportError, match="a list with those of each micro-batch"):
        plan(balanced, [1, 1, 1, 1], None)
