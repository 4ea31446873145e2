"""Writers that are killed at random instants, and two at once: each acknowledged row once.

BATCHWEAVE_LONG=1 kills eight times in place of four.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from inbox_worker import row
from inbox_world import DEV_S3, WORKER, DevS3, Stored, in_folder, read_as_producer, stored

ROWS = 60
KILLS = 8 if os.environ.get("BATCHWEAVE_LONG") else 4
FAULTS = "put.lost=0.15,put.error=0.1,put.conflict=0.1,list.error=0.1,get.error=0.1,head.reset=0.1"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[DevS3]:
    server = DevS3("--faults", FAULTS, "--seed", "7")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    yield server
    server.end()


def start(location: str, seed: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*WORKER, location, str(ROWS), str(seed)], stdout=subprocess.PIPE, text=True
    )


def last_durable(lines: list[str]) -> int:
    """Returns the newest number of durable rows that a worker reported, in whole lines."""
    told = [line for line in lines if line.startswith("durable ") and line.endswith("\n")]
    return int(told[-1].split()[1]) if told else 0


def kill_and_finish(location: str, files: Callable[[], list[Stored]]) -> None:
    seed = int(os.environ.get("BATCHWEAVE_SEED") or random.randrange(1 << 30))
    print(f"BATCHWEAVE_SEED={seed}")
    chance = random.Random(seed)
    for kill in range(KILLS):
        worker = start(location, seed + kill)
        assert worker.stdout is not None
        lines = []
        # After a random number of reports, and a part of an instant.
        for _ in range(chance.randrange(1, 1 + 2 * ROWS // KILLS)):
            lines.append(worker.stdout.readline())
        time.sleep(chance.random() * 0.02)
        worker.kill()
        lines += worker.stdout.readlines()
        worker.wait()
        worker.stdout.close()
        there = read_as_producer(files())
        assert len(there) >= last_durable(lines), "acknowledged rows are lost"
        assert there == [row(number) for number in range(len(there))]
    with start(location, seed + KILLS) as worker:
        out, _ = worker.communicate()
    assert worker.returncode == 0
    assert "done 0" in out, out
    assert read_as_producer(files()) == [row(number) for number in range(ROWS)]


def test_killed_writers_of_a_folder_lose_and_double_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "inbox" / "w"

    def files() -> list[Stored]:
        return in_folder(folder) if folder.exists() else []

    kill_and_finish(str(tmp_path / "inbox"), files)
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


@pytest.mark.daemons
@DEV_S3[1]
def test_killed_writers_of_a_store_with_faults_lose_and_double_nothing(s3: DevS3) -> None:
    kill_and_finish("s3://batchweave/kills", lambda: stored(s3.files("kills/w/")))


def run_two(location: str) -> None:
    """Runs two writers of one name until both have seen all rows; each takes over at times."""
    both = [start(location, seed) for seed in (1, 2)]
    for worker in both:
        out, _ = worker.communicate()
        assert worker.returncode == 0
        assert "done" in out


def test_two_writers_at_once_in_a_folder_write_each_row_once(tmp_path: Path) -> None:
    run_two(str(tmp_path))
    assert read_as_producer(in_folder(tmp_path / "w")) == [row(number) for number in range(ROWS)]


@pytest.mark.daemons
@DEV_S3[1]
def test_two_writers_at_once_in_a_store_write_each_row_once(s3: DevS3) -> None:
    run_two("s3://batchweave/two")
    rows = read_as_producer(stored(s3.files("two/w/")))
    assert rows == [row(number) for number in range(ROWS)]
