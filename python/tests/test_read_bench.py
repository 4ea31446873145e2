"""The benchmark of `next()` between pieces of work runs, and measures what it says."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np

from batchweave.bench import read

SHORT = (read.Length("10us", 10), read.Length("2MiB", 10, 2 << 20))


def test_the_report_has_every_figure() -> None:
    report = read.measure(rounds=1, calls=100, sizes=(1 << 17,), lengths=SHORT)
    sized = report["sizes"]["128KiB"]
    assert min(sized["tight"].values()) > 0
    assert list(sized["work"]) == ["10us", "2MiB"]
    for work in sized["work"].values():
        assert 0 < work["p50_us"] <= work["p99_us"]
        assert list(work["parts_us"]) == ["call", "release", "views"]
        assert all(part > 0 for part in work["parts_us"].values())
        for other in work["beside"].values():
            assert 0 < other["p50_us"] <= other["p99_us"]
        for name in ("tight", "bare", "queue"):
            assert work[f"ratio_to_{name}"] > 0
        assert work["work_us"] >= 10
    assert sized["work"]["2MiB"]["work_bytes"] >= 2 << 20
    assert report["met"].keys() == {"128KiB"}
    assert report["cpus"] > 0
    assert report["load"] >= 0
    json.dumps(report)
    assert "goals for 128KiB: p50 10, p99 28" in read.text(report)


def test_work_touches_each_part_of_its_memory_in_turn() -> None:
    block = np.zeros(1 << 20, np.uint8)
    work = read.Work(block, read.Length("all", 0, 1 << 20))
    work()
    assert work.touched == 1 << 20
    assert set(block.tolist()) == {1}


def test_goals_hold_after_every_length_of_work() -> None:
    good, bad = {"p50_us": 9, "p99_us": 20}, {"p50_us": 9, "p99_us": 30}
    goals = {"p50_us": 10, "p99_us": 28}
    assert read._met({"work": {"a": good}}, goals)
    assert not read._met({"work": {"a": good, "b": bad}}, goals)


def test_too_small_a_measurement_is_refused() -> None:
    command = [sys.executable, "-m", "batchweave.bench.read", "--calls", "3"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert "at least 1 round of 100 calls" in found.stderr
