"""Whole batches of balanced streams: each call works on bins, or names micro_batches()."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from balanced_slices import BINS, FIELDS, arranged, documents, learned, ranks, slice_of
from balanced_slices import serves as serving
from fake_cuda import Cuda
from fake_daemon import FakeDaemon
from test_notebook import Told, checked, document
from test_whole import batch_of

import batchweave
from batchweave import _device, _html, errors
from batchweave._documents import Decoder
from batchweave._rows import count
from batchweave.batch import Batch
from batchweave.stream import StreamBatch
from batchweave.torch import in_flight, packed, to_device
from batchweave.views import context_parallel

SLICED = arranged(documents(60))


@pytest.fixture
def batch() -> Batch:
    """A rank's batch of two slices."""
    return ranks(SLICED, 4)[1]


def flat(batch: Batch) -> list[Any]:
    """The documents of a batch in stored order."""
    return [d for piece in batch.slices for one in SLICED[piece.index] for d in one]


ROWS_ONLY: list[Callable[[Batch], Any]] = [
    lambda batch: batch.inputs,
    lambda batch: batch.labels,
    lambda batch: batch.loss_mask,
    lambda batch: batch.slices[0].inputs,
    lambda batch: batch.slices[0].labels,
    lambda batch: batch.slices[0].loss_mask,
    lambda batch: list(batch.micro_batches(1)),
    lambda batch: list(batch.micro_batches(rows=2)),
    lambda batch: packed(dict(batch)),
    lambda batch: packed(batch.slices[0]),
    lambda batch: packed(next(batch.samples())),
    lambda batch: packed(dict(next(batch.micro_batches()))),
    lambda batch: context_parallel(batch.slices[0], 0, 2),
]


@pytest.mark.parametrize("call", ROWS_ONLY)
def test_calls_for_rows_name_micro_batches(batch: Batch, call: Callable[[Batch], Any]) -> None:
    with pytest.raises(errors.BadShapeError, match=r"has bins .* instead of rows:.*micro_batches"):
        call(batch)


def test_rows_of_a_stream_have_no_division_of_their_own() -> None:
    for arrays in ({"tokens": np.zeros((4, 9), np.uint16)}, {"image": np.zeros((4, 3))}):
        with pytest.raises(errors.BadShapeError, match=r"step 7: .* as micro_batches\(rows=4\)"):
            batch_of(arrays).micro_batches()
    mixed = batch_of(slice_of(SLICED[0], 9), {"tokens": np.zeros((4, 9), np.uint16)})
    with pytest.raises(errors.BadShapeError, match="as micro_batches"):
        mixed.micro_batches()


def test_ranks_do_not_share_a_slice(path: Path, batch: Batch) -> None:
    with pytest.raises(errors.BadMeshError, match=r"slice 2 of a balanced.*into 2 parts.*fewer"):
        batch.slices[0].rows(0, 2)
    with FakeDaemon(path) as daemon:
        daemon.on_hello = serving([[slice_of(SLICED[0], learned(SLICED))]])
        with (
            batchweave.connect(path, split_rows=2, dp_rank=1, dp_size=2) as reader,
            pytest.raises(errors.BadMeshError, match="into 2 parts"),
        ):
            next(reader)


def test_arrays_of_several_slices_follow_one_another(batch: Batch) -> None:
    own = flat(batch)
    assert batch["tokens"].tolist() == [int(t) for d in own for t in d.tokens]
    assert batch["documents"].tolist() == [0, *np.cumsum([len(d.tokens) for d in own])]
    counts = [len(one) for piece in batch.slices for one in SLICED[piece.index]]
    assert batch["bins"].tolist() == [0, *np.cumsum(counts)]
    assert (batch["documents"].dtype, batch["bins"].dtype) == (np.dtype("i4"), np.dtype("i4"))
    assert batch["costs"].shape == (2 * BINS,)
    assert batch["loss_tokens"].tolist() == [learned(SLICED)], "of the global batch, once"
    assert batch["image.offsets"].tolist() == [0, *np.cumsum([len(d.image) for d in own])]
    assert not batch["bins"].flags.writeable
    (alone, *_) = ranks(SLICED, 8)
    for name in ("documents", "bins", "tokens"):
        assert np.shares_memory(alone[name], alone.slices[0][name])
    # Arrays of these names mean nothing elsewhere.
    rows = {"tokens": np.zeros((2, 5), np.uint16), "documents": np.array([3, 4])}
    assert batch_of(rows, rows)["documents"].tolist() == [3, 4, 3, 4]


def test_arrays_of_documents_are_found_by_bin(batch: Batch) -> None:
    own = flat(batch)
    for found, bins in (
        (batch.ragged("image"), [one for p in batch.slices for one in SLICED[p.index]]),
        (batch.slices[1].ragged("image"), SLICED[batch.slices[1].index]),
    ):
        rows = [[len(entry) for entry in found.of_row(k)] for k in range(len(bins))]
        assert rows == [[len(d.image) for d in one] for one in bins]
    assert [len(entry) for entry in batch.ragged("image")] == [len(d.image) for d in own]


