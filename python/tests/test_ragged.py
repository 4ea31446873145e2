"""Arrays of any length: views per sample, document and picture, and the arrays of single rows."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from test_whole import batch_of

import batchweave
from batchweave import errors
from batchweave._rows import count
from batchweave.views import context_parallel

Arrays = dict[str, np.ndarray[Any, Any]]


def opaque(*shapes: list[tuple[int, int]], first: int = 0) -> Arrays:
    """Samples of any number of pictures: their pixels, their sizes and a label per picture."""
    areas = [[height * width for height, width in sample] for sample in shapes]
    total = sum(map(sum, areas))
    sizes = [size for sample in shapes for size in sample]
    return {
        "pixels": np.arange(first, first + total * 3, dtype=np.uint8).reshape(total, 3),
        "pixels.offsets": np.cumsum([0, *map(sum, areas)]),
        "size": np.array(sizes, np.int32).reshape(-1, 2),
        "size.offsets": np.cumsum([0, *map(len, shapes)]),
    }


def documents(rows: list[list[int]], first: int = 0) -> Arrays:
    """Rows of 8 tokens: for each of their documents the number of its actions."""
    numbers = [number for row in rows for number in row]
    ids = [[min(k // 2 + 1, len(row)) if row else 0 for k in range(8)] for row in rows]
    total = sum(numbers)
    return {
        "tokens": np.arange(first, first + 8 * len(rows), dtype=np.uint16).reshape(-1, 8),
        "segment_ids": np.array(ids, np.int32),
        "segments.offsets": np.cumsum([0, *map(len, rows)]),
        "action": np.arange(first, first + total * 2, dtype=np.float32).reshape(total, 2),
        "action.offsets": np.cumsum([0, *numbers]),
    }


def frozen(arrays: Arrays) -> Arrays:
    for array in arrays.values():
        array.flags.writeable = False
    return arrays


def test_samples_are_read_only_views_of_their_items() -> None:
    arrays = frozen(opaque([(1, 2)], [], [(2, 1), (1, 1)]))
    batch = batch_of(arrays)
    found = batch.ragged("pixels")
    assert isinstance(found, batchweave.Ragged)
    assert [view.shape for view in found] == [(2, 3), (0, 3), (3, 3)]
    assert found[-1].tolist() == arrays["pixels"][2:5].tolist()
    assert [view.shape for view in found[1:]] == [(0, 3), (3, 3)]
    assert all(np.shares_memory(found[k], arrays["pixels"]) for k in (0, 2))
    assert not found[0].flags.writeable
    assert found.values is not None
    assert np.shares_memory(found.values, arrays["pixels"])
    assert found.offsets.tolist() == [0, 2, 2, 5]
    assert found.offsets.dtype == np.int64
    assert repr(found) == "<Ragged 'pixels', 3 of uint8[*, 3]>"
    assert [view.shape for view in batch.slices[0].ragged("pixels")] == [(2, 3), (0, 3), (3, 3)]
    with pytest.raises(IndexError):
        found[3]


def test_pictures_have_the_shapes_that_are_stored_beside_them() -> None:
    arrays = frozen(opaque([(1, 2)], [], [(2, 1), (3, 2)]))
    found = batch_of(arrays).ragged("pixels", shape="size")
    assert [picture.shape for picture in found] == [(1, 2, 3), (2, 1, 3), (3, 2, 3)]
    assert all(np.shares_memory(picture, arrays["pixels"]) for picture in found)
    assert found[1].ravel().tolist() == arrays["pixels"][2:4].ravel().tolist()
    assert [len(found.of_document(k)) for k in range(3)] == [1, 0, 2]
    last = found.of_document(-1)
    assert [picture.shape for picture in last] == [(2, 1, 3), (3, 2, 3)]
    assert last[0].tolist() == found[1].tolist()
    assert (last.offsets[0], last.offsets[-1]) == (0, len(last.values))
    assert [picture.shape for picture in found.of_row(2)] == [(2, 1, 3), (3, 2, 3)]


def test_shapes_of_other_items_are_an_error_that_names_the_sample() -> None:
    arrays = opaque([(1, 2)], [(2, 2)], [(2, 1)])
    arrays["size"] = np.array([[1, 2], [2, 3], [1, 1]], np.int32)
    with pytest.raises(errors.BadShapeError, match=r"sample 1 has 4 items.*\[\[2, 3\]\] in 'size'"):
        batch_of(arrays).ragged("pixels", shape="size")
    arrays["size"] = np.array([[1, 2], [2, 2], [-2, -1]], np.int32)
    with pytest.raises(errors.BadShapeError, match="sample 2 has 2 items"):
        batch_of(arrays).ragged("pixels", shape="size")
    tokens = documents([[1, 2]])
    tokens |= {"size": np.ones((3, 2), np.int32), "size.offsets": np.array([0, 1, 2])}
    with pytest.raises(errors.BadShapeError, match="document 1 has 2 items"):
        batch_of(tokens).ragged("action", shape="size")
    with pytest.raises(errors.BadShapeError, match=r"shape='action': float32\[3, 2\] are not"):
        batch_of(tokens).ragged("action", shape="action")
    with pytest.raises(errors.BadShapeError, match=r"no 'tokens.offsets'.*batch\['tokens'\]"):
        batch_of(tokens).ragged("tokens")
    with pytest.raises(KeyError, match="this slice has"):
        batch_of(tokens).ragged("image")
    for wrong in ([0, 4], [0, 2, 1, 3], [], [-1, 3]):
        tokens["action.offsets"] = np.array(wrong, np.int64)
        with pytest.raises(errors.BadShapeError, match="does not divide the 3 items of 'action'"):
            batch_of(tokens).ragged("action")


def test_entries_of_one_shape_are_one_array_without_a_copy() -> None:
    arrays = opaque([(2, 1)], [(2, 1), (2, 1)])
    batch = batch_of(arrays)
    found = batch.ragged("pixels", shape="size").stacked()
    assert found.shape == (3, 2, 1, 3)
    assert np.shares_memory(found, arrays["pixels"])
    with pytest.raises(
        errors.BadShapeError, match=r"entry 1 has the shape \[4, 3\], entry 0 \[2, 3\].*padded"
    ):
        batch.ragged("pixels").stacked()
    none = batch_of(opaque([], []))
    assert none.ragged("pixels", shape="size").stacked().shape == (0, 0, 0, 3)
    assert none.ragged("pixels").stacked().shape == (2, 0, 3)
    assert batch_of(opaque()).ragged("pixels").stacked().shape == (0, 0, 3)


def test_entries_of_several_shapes_are_filled_up() -> None:
    batch = batch_of(opaque([(1, 2)], [], [(3, 1)]))
    dense, lengths = batch.ragged("pixels").padded(value=7)
    assert (dense.shape, lengths.tolist()) == ((3, 3, 3), [2, 0, 3])
    assert dense.dtype == np.uint8
    assert dense[0].tolist() == [[0, 1, 2], [3, 4, 5], [7, 7, 7]]
    assert (dense[1] == 7).all()
    dense, sizes = batch.ragged("pixels", shape="size").padded()
    assert (dense.shape, sizes.tolist()) == ((2, 3, 2, 3), [[1, 2], [3, 1]])
    assert dense[0, 0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert not dense[0, 1:].any()
    assert batch_of(opaque()).ragged("pixels").padded()[0].shape == (0, 0, 3)


def test_documents_of_several_slices_follow_one_another() -> None:
    parts = [documents([[1, 0], [2]]), documents([[3], []], first=100)]
    batch = batch_of(*parts)
    assert batch["segments.offsets"].tolist() == [0, 2, 3, 4, 4]
    assert batch["action.offsets"].tolist() == [0, 1, 1, 3, 6]
    found = batch.ragged("action")
    assert [len(view) for view in found] == [1, 0, 2, 3]
    assert found[3].tolist() == parts[1]["action"].tolist()
    assert [[len(view) for view in found.of_row(row)] for row in range(4)] == [[1, 0], [2], [3], []]
    assert [len(view) for view in found.of_row(0).of_document(0)] == [1]
    of_row = batch.ragged("action").of_row(2)
    assert of_row.values.tolist() == parts[1]["action"].tolist()
    assert of_row.offsets.tolist() == [0, 3]


def test_pictures_of_a_row_come_from_its_documents() -> None:
    arrays = {**documents([[1], [2, 1]]), **opaque([(1, 1)], [], [(2, 1), (1, 2)])}
    found = batch_of(arrays, arrays).ragged("pixels", shape="size")
    shapes = [[(1, 1, 3)], [(2, 1, 3), (1, 2, 3)]] * 2
    assert [[picture.shape for picture in found.of_row(row)] for row in range(4)] == shapes
    row = found.of_row(3)
    assert [len(row.of_document(k)) for k in range(2)] == [0, 2]
    assert [len(row.of_row(0))] == [2]
    assert [len(found.of_document(k)) for k in range(6)] == [1, 0, 2] * 2


def test_a_row_of_tokens_has_the_arrays_of_its_documents() -> None:
    arrays = documents([[1, 0, 2], [], [2]])
    batch = batch_of(arrays, documents([[3]], first=50))
    samples = list(batch.samples())
    assert count(arrays) == 3
    assert [sample.index for sample in samples] == [0, 1, 2, 3]
    assert [len(sample["action"]) for sample in samples] == [3, 0, 2, 3]
    assert samples[2]["action"].tolist() == arrays["action"][3:5].tolist()
    assert np.shares_memory(samples[2]["action"], arrays["action"])
    assert [s["action.offsets"].tolist() for s in samples] == [[0, 1, 1, 3], [0], [0, 2], [0, 3]]
    assert list(samples[0]) == ["tokens", "segment_ids", "action", "action.offsets"]
    first = samples[0].documents
    assert [part["tokens"].tolist() for part in first] == [[0, 1], [2, 3], [4, 5, 6, 7]]
    assert [len(part["action"]) for part in first] == [1, 0, 2]
    assert samples[1].documents == []
    (last,) = samples[3].documents
    assert last["action"].tolist() == samples[3]["action"].tolist()


def test_documents_without_borders_have_their_arrays_alone() -> None:
    arrays = documents([[1, 2]])
    del arrays["segment_ids"]
    (sample,) = batch_of(arrays).samples()
    assert [sorted(part) for part in sample.documents] == [["action"]] * 2
    # Two neighbouring pieces of one document.
    arrays["document_ids"] = np.array([[5] * 8])
    (sample,) = batch_of(arrays).samples()
    assert [len(part["action"]) for part in sample.documents] == [1, 2]


def of_rows(arrays: Arrays, name: str, samples: bool = False) -> list[Any]:
    """The items of each row, by the definition of the format."""
    offsets = arrays[f"{name}.offsets"].tolist()
    borders = list(range(len(offsets))) if samples else arrays["segments.offsets"].tolist()
    return [
        [arrays[name][offsets[s] : offsets[s + 1]].tolist() for s in range(at, to)]
        for at, to in itertools.pairwise(borders)
    ]


def test_micro_batches_have_the_documents_of_their_rows() -> None:
    slices = [documents([[1, 0], [2], [], [1, 1]]), documents([[3], [], [2, 2], [1]], first=90)]
    batch = batch_of(*slices)
    want = [row for arrays in slices for row in of_rows(arrays, "action")]
    for rows in (1, 2, 4, 8):
        parts = list(batch.micro_batches(rows))
        assert [len(part["tokens"]) for part in parts] == [rows] * (8 // rows)
        assert [row for part in parts for row in of_rows(part, "action")] == want
        for part in parts:
            assert part["segments.offsets"][0] == part["action.offsets"][0] == 0
            assert part["action.offsets"][-1] == len(part["action"])
    first = next(batch.micro_batches(2))
    assert np.shares_memory(first["action"], slices[0]["action"]), "a view within a slice"


def test_micro_batches_of_samples_of_any_number_per_slice() -> None:
    slices = [opaque([(1, 2)], [], [(2, 1)]), opaque([(1, 1)], first=40)]
    batch = batch_of(*slices)
    want = [row for arrays in slices for row in of_rows(arrays, "pixels", samples=True)]
    for rows in (1, 2, 4):
        parts = list(batch.micro_batches(rows))
        assert [len(part["pixels.offsets"]) - 1 for part in parts] == [rows] * (4 // rows)
        assert [r for part in parts for r in of_rows(part, "pixels", samples=True)] == want
    with pytest.raises(errors.BadMeshError, match=r"4 rows a step, in 2 slices; .* fit: 1, 2, 4"):
        list(batch.micro_batches(3))
    uneven = {**slices[0], "label": np.zeros(2)}
    with pytest.raises(errors.BadMeshError, match=r"different numbers of rows.*'label': 2"):
        list(batch_of(uneven).micro_batches(1))


def test_ranks_share_a_slice_by_rows_with_their_documents() -> None:
    arrays = documents([[1, 0], [2], [], [1, 1]])
    (piece,) = batch_of(arrays).slices
    halves = [piece.rows(part, 2) for part in range(2)]
    assert [half["tokens"].shape for half in halves] == [(2, 8)] * 2
    assert [row for half in halves for row in of_rows(dict(half), "action")] == of_rows(
        arrays, "action"
    )
    assert halves[1]["action.offsets"].tolist() == [0, 1, 2]
    assert np.shares_memory(halves[1]["action"], arrays["action"])
    assert [len(view) for view in halves[1].ragged("action").of_row(1)] == [1, 1]
    with pytest.raises(errors.BadMeshError, match="3 parts of whole rows"):
        piece.rows(0, 3)
    (samples,) = batch_of(opaque([(1, 2)], [(2, 2)])).slices
    assert samples.rows(1, 2)["pixels"].shape == (4, 3)


def test_arrays_of_documents_are_passed_on_beside_parts_of_rows() -> None:
    arrays = documents([[1, 0], [2]])
    arrays["action"] = np.zeros((3, 7), np.float32)  # As wide as inputs, by chance.
    found = context_parallel(arrays, 0, 1, "contiguous")
    assert found["action"] is arrays["action"]
    assert found["segments.offsets"] is arrays["segments.offsets"]
