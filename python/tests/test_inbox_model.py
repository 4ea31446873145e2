"""The protocol of inboxes holds in every interleaving of small worlds, and mistakes are found."""

from __future__ import annotations

import pytest
from inbox_mistakes import (
    BlindToTheEnd,
    ConflictIsTheEnd,
    EarlyAcknowledgement,
    EveryGapIsLate,
    NewNumberAfterUnknown,
    OwnFileIsAnother,
    TriesTheNextNumber,
    WithoutList,
)
from inbox_model import BrokenError, Limits, explore

from batchweave.inbox._core import Core, Phase

FENCE = Limits(files=(2, 2), crashes=0, unknown=1)
CRASH = Limits(files=(2, 1), crashes=1, unknown=1)
END = Limits(files=(1, 1), crashes=1, unknown=1, ends=True)
LOST = Limits(files=(3, 1), crashes=0, unknown=0, in_order=True, losses=1)
LATE = Limits(files=(2, 3), crashes=1, unknown=0, in_order=True)
PROBE = Limits(files=(1, 2), crashes=0, unknown=1, probes=True)


@pytest.mark.parametrize("limits", [FENCE, CRASH, END, PROBE])
def test_acknowledged_rows_are_read_once_in_every_interleaving(limits: Limits) -> None:
    explored = explore(limits)
    print(explored)
    # The model is not empty: instances are fenced, files are acknowledged and read to the end.
    assert explored.states > 1000
    assert {Phase.FENCED, Phase.READY, Phase.CHECK, Phase.READ} <= explored.phases
    assert (Phase.ENDED in explored.phases) == limits.ends
    assert Phase.NOT_EXCLUSIVE not in explored.phases
    assert explored.acknowledged >= 2
    assert explored.read_to_the_end > 0


def test_a_file_that_was_stored_late_never_makes_a_name_unusable() -> None:
    explored = explore(LATE)
    print(explored)
    assert {Phase.LATE_DELETE, Phase.READY} <= explored.phases
    assert explored.read_to_the_end > 0


def test_a_file_that_was_lost_is_never_taken_for_one_that_came_late() -> None:
    explored = explore(LOST)
    print(explored)
    assert {Phase.MISSING, Phase.READY} <= explored.phases
    assert Phase.LATE_DELETE not in explored.phases


@pytest.mark.parametrize(
    ("mistake", "limits", "why"),
    [
        (WithoutList, FENCE, "is acknowledged, another one was read"),
        (EarlyAcknowledgement, FENCE, "is acknowledged, another one was read"),
        (TriesTheNextNumber, FENCE, "first row"),
        (OwnFileIsAnother, FENCE, "there is no other instance"),
        (NewNumberAfterUnknown, FENCE, ""),
        (BlindToTheEnd, END, "after the end"),
        (ConflictIsTheEnd, END, "there is no end"),
        (EveryGapIsLate, LOST, "which was not read"),
    ],
)
def test_a_mistake_in_the_protocol_is_found(mistake: type[Core], limits: Limits, why: str) -> None:
    with pytest.raises(BrokenError) as broken:
        explore(limits, mistake)
    assert why in str(broken.value), broken.value
    print(broken.value)


def test_deleting_the_newest_file_of_a_writer_is_found() -> None:
    with pytest.raises(BrokenError) as broken:
        explore(Limits(files=(2, 1), crashes=1, unknown=0, deletes_newest=True))
    print(broken.value)