@pytest.mark.parametrize("fields", [FIELDS, ()])
def test_a_sample_is_a_bin(fields: tuple[str, ...]) -> None:
    batch = ranks(SLICED, 4, fields)[3]
    samples = list(batch.samples())
    places = [(piece.index, k) for piece in batch.slices for k in range(BINS)]
    assert [(sample.slice, sample.row) for sample in samples] == places
    assert [sample.index for sample in samples] == [*range(2 * BINS)]
    assert [count(piece) for piece in batch.slices] == [BINS, BINS]
    for sample in samples:
        one = SLICED[sample.slice][sample.row]
        assert [part["tokens"].tolist() for part in sample.documents] == [
            d.tokens.tolist() for d in one
        ]
        assert float(sample["costs"]) == pytest.approx(
            batch.slices[sample.slice - 6]["costs"][sample.row]
        )
        assert sample["documents"][0] == 0
        assert "bins" not in sample
        if fields:
            found = sample.documents
            assert [part["weight"].tolist() for part in found] == [
                [d.weight] * len(d.tokens) for d in one
            ]
            assert [len(part["image"]) for part in found] == [len(d.image) for d in one]
    assert samples[-1].documents == []
    assert np.shares_memory(samples[0]["tokens"], batch.slices[0]["tokens"])


def test_a_page_shows_bins_as_rows(batch: Batch) -> None:
    tokens = sum(len(d.tokens) for d in flat(batch))
    found = checked(_html.batch(batch, None, _html.PAGE)).text
    assert f"6 bins of together {tokens} tokens, in 2 slices" in found
    cost = float(batch.slices[0]["costs"][0])
    assert f"Bin 0 slice 2, cost {cost:,.0f}" in found
    assert "Bin 5 slice 3" in found
    assert "padding" not in found
    assert "2 more bins: batch.samples()" in checked(batch._repr_html_()).text
    empty = batch_of(slice_of([[], []], 0))
    found = checked(_html.batch(empty, None)).text
    assert "Bin 1 slice 0, cost 0" in found
    assert found.count("0 tokens") == 1, "in the head alone: an empty bin has no document"
    one = SLICED[2][0]
    parts = [document(f"text {d.number};", len(d.tokens)) for d in one]
    rows = [{"slice": 2, "row": 0, "documents": parts, "padding": 0}]
    shown = checked(_html.batch(batch, Told(rows))).text
    assert all(f"text {d.number};" in shown for d in one)


def test_sources_are_numbered_by_bin(batch: Batch) -> None:
    class Known:
        def of(self, step: int) -> list[dict[str, Any]]:
            assert step == 7
            part = {"source": "a:1", "pass": 0, "skip": 0, "tokens": 3}
            return [{**part, "slice": 2, "row": 1}, {**part, "slice": 3, "row": 2}]

    known: Any = Known()
    opened = StreamBatch(batch, Decoder("file:///x", 7, 1, known))
    (source,) = opened.sources()
    assert source.rows == (1, BINS + 2)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"bins": [0, 1, 3, 2]}, r"slice 2: array 'bins' does not divide the \d+ documents"),
        ({"bins": [0, 9, 1, 6]}, "array 'bins' does not divide the 6"),
        ({"bins": [0, 1, 2, 5]}, "array 'bins' does not divide the 6"),
        ({"bins": []}, "array 'bins' does not divide"),
        ({"documents": [1, 2]}, r"array '(bins|documents)' does not divide"),
        ({"costs": [1.0]}, r"'costs' has 1 entries for 3 bins"),
        ({"weight": [1.0]}, r"'weight' has 1 entries for \d+ tokens"),
        ({"image.offsets": [0, 1]}, r"'image.offsets' (has 1 entries for|does not divide)"),
    ],
)
def test_borders_that_do_not_divide_are_an_error(
    batch: Batch, change: dict[str, Any], text: str
) -> None:
    arrays = dict(batch.slices[0])
    arrays |= {name: np.array(value, arrays[name].dtype) for name, value in change.items()}
    broken = batch_of(arrays)
    broken.slices[0].index = 2
    for call in (broken.micro_batches, lambda: list(broken.samples())):
        with pytest.raises(errors.BadShapeError, match=text):
            call()


def test_slices_of_a_stream_have_one_number_of_bins() -> None:
    total = learned(SLICED)
    batch = batch_of(slice_of(SLICED[0], total), slice_of(SLICED[1][:2], total))
    with pytest.raises(errors.BadShapeError, match=r"slices have \[2, 3\] bins"):
        batch.micro_batches()


