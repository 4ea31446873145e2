"""Both conventions for labels: the same targets, at the same places, for every field."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from batchweave import errors
from batchweave._packed import unshifted_already
from batchweave.torch import packed
from batchweave.views import context_parallel

ROWS, WIDTH = 3, 17


def arrays(*names: str, seed: int = 0) -> dict[str, Any]:
    """Rows of documents and padding, with the fields that a producer makes."""
    chance = np.random.default_rng(seed)
    tokens = chance.integers(3, 60_000, (ROWS, WIDTH)).astype(np.uint16)
    segments = np.zeros((ROWS, WIDTH), np.int32)
    positions = np.zeros((ROWS, WIDTH), np.int32)
    bounds = np.zeros((ROWS, WIDTH), np.int32)
    counts = np.zeros(ROWS, np.int32)
    for row in range(ROWS):
        end = WIDTH if row == 0 else int(chance.integers(6, WIDTH))
        cuts = sorted({0, *chance.integers(1, end, 3).tolist(), end})
        for number, (at, to) in enumerate(itertools.pairwise(cuts), 1):
            segments[row, at:to] = number
            positions[row, at:to] = np.arange(to - at)
        borders = [0, *(min(c, WIDTH - 1) for c in cuts[1:])]
        counts[row] = sum(c < WIDTH - 1 for c in cuts[:-1])
        bounds[row, : counts[row] + 1] = borders[: counts[row] + 1]
        bounds[row, counts[row] + 1 :] = bounds[row, counts[row]]
    fields = {
        "segment_ids": segments,
        "positions": positions,
        "loss_mask": chance.integers(0, 2, (ROWS, WIDTH)).astype(np.uint8),
        "document_ids": segments.astype(np.int64) * 7,
        "cu_seqlens": bounds,
        "num_segments": counts,
        "weights": np.arange(ROWS, dtype=np.float32),
    }
    return {"tokens": tokens, **{name: fields[name] for name in names}}


FIELDS = [
    (),
    ("loss_mask",),
    ("segment_ids",),
    ("segment_ids", "positions", "loss_mask", "document_ids", "cu_seqlens", "num_segments"),
    ("weights", "positions"),
]


def targets(found: dict[str, Any], convention: str) -> list[tuple[int, int, int]]:
    """Row, place and token of each target: what a model that follows the convention learns."""
    ids, labels = found["input_ids"].astype(np.int64), found["labels"].astype(np.int64)
    assert ids.shape == labels.shape
    if convention == "unshifted":
        predicting, wanted = ids[:, :-1], labels[:, 1:]
    else:
        predicting = ids
        wanted = np.where(found.get("loss_mask", np.ones_like(labels)) == 0, -100, labels)
    rows, places = np.nonzero(wanted != -100)
    assert predicting.shape == wanted.shape
    return [(int(r), int(p), int(wanted[r, p])) for r, p in zip(rows, places, strict=True)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("names", FIELDS)
def test_both_conventions_have_the_same_targets(names: tuple[str, ...], seed: int) -> None:
    given = arrays(*names, seed=seed)
    found = {way: packed(given, way) for way in ("unshifted", "shifted")}
    assert packed(given).keys() == found["unshifted"].keys(), "the default"
    one, other = (targets(found[way], way) for way in found)
    assert one == other
    tokens = given["tokens"].astype(np.int64)
    assert all(tokens[row, place + 1] == token for row, place, token in one)
    if not {"loss_mask", "segment_ids"} & set(names):
        assert len(one) == ROWS * (WIDTH - 1), "every token but the first of a row"
    if "loss_mask" in names:
        assert len(one) == given["loss_mask"][:, 1:].sum()
    # The inputs of both begin alike.
    for name in ("input_ids", "position_ids", "segment_ids", "document_ids"):
        if name in found["shifted"]:
            whole, cut = found["unshifted"][name], found["shifted"][name]
            assert (whole.shape, cut.shape) == ((ROWS, WIDTH), (ROWS, WIDTH - 1))
            assert (whole[:, :-1] == cut).all()
            assert np.shares_memory(
                cut, given[name.replace("input_ids", "tokens").replace("position_ids", "positions")]
            )


def test_a_document_does_not_predict_the_next_one() -> None:
    given = {
        "tokens": np.array([[11, 12, 13, 21, 22, 0]], np.uint16),
        "segment_ids": np.array([[1, 1, 1, 2, 2, 0]], np.int32),
    }
    assert packed(given)["labels"].tolist() == [[-100, 12, 13, -100, 22, -100]]
    shifted = packed(given, "shifted")
    assert shifted["labels"].tolist() == [[12, 13, 21, 22, 0]]
    assert shifted["loss_mask"].tolist() == [[1, 1, 0, 1, 0]]
    assert shifted["loss_mask"].dtype == np.uint8
    # The stream's own mask decides where there is one: rows of `concat` are one sequence.
    given["loss_mask"] = np.array([[1, 1, 1, 1, 1, 0]], np.uint8)
    assert packed(given)["labels"].tolist() == [[11, 12, 13, 21, 22, -100]]
    assert packed(given, "shifted")["loss_mask"].tolist() == [[1, 1, 1, 1, 0]]


def test_labels_are_private_and_hold_any_token() -> None:
    given = arrays("loss_mask")
    found = packed(given)
    assert found["labels"].dtype == np.int64
    assert not np.shares_memory(found["labels"], given["tokens"])
    assert "loss_mask" not in found, "it is in the labels"
    assert ((found["labels"] == -100) == (given["loss_mask"] == 0)).all()


def test_arrays_stored_for_shifted_inputs() -> None:
    given = arrays("segment_ids", "loss_mask")
    narrow = {**given, "loss_mask": given["loss_mask"][:, 1:]}
    assert (packed(narrow)["labels"][:, 1:] == packed(given)["labels"][:, 1:]).all()
    narrow = {**given, "segment_ids": given["segment_ids"][:, :-1]}
    assert packed(narrow, "shifted")["segment_ids"].shape == (ROWS, WIDTH - 1)
    with pytest.raises(errors.BadMeshError, match=r"'segment_ids' has rows of 16.*shifted"):
        packed(narrow)


def test_borders_reach_the_end_of_the_inputs() -> None:
    given = {
        "tokens": np.zeros((2, 9), np.uint16),
        "cu_seqlens": np.array([[0, 3, 8, 8, 8], [0, 6, 6, 6, 6]], np.int32),
        "num_segments": np.array([2, 1], np.int32),
    }
    assert packed(given, "shifted")["cu_seqlens"].tolist() == [[0, 3, 8], [0, 6, 6]]
    assert packed(given)["cu_seqlens"].tolist() == [[0, 3, 9], [0, 6, 6]]


def test_other_conventions_have_no_name() -> None:
    with pytest.raises(errors.BadHelloError, match=r'labels=.next.: give "unshifted"'):
        packed(arrays(), "next")


@pytest.mark.parametrize("names", FIELDS)
def test_unshifted_labels_are_not_divided(names: tuple[str, ...]) -> None:
    given = arrays(*names)
    assert context_parallel(packed(given, "shifted"), 0, 2)["labels"].shape == (ROWS, 2, 4)
    assert unshifted_already(packed(given))
    for way in ("contiguous", "zigzag"):
        with pytest.raises(errors.BadMeshError, match='labels="shifted"'):
            context_parallel(packed(given), 0, 1, way)
    same = np.full((2, 8), 5)
    assert not unshifted_already({"input_ids": same, "labels": same}), "valid in both"
    assert not unshifted_already({"input_ids": same})
