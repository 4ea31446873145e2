"""Storms over an inbox: eight writers, two producers, a consumer daemon and four ranks, killed.

BATCHWEAVE_SEED=N repeats the storm of a seed; BATCHWEAVE_LONG=1 makes a hundred in place of four.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from inbox_storm import COUNT, RANKS, WRITERS, Ranks, Wrong, check, check_storm, run
from inbox_world import DEV_S3, DevS3
from storm_processes import REPEATING, Noted, Row, log_of, noted, row

STORMS = 100 if os.environ.get("BATCHWEAVE_LONG") == "1" else 4
REPEATED = os.environ.get("BATCHWEAVE_SEED")
FIRST = int(REPEATED or random.randrange(1 << 20))
FAULTS = "put.lost=0.03,put.error=0.03,put.conflict=0.03,list.error=0.03,get.error=0.02"


@pytest.fixture(scope="module")
def s3() -> Iterator[DevS3]:
    server = DevS3("--faults", FAULTS, "--seed", str(FIRST))
    yield server
    server.end()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: the storms wait for syncs otherwise."""
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(prefix="batchweave-storm-", dir=parent) as made:
        yield Path(made)


@DEV_S3[0]
@DEV_S3[1]
@pytest.mark.parametrize("number", range(1 if REPEATED else STORMS))
def test_every_row_reaches_the_ranks_once_through_kills_of_all(
    tmp_path: Path, folder: Path, s3: DevS3, number: int
) -> None:
    """Seeds that are even: over a local folder; odd ones: over a store with faults."""
    seed = FIRST + number
    print(f"BATCHWEAVE_SEED={seed}")
    if seed % 2:
        root, environment = f"s3://batchweave/{seed}", s3.environment
    else:
        root, environment = f"file://{folder}", {}
        (folder / "stream").mkdir()
    storm = run(tmp_path, root, environment, seed)
    print(f"{storm.starts} starts, kills: {storm.kinds()}")
    check_storm(storm)
    assert all(storm.kinds().values()), "a kind was never killed"


ACKNOWLEDGED = {
    writer: dict.fromkeys(range(COUNT), "" if writer in REPEATING else "a1")
    for writer in range(WRITERS)
}


def delivered() -> Ranks:
    """Returns notes that are right: the writers take turns."""
    rows = [
        row(writer, number, ACKNOWLEDGED[writer][number])
        for number in range(COUNT)
        for writer in range(WRITERS)
    ]
    return [list(enumerate([each] for each in rows[rank::RANKS])) for rank in range(RANKS)]


def lose(ranks: Ranks) -> None:
    ranks[0][3] = (3, [])


def double(ranks: Ranks) -> None:
    ranks[1][9] = (9, ranks[1][9][1] * 2)


def swap(ranks: Ranks) -> None:
    ranks[2][4], ranks[2][6] = (4, ranks[2][6][1]), (6, ranks[2][4][1])


def garble(ranks: Ranks) -> None:
    first = ranks[3][0][1][0]
    ranks[3][0] = (0, [first._replace(payload="other")])


def replace(ranks: Ranks) -> None:
    """Delivers the row of a later start instead of the acknowledged one."""
    ranks[3][1] = (1, [row(WRITERS - 1, 0, "b2")])


def repeat(ranks: Ranks) -> None:
    for rank in ranks:
        rank.insert(5, rank[5])


def invent(ranks: Ranks) -> None:
    ranks[0][0][1].append(Row(WRITERS, 0, ""))


def test_notes_of_every_row_once_are_right() -> None:
    check(delivered(), ACKNOWLEDGED)


@pytest.mark.parametrize("mistake", [lose, double, swap, garble, replace, repeat, invent])
def test_a_mistake_in_the_notes_is_found(mistake: Callable[[Ranks], None]) -> None:
    ranks = delivered()
    mistake(ranks)
    with pytest.raises(Wrong):
        check(ranks, ACKNOWLEDGED)


def test_a_torn_line_of_a_killed_rank_is_no_note(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text('{"step": 0, "rows": [[1, 2, "x"]], "state": {}}\n{"step": 1, "ro')
    assert noted(out) == [(0, [Row(1, 2, "x")])]


def test_a_row_is_acknowledged_by_the_start_that_has_put_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("a 1 0\na 1 1\nb 1 -1\nb 1 1\nb 3 2\nb 3 3\nb 9")
    # Row 1 of start a was not durable when start b took its number.
    assert log_of(log) == Noted(3, {0: "a", 1: "b", 2: "b"})
