"""tools/compare-kafka, compare-blobs and compare-text: their arguments without Kafka and PyTorch,
their tables, and BatchWeave's side of the last two in small.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from site_of_daemons import BINARIES, ROOT

TOOLS = ROOT / "tools"
KAFKA, BLOBS = TOOLS / "compare-kafka", TOOLS / "compare-blobs"
TEXT = TOOLS / "compare-text"


def run(tool: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a tool in a Python that has no packages."""
    command = [sys.executable, "-I", "-S", str(tool), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def module(name: str) -> Any:
    """Return a module of the tools."""
    sys.path.insert(0, str(TOOLS))
    try:
        return importlib.import_module(f"rivals.{name}")
    finally:
        sys.path.remove(str(TOOLS))


@pytest.mark.parametrize("tool", [KAFKA, BLOBS, TEXT])
def test_help_needs_no_package(tool: Path) -> None:
    shown = run(tool, "--help")
    assert shown.returncode == 0, shown.stderr
    assert "Compares BatchWeave with" in shown.stdout
    for option in ("--batchweave", "--dir", "--rounds", "--json", "--stores"):
        assert option in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 100


def test_arguments_parse() -> None:
    kafka = (
        module("kafka")
        .parser()
        .parse_args(
            ["--only", "read,ingest", "--batch-bytes", "1MiB,64MiB", "--bytes", "2GiB", "--fsync"]
        )
    )
    assert (kafka.only, kafka.batch_bytes) == (["read", "ingest"], ["1MiB", "64MiB"])
    assert (kafka.bytes, kafka.rounds, kafka.fsync) == (2 << 30, 3, True)
    blobs = module("blobs").parser().parse_args(["--slices", "4", "--python", "venv/bin/python"])
    assert (blobs.slices, blobs.files, blobs.stores) == (["4"], 3072, ["folder", "dev-s3"])


@pytest.mark.parametrize(
    ("tool", "words", "code", "said"),
    [
        (KAFKA, ["--bytes", "64"], 2, 'invalid size "64": expected a number with a unit'),
        (KAFKA, ["--only", "nothing"], 2, '"nothing" is not one of ingest, read, freshness'),
        (KAFKA, ["--calls", "5"], 2, "--calls 5: at least 100"),
        (KAFKA, [], 1, "run the tool in an environment with `pip install confluent-kafka"),
        (BLOBS, ["--slices", "5"], 2, '"5" is not one of 4, 16'),
        (BLOBS, ["--files", "64"], 2, "--files 64: at least 128, for two steps"),
        (BLOBS, ["--rounds", "0"], 2, 'invalid number "0": expected at least 1'),
        (
            BLOBS,
            ["--batchweave", "/bin/true", "--dir", "/none"],
            1,
            "--dir /none: not a folder",
        ),
        (TEXT, ["--bytes", "9B"], 2, "--bytes 9B: at least 1MiB, for several steps"),
        (TEXT, ["--ranks", "/none"], 2, "--ranks /none: not a file: name tiktoken's"),
        (TEXT, ["--max-steps", "0,x"], 2, 'invalid number "x": expected at least 1'),
        (BLOBS, ["--batchweave", "/none"], 1, "cannot find the program /none: build it"),
    ],
)
def test_wrong_arguments_are_named(tool: Path, words: list[str], code: int, said: str) -> None:
    ended = run(tool, *words)
    assert ended.returncode == code, ended.stderr
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_folder_without_kafka_is_named(tmp_path: Path) -> None:
    broker, common = module("broker"), module("common")
    with pytest.raises(common.FailedError, match=r"has a kafka_\*.jar: name the folder of a Kafka"):
        broker.jars(tmp_path, tmp_path, "4.1.1")
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka_2.13-4.1.1.jar").touch()
    assert broker.jars(tmp_path, tmp_path, "4.1.1") == tmp_path / "libs"


def test_sides_take_turns_and_tables_have_medians_and_ranges() -> None:
    figures = module("figures")
    order: list[str] = []

    def side(name: str, values: list[float]) -> Any:
        def measure() -> Any:
            order.append(name)
            return {figures.Row("read", "1MiB", name): {"p50_us": values.pop(0)}}

        return figures.Side(name, measure)

    found = figures.Figures()
    found.in_turns(3, [side("ours", [3.0, 1.0, 2.0]), side("theirs", [5.0, 4.0, 9.0])])
    assert order == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    metrics = [figures.Metric("p50_us", "p50 us"), figures.Metric("none", "nothing")]
    table = found.table("read", "title", metrics).splitlines()
    assert table[2].split() == ["1MiB", "ours", "2.0", "(1.0", "to", "3.0)", "-"]
    report = json.loads(figures.as_json(found, 3, {"files": 7}))
    assert (report["rounds"], report["files"]) == (3, 7)
    assert report["rows"][1]["p50_us"] == {
        "median": 5.0,
        "range": [4.0, 9.0],
        "rounds": [5.0, 4.0, 9.0],
    }


def test_a_trainer_reads_files_live_and_stored(tmp_path: Path) -> None:
    ended = run(
        BLOBS,
        *("--batchweave", str(BINARIES / "batchweave"), "--python", sys.executable),
        *("--only", "live,stored", "--files", "128", "--rounds", "1", "--slices", "4"),
        *("--dir", str(tmp_path), "--json"),
    )
    assert ended.returncode == 0, ended.stderr
    rows = json.loads(ended.stdout)["rows"]
    assert [row["side"] for row in rows] == [
        f"BatchWeave {way}, {store}" for store in ("folder", "dev-s3") for way in ("live", "stored")
    ]
    assert all(row["bytes_per_second"]["median"] > 0 for row in rows)
    assert not any(tmp_path.iterdir()), "the temporary folder stays"


def test_a_trainer_reads_text_with_bounds(tmp_path: Path) -> None:
    ended = run(
        TEXT,
        *("--batchweave", str(BINARIES / "batchweave"), "--python", sys.executable),
        *("--no-rival", "--bytes", "1MiB", "--rounds", "1", "--max-steps", "0,3"),
        *("--dir", str(tmp_path), "--json"),
    )
    assert ended.returncode == 0, ended.stderr
    rows = json.loads(ended.stdout)["rows"]
    assert [row["side"] for row in rows] == [
        f"BatchWeave, {store}, {bound}"
        for store in ("folder", "dev-s3")
        for bound in ("no bound", "max_steps = 3")
    ]
    assert all(row["tokens_per_second"]["median"] > 0 for row in rows)
    assert not any(tmp_path.iterdir()), "the temporary folder stays"
