"""Micro-batches of balanced streams: the same for any number of ranks, as views."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from balanced_slices import (
    BINS,
    FIELDS,
    SLICES,
    Bin,
    arranged,
    cost_of,
    documents,
    learned,
    ranks,
    serves,
    slice_of,
)
from conftest import eventually
from fake_daemon import FakeDaemon
from test_whole import batch_of

import batchweave
from batchweave import MicroBatch, errors
from batchweave._layout import Layout
from batchweave.batch import Batch, Slice
from batchweave.state import State

SLICED = arranged(documents(60))
NO_FIELDS: tuple[str, ...] = ()


def of_bin(one: Bin) -> dict[str, list[Any]]:
    """What a micro-batch of these documents has, by the definition: entries of each token."""
    every = [(d, k) for d in one for k in range(len(d.tokens))]
    return {
        "tokens": [int(d.tokens[k]) for d, k in every],
        "loss_mask": [int(d.mask[k]) for d, k in every],
        "positions": [k for _, k in every],
        "segment_ids": [one.index(d) + 1 for d, _ in every],
    }


def in_order(slices: list[list[Bin]], world: int, rank: int) -> Iterator[tuple[int, int, Bin]]:
    """Index, slice and documents of a rank's micro-batches."""
    each = SLICES // world
    for index in range(BINS):
        for piece in range(rank * each, (rank + 1) * each):
            yield index, piece, slices[piece][index]


@pytest.mark.parametrize("fields", [FIELDS, NO_FIELDS])
@pytest.mark.parametrize("world", [1, 2, 4, 8])
def test_each_world_makes_the_same_micro_batches(world: int, fields: tuple[str, ...]) -> None:
    slices = arranged(documents(60, masked=bool(fields)))
    found = set()
    for rank, batch in enumerate(ranks(slices, world, fields)):
        micros = list(batch.micro_batches())
        places = [(micro.index, micro.slice) for micro in micros]
        wanted = list(in_order(slices, world, rank))
        assert places == [(index, piece) for index, piece, _ in wanted]
        assert [micro.index for micro in micros] == sorted(micro.index for micro in micros)
        found |= set(places)
        for micro, (_, _, one) in zip(micros, wanted, strict=True):
            want = of_bin(one)
            assert micro.tokens.tolist() == want["tokens"]
            assert micro.inputs.tolist() == want["tokens"][:-1]
            assert micro.labels.tolist() == want["tokens"][1:]
            assert micro.loss_mask.tolist() == want["loss_mask"][1:]
            assert micro.positions.tolist() == want["positions"][:-1]
            assert micro.segment_ids.tolist() == want["segment_ids"][:-1]
            assert micro.documents.tolist() == [0, *np.cumsum([len(d.tokens) for d in one])]
            kinds = [each.dtype for each in (micro.loss_mask, micro.positions, micro.segment_ids)]
            assert kinds == [np.dtype(name) for name in ("u1", "i4", "i4")]
            assert micro.cost == pytest.approx(cost_of(one))
            assert micro.loss_tokens == learned(slices)
    assert found == set(itertools.product(range(BINS), range(SLICES)))


def test_borders_are_at_documents_among_the_inputs() -> None:
    for batch in ranks(SLICED, 2):
        for micro in batch.micro_batches():
            lengths = np.diff(micro.documents).tolist()
            # The last token is a label only.
            if lengths:
                lengths[-1] -= 1
            wanted = [0, *np.cumsum([n for n in lengths if n])]
            assert micro.cu_seqlens.tolist() == wanted
            assert micro.cu_seqlens.dtype == np.int32
            assert micro.cu_seqlens[-1] == len(micro.inputs)
            assert micro.max_seqlen == max(lengths, default=0)
            assert isinstance(micro.max_seqlen, int)


def test_a_document_of_which_only_the_label_is_left_has_no_border() -> None:
    one = [documents(20)[k] for k in (0, 1)]
    short = next(d for d in documents(99) if len(d.tokens) == 1)
    (micro,) = batch_of(slice_of([[*one, short]], 1, NO_FIELDS)).micro_batches()
    assert micro.cu_seqlens.tolist() == micro.documents.tolist()[:-1]
    (micro,) = batch_of(slice_of([[short]], 1)).micro_batches()
    assert (micro.inputs.size, micro.labels.size, micro.cu_seqlens.tolist()) == (0, 0, [0])


