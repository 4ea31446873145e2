"""The benchmark of inboxes runs through real daemons, and measures what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inbox_world import DEV_S3, DevS3

from batchweave.bench import inbox as bench
from batchweave.bench.visible import Instants, quantiles

BENCH = [sys.executable, "-m", "batchweave.bench.inbox"]
QUICK = ["--rows", "2000", "--samples", "20", "--linger", "0.02", "--rate", "200", "--json"]
QUICK += ["--follow-every-ms", "20", "--starved-ms", "10"]
PARTS = ("put_to_durable_ms", "durable_to_committed_ms", "committed_to_next_ms")


def run(location: str) -> dict[str, Any]:
    done = subprocess.run([*BENCH, location, *QUICK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check(found: dict[str, Any]) -> None:
    assert found["rows_per_second"] > 0
    assert found["goals"].keys() == found["met"].keys()
    visible = found["visible"]
    assert visible["rows"] == 20
    for name in ("durable_ms", "flush_ms"):
        assert 0 < found[name]["p50"] <= found[name]["p99"] <= found[name]["max"]
    # A row waits for the linger, so no speed of the machine makes these smaller.
    assert found["durable_ms"]["p50"] >= 20
    whole = visible["put_to_next_ms"]
    assert found["visible_p50_ms"] == whole["p50"] <= whole["p99"] == found["visible_p99_ms"]
    assert all(visible[part]["max"] <= whole["max"] for part in PARTS)
    assert all(visible[part]["p50"] >= 0 for part in PARTS)
    assert "from put to the trainer's next()" in bench.text(found)


@pytest.mark.daemons
@DEV_S3[1]
def test_a_local_folder_is_measured(programs: Path, tmp_path: Path) -> None:
    assert programs.exists()
    found = run(str(tmp_path / "inbox"))
    check(found)
    assert found["goals"]["visible_p50_ms"] == 150
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inbox", "inbox-visible"]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[DevS3]:
    server = DevS3("--latency", "s3-standard")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    yield server
    server.end()


@pytest.mark.daemons
@DEV_S3[1]
def test_a_bucket_is_measured(programs: Path, s3: DevS3) -> None:
    assert programs.exists()
    assert s3.ready["endpoint"]
    found = run("s3://batchweave/inbox")
    check(found)
    assert found["goals"]["visible_p50_ms"] == 1000


def test_missing_programs_are_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BATCHWEAVE_BIN_DIR", str(tmp_path))
    done = subprocess.run(
        [*BENCH, str(tmp_path / "inbox"), *QUICK], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "the program batchweave-producer is not in" in done.stderr


def test_too_small_a_measurement_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["/nowhere", "--samples", "0"])
    assert "at least 1 row and 1 sample" in capsys.readouterr().err


def test_the_parts_of_a_row_add_up() -> None:
    seen = Instants()
    seen.put, seen.durable = [0.0, 1.0], [0.5, 1.25]
    seen.step, seen.next = {0: 0, 1: 1}, {0: 2.0, 1: 3.0}
    # The second record was seen by the poll after the trainer had its batch.
    seen.committed = {0: 1.0, 1: 3.5}
    waits = seen.waits(range(2))
    assert waits["put_to_durable_ms"] == [500, 250]
    assert waits["durable_to_committed_ms"] == [500, 1750]
    assert waits["committed_to_next_ms"] == [1000, 0]
    assert waits["put_to_committed_ms"] == [1000, 2000]
    assert waits["put_to_next_ms"] == [2000, 2000]


def test_quantiles_match_sorted_values() -> None:
    assert quantiles([float(n) for n in reversed(range(200))]) == {
        "p50": 100,
        "p99": 198,
        "max": 199,
    }