def test_packed_micro_batches_have_the_names_of_the_flattening_collator(batch: Batch) -> None:
    for micro in batch.micro_batches():
        one = SLICED[micro.slice][micro.index]
        found = packed(micro)
        ids = [int(t) for d in one for t in d.tokens]
        mask = [int(m) for d in one for m in d.mask]
        assert found["input_ids"].tolist() == [ids]
        wanted = [t if m else -100 for t, m in zip(ids, mask, strict=True)]
        assert found["labels"].tolist() == [wanted]
        assert found["labels"].dtype == np.int64
        assert found["position_ids"].tolist() == [[k for d in one for k in range(len(d.tokens))]]
        borders = [0, *np.cumsum([len(d.tokens) for d in one])]
        longest = max((len(d.tokens) for d in one), default=0)
        for side in ("q", "k"):
            assert found[f"cu_seq_lens_{side}"].tolist() == borders
            assert found[f"cu_seq_lens_{side}"].dtype == np.int32
            assert found[f"max_length_{side}"] == longest
        assert found["num_items_in_batch"] == learned(SLICED)
        assert found["weight"].shape == found["segment_ids"].shape == (1, len(ids))
        assert found["image"] is micro["image"]
        assert not {"loss_mask", "documents", "tokens", "positions", "cu_seqlens"} & set(found)
        shifted = packed(micro, "shifted")
        for name in ("inputs", "labels", "loss_mask", "positions"):
            given = {"inputs": "input_ids", "positions": "position_ids"}.get(name, name)
            assert shifted[given].tolist() == [getattr(micro, name).tolist()]
            assert not len(ids) or np.shares_memory(shifted[given], getattr(micro, name))
        assert shifted["cu_seqlens"].tolist() == micro.cu_seqlens.tolist()
        assert shifted["max_seqlen"] == micro.max_seqlen
        assert shifted["num_items_in_batch"] == learned(SLICED)


@pytest.mark.parametrize("way", ["contiguous", "zigzag"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_parts_of_a_padded_bin_make_it_up(size: int, way: str) -> None:
    for batch in ranks(SLICED, 8, ("loss_mask", "segment_ids", "image")):
        for micro in batch.micro_batches():
            parts = [context_parallel(micro, rank, size, way) for rank in range(size)]
            width = len(micro.inputs)
            for name, wanted in (
                ("input_ids", micro.inputs),
                ("labels", micro.labels),
                ("loss_mask", micro.loss_mask),
                ("position_ids", micro.positions),
                ("segment_ids", micro.segment_ids),
            ):
                each = [part[name] for part in parts]
                if way == "zigzag":
                    each = [p[:, 0] for p in each] + [p[:, 1] for p in reversed(each)]
                whole = np.concatenate(each, axis=1)
                added = whole.shape[1] - width
                assert 0 <= added < size * (2 if way == "zigzag" else 1)
                assert whole[0, :width].tolist() == wanted.tolist(), name
                if name == "loss_mask":
                    assert not whole[0, width:].any()
            assert {part["cu_seqlens"][-1] for part in parts} == {width + added}
    with pytest.raises(errors.BadMeshError, match="ranks are 0 to 1"):
        context_parallel(micro, 2, 2, way)
    assert context_parallel(micro, 0, 1, "full")["input_ids"].shape == (1, width)


@pytest.mark.parametrize("fields", [FIELDS, ()])
def test_jax_gets_one_shape_in_every_step(fields: tuple[str, ...]) -> None:
    shapes = set()
    for batch in ranks(SLICED, 4, fields):
        found = batchweave.jax.micro_batches(batch, 64)
        shapes.add(tuple((name, array.shape, array.dtype) for name, array in found.items()))
        for row, micro in enumerate(batch.micro_batches()):
            width = len(micro.inputs)
            for name in ("inputs", "labels", "loss_mask", "positions", "segment_ids"):
                assert found[name][row, :width].tolist() == getattr(micro, name).tolist()
            for name in ("labels", "loss_mask"):
                assert not found[name][row, width:].any()
            assert not found["segment_ids"][row, len(micro.tokens) :].any()
            assert found["costs"][row] == np.float32(micro.cost)
        assert found["loss_tokens"] == learned(SLICED)
    ((first, *others),) = shapes
    assert first == ("inputs", (2 * BINS, 64), np.dtype("i4"))
    assert len(others) == (8 if fields else 6)
    with pytest.raises(errors.BadShapeError, match=r"padded\(2\).*reader\.info\.seq_len"):
        batchweave.jax.micro_batches(batch, 2)


def test_a_micro_batch_is_copied_to_a_device(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda()
    for name, module in cuda.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(_device, "_told", False)
    total = learned(SLICED)
    fields = ("image",)
    with FakeDaemon(path) as daemon:
        daemon.on_hello = serving([[slice_of(SLICED[0], total, fields)]])
        with batchweave.connect(path) as reader:
            batch = next(reader)
            micro = next(batch.micro_batches())
            given = to_device(micro, labels="shifted")
            wanted = packed(micro, "shifted")
            assert in_flight() == 1
            with pytest.raises(errors.BadShapeError, match=r"to_device\(\).*pass each one of"):
                to_device(batch)
            cuda.run()
            assert set(given) == set(wanted)
            for name, want in wanted.items():
                found = given[name] if isinstance(want, int) else given[name].value()
                assert np.array_equal(found, want), name
            assert given["input_ids"].value().dtype == np.int64
            assert given["cu_seqlens"].value().dtype == np.int32
            assert cuda.registered, "stored arrays are copied from the registered memory"
            assert in_flight() == 0
