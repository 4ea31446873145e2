"""The benchmark of freshness runs through real daemons, and notes commits when they appear."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inbox_world import DEV_S3, DevS3

from batchweave.bench import commits
from batchweave.bench import freshness as bench
from batchweave.bench.visible import Instants

BENCH = [sys.executable, "-m", "batchweave.bench.freshness"]


def run(*words: str) -> dict[str, Any]:
    command = [*BENCH, *words, "--samples", "10", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["cpus"] > 0
    assert found["load"] >= 0
    return found


def check(store: dict[str, Any], kind: str) -> None:
    assert store["store"] == kind
    assert store["samples"] == 10
    assert store["starved_ms"] == 50
    assert 0 < store["freshness_ms"]["p50"] <= store["freshness_ms"]["p99"]


@pytest.mark.daemons
@DEV_S3[1]
def test_a_local_folder_is_measured(programs: Path, tmp_path: Path) -> None:
    assert programs.exists()
    found = run(str(tmp_path / "fresh"))
    (store,) = found["stores"]
    check(store, "folder")
    assert store["commits_seen_by"] == "events"
    assert store["goal_p50_ms"] == 15
    assert isinstance(store["met"], bool)
    assert "goal 15" in bench.text(found)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    server = DevS3("--latency", "s3-standard", "--dir", str(tmp_path / "s3"))
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    yield tmp_path / "s3" / "batchweave"
    server.end()


@pytest.mark.daemons
@DEV_S3[1]
def test_a_bucket_is_measured(programs: Path, s3: Path) -> None:
    assert programs.exists()
    found = run("s3://batchweave/fresh", "--objects", str(s3))
    (store,) = found["stores"]
    check(store, "s3")
    assert store["commits_seen_by"] == "events"
    assert store["goal_p50_ms"] is store["met"] is None


@pytest.mark.daemons
@DEV_S3[1]
def test_without_the_folder_of_a_bucket_the_log_is_polled(programs: Path, s3: Path) -> None:
    assert programs.exists()
    assert s3.exists()
    found = run("s3://batchweave/fresh")
    assert found["stores"][0]["commits_seen_by"] == "polls"
    assert "commits noticed by polls" in bench.text(found)


@pytest.mark.daemons
@DEV_S3[1]
def test_a_folder_that_cannot_be_watched_is_an_error(programs: Path, s3: Path) -> None:
    assert programs.exists()
    file = s3.with_name("file")
    file.write_bytes(b"")
    command = [*BENCH, "s3://batchweave/fresh", "--objects", str(file), "--samples", "10"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "error: cannot notice the commits of s3://batchweave/fresh: " in done.stderr


def record(steps: int) -> bytes:
    return json.dumps({"entries": [{"tgbs": [{}] * steps}, {"kind": "other"}]}).encode()


def appear(folder: Path, name: str, data: bytes) -> None:
    (folder / ".draft").write_bytes(data)
    (folder / ".draft").rename(folder / name)


def stored(key: str, data: bytes) -> bytes:
    header = json.dumps({"key": key, "headers": {}}).encode()
    return b"BWDEVS3\x01" + len(header).to_bytes(4, "little") + header + data


def noted(folder: Path, prefix: str, files: list[tuple[str, bytes]]) -> Instants:
    """Watches a folder in which there is one file before, and then the others appear."""
    seen, stop = Instants(), threading.Event()
    appear(folder, *files[0])
    thread = threading.Thread(target=commits.watch, args=(folder, prefix, seen, stop))
    thread.start()
    began = time.monotonic()
    for file in files[1:]:
        appear(folder, *file)
    while 2 not in seen.committed and time.monotonic() < began + 60:
        time.sleep(0.001)
    stop.set()
    thread.join()
    assert list(seen.committed) == [0, 1, 2]
    assert seen.committed[0] <= seen.committed[1] == seen.committed[2] <= time.monotonic()
    return seen


def test_records_are_noted_as_they_appear_in_a_folder(tmp_path: Path) -> None:
    files = [("00.json", record(1)), ("01.json", record(0)), ("02.json", record(2))]
    noted(tmp_path, "", files)


def test_records_are_distinguished_from_other_objects_of_a_bucket(tmp_path: Path) -> None:
    files = [
        ("00.obj", stored("a/stream/log/00.json", record(1))),
        ("01.obj", stored("a/stream/data/00.tgb", b"no JSON")),
        ("02.obj", stored("b/stream/log/00.json", record(7))),
        ("03.obj", stored("a/stream/log/01.json", record(2))),
    ]
    noted(tmp_path, "a/stream/log/", files)


def test_too_small_a_measurement_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["/nowhere", "--samples", "0"])
    assert "at least 1 sample" in capsys.readouterr().err
