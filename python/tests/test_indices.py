"""The indices of a stream are steps, whatever was reclaimed."""

from __future__ import annotations

import itertools

import pytest

from batchweave._steps import chosen, one
from batchweave.errors import StepReclaimedError

WHOLE = range(10)
RECLAIMED = range(4, 10)


def test_an_index_is_a_step_or_counts_from_the_newest() -> None:
    assert [one(k, WHOLE) for k in (0, 9, -1, -10)] == [0, 9, 9, 0]
    assert [one(k, RECLAIMED) for k in (4, 9, -1, -6)] == [4, 9, 9, 4]


@pytest.mark.parametrize("number", [10, -7, 1 << 60])
def test_a_step_that_is_not_there_is_an_index_error(number: int) -> None:
    with pytest.raises(IndexError, match=f"step {number} is not .* which has steps 4 to 9"):
        one(number, RECLAIMED)
    with pytest.raises(IndexError, match="no steps yet"):
        one(0, range(0))


def test_a_reclaimed_step_is_an_error_with_the_oldest_one() -> None:
    with pytest.raises(StepReclaimedError, match=r"step 3 is reclaimed: .* is 4") as caught:
        one(3, RECLAIMED)
    assert caught.value.step == 3


def test_slices_of_a_whole_stream_match_slices_of_a_list() -> None:
    bounds = [None, *range(-12, 13)]
    strides = [None, 1, 2, 5, -1, -3]
    for index in itertools.starmap(slice, itertools.product(bounds, bounds, strides)):
        assert list(chosen(index, WHOLE)) == list(WHOLE)[index], index


def test_slices_of_a_rest_begin_at_its_oldest_step() -> None:
    def of(start: int | None, stop: int | None, step: int | None = None) -> list[int]:
        return list(chosen(slice(start, stop, step), RECLAIMED))

    assert of(None, None) == [4, 5, 6, 7, 8, 9]
    assert of(None, 6) == [4, 5]
    assert of(5, None, 2) == [5, 7, 9]
    assert of(-3, None) == [7, 8, 9]
    assert of(-30, -4) == [4, 5]
    assert of(None, None, -2) == [9, 7, 5]
    assert of(None, -3, -1) == [9, 8]
    assert of(6, 4, -1) == [6, 5]
    assert of(8, 20) == [8, 9]
    assert of(20, 30) == []


@pytest.mark.parametrize("index", [slice(2, 8), slice(0, None), slice(8, 1, -1), slice(2, 0, -1)])
def test_a_slice_that_names_reclaimed_steps_is_an_error(index: slice) -> None:
    with pytest.raises(StepReclaimedError, match="oldest step that can be read is 4"):
        chosen(index, RECLAIMED)


def test_a_slice_without_a_stride_is_an_error() -> None:
    with pytest.raises(ValueError, match="zero"):
        chosen(slice(0, 3, 0), WHOLE)