def test_an_empty_bin_is_an_empty_micro_batch_and_counts() -> None:
    batch = ranks(SLICED, 1)[0]
    last = list(batch.micro_batches())[-1]
    assert (last.index, last.slice) == (BINS - 1, SLICES - 1)
    assert not SLICED[-1][-1]
    for name in ("tokens", "inputs", "labels", "loss_mask", "positions", "segment_ids"):
        assert getattr(last, name).shape == (0,), name
    assert last.cu_seqlens.tolist() == last.documents.tolist() == [0]
    assert (last.max_seqlen, last.cost, len(last.ragged("image"))) == (0, 0.0, 0)
    # Even a batch of nothing but empty bins.
    empty = batch_of(slice_of([[]] * 3, 0), slice_of([[]] * 3, 0))
    assert [len(micro.inputs) for micro in empty.micro_batches()] == [0] * 6
    assert [len(micro.padded(4).inputs) for micro in empty.micro_batches()] == [4] * 6


def test_stored_arrays_are_views_and_computed_ones_are_private() -> None:
    batch = ranks(SLICED, 2)[1]
    for micro in batch.micro_batches():
        piece = next(each for each in batch.slices if each.index == micro.slice)
        shared = ("tokens", "loss_mask", "positions", "segment_ids")
        views = [(micro[name], piece[name]) for name in (*shared, "weight", "image")]
        views += [(getattr(micro, name), piece[name]) for name in shared]
        views += [(micro.inputs, piece["tokens"]), (micro.labels, piece["tokens"])]
        for view, stored in views:
            assert not view.size or np.shares_memory(view, stored)
            assert not view.flags.writeable
    for micro in ranks(SLICED, 8, NO_FIELDS)[0].micro_batches():
        assert micro.positions.flags.writeable


def test_further_arrays_belong_to_the_documents_of_a_bin() -> None:
    for batch in ranks(SLICED, 2):
        for micro in batch.micro_batches():
            one = SLICED[micro.slice][micro.index]
            assert micro["weight"].tolist() == [d.weight for d in one for _ in d.tokens]
            assert micro["document_ids"].tolist() == [d.number for d in one for _ in d.tokens]
            images = micro.ragged("image")
            assert [len(each) for each in images] == [len(d.image) for d in one]
            assert micro["image.offsets"][0] == 0
            for entry, document in zip(images, one, strict=True):
                assert entry == pytest.approx(document.image)
            assert len(images.of_row(0)) == len(one)
    assert {"tokens", "documents", "image", "image.offsets"} <= set(micro)
    assert not {"bins", "costs", "loss_tokens"} & set(micro)
    assert "weight" in micro
    assert len(micro) == len(dict(micro))
    with pytest.raises(KeyError, match="'reward'; this micro-batch has"):
        micro["reward"]
    assert repr(micro) == "<MicroBatch 2 of slice 7, 0 documents, 0 tokens>"


def test_a_step_has_the_learned_tokens_of_the_global_batch() -> None:
    for world in (2, 4):
        batches = ranks(SLICED, world)
        assert {batch.loss_tokens for batch in batches} == {learned(SLICED)}
        # What this world's ranks learn, all together.
        micros = [micro for batch in batches for micro in batch.micro_batches()]
        assert sum(int(micro.loss_mask.sum()) for micro in micros) == learned(SLICED)
    one, two = slice_of(SLICED[0], 5), slice_of(SLICED[1], 6)
    with pytest.raises(errors.BadShapeError, match=r"step 7: array 'loss_tokens' .* has \[5, 6\]"):
        _ = batch_of(one, two).loss_tokens
    rows = batch_of({"tokens": np.zeros((2, 5), np.uint16)})
    with pytest.raises(errors.BadShapeError, match=r"only balanced streams.*all_reduce"):
        _ = rows.loss_tokens


def test_padding_is_learned_and_seen_by_no_document() -> None:
    for fields in (FIELDS, NO_FIELDS):
        for batch in ranks(arranged(documents(60, masked=bool(fields))), 2, fields):
            for micro in batch.micro_batches():
                width = len(micro.inputs)
                found = micro.padded(width + 3)
                real, added = len(micro.tokens), found.padding
                assert len(found.inputs) == len(found.labels) == len(found.positions) == width + 3
                assert found.tokens[:real].tolist() == micro.tokens.tolist()
                assert not found.tokens[real:].any()
                assert found.loss_mask[:width].tolist() == micro.loss_mask.tolist()
                assert not found.loss_mask[width:].any()
                assert found.segment_ids[:width].tolist() == micro.segment_ids.tolist()
                assert not found.segment_ids[real:].any()
                assert found.positions[real:].tolist() == list(range(added - 1))
                assert found.documents.tolist() == micro.documents.tolist()
                assert found.cu_seqlens[-1] == width + 3
                assert real in found.cu_seqlens.tolist(), "padding is a sequence of its own"
                assert not np.shares_memory(found.tokens, micro.tokens)
                again = found.padded(width + 5)
                assert again.positions.tolist() == micro.padded(width + 5).positions.tolist()
                assert again.padding == micro.padded(width + 5).padding
                assert micro.padded(width) is micro
                if "weight" in micro:
                    assert len(found["weight"]) == len(found.tokens)
                    assert found["document_ids"][real:].tolist() == [-1] * added
    with pytest.raises(errors.BadShapeError, match=r"padded\(1\): .* has \d+ inputs"):
        max(ranks(SLICED, 1)[0].micro_batches(), key=lambda micro: len(micro.inputs)).padded(1)


def softmax_gradient(weights: Any, micro: MicroBatch, loss_tokens: int) -> Any:
    """The gradient of a model of one layer, whose logits are those of the input's token."""
    logits = weights[micro.inputs]
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    chances[np.arange(len(chances)), micro.labels] -= 1
    found = np.zeros_like(weights)
    np.add.at(found, micro.inputs, chances * micro.loss_mask[:, None] / loss_tokens)
    return found


@pytest.mark.parametrize("fields", [FIELDS, NO_FIELDS])
def test_the_gradient_does_not_depend_on_the_arrangement(fields: tuple[str, ...]) -> None:
    given = documents(80, seed=3, masked=bool(fields))
    weights = np.random.default_rng(5).standard_normal((50, 50))
    found = []
    for seed, world in ((1, 4), (2, 2)):
        gradient = np.zeros_like(weights)
        for batch in ranks(arranged(given, seed=seed), world, fields):
            for micro in batch.micro_batches():
                gradient += softmax_gradient(weights, micro, batch.loss_tokens)
        found.append(gradient)
    assert np.abs(found[0]).max() > 1e-3
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12, atol=1e-15)
    # The same as that of each document alone.
    alone = np.zeros_like(weights)
    total = sum(int(d.mask.sum()) for d in given)
    for document in given:
        (micro,) = batch_of(slice_of([[document]], total, fields)).micro_batches()
        alone += softmax_gradient(weights, micro, total)
    np.testing.assert_allclose(found[0], alone, rtol=1e-12, atol=1e-15)


def test_micro_batches_view_and_hold_the_daemons_memory(path: Path) -> None:
    total = learned(SLICED)
    steps = [[slice_of(SLICED[k], total) for k in (2 * step, 2 * step + 1)] for step in range(2)]
    with FakeDaemon(path, slices=2, slots=64) as daemon:
        daemon.on_hello = serves(steps)
        with batchweave.connect(path, credits=2) as reader:
            batch = next(reader)
            for micro in batch.micro_batches():
                one = SLICED[micro.slice][micro.index]
                assert micro.inputs.tolist() == of_bin(one)["tokens"][:-1]
                piece = batch.slices[micro.slice]
                assert not micro.inputs.size or np.shares_memory(micro.inputs, piece["tokens"])
            kept = next(batch.micro_batches()).inputs
            peer = daemon.peers[0]
            del batch, micro, piece
            second = next(reader)
            assert [micro.slice for micro in second.micro_batches()] == [0, 1] * BINS
            # Frames are given back while the reader waits.
            assert next(reader, None) is None
            eventually(lambda: 2 in peer.released)
            assert 1 not in peer.released
            assert kept.tolist() == of_bin(SLICED[0][0])["tokens"][:-1]
            del kept, second


def test_a_micro_batch_knows_which_columns_are_bfloat16() -> None:
    arrays = slice_of(SLICED[0], 9, ("document_ids",))
    arrays["reward"] = np.ones(len(arrays["tokens"]), np.uint16)
    listed = tuple((name, array.dtype, array.shape, 0) for name, array in arrays.items())
    piece = Slice(0, arrays, Layout(1 << 30, listed, frozenset(["reward"])))
    for micro in Batch(7, [piece], State("", 0)).micro_batches():
        for found in (micro, micro.padded(40)):
            assert found.is_bfloat16("reward")
            assert not found.is_bfloat16("tokens")
