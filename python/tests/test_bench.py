"""The benchmark of the hand-over runs, and measures what it says."""

from __future__ import annotations

import json
import subprocess
import sys

from batchweave.bench import handover, rivals


def test_the_report_has_every_figure() -> None:
    report = handover.measure(rounds=1, calls=200, sizes=(1 << 16,))
    sized = report["sizes"]["64KiB"]
    for name in ("queued_p50_us", "queued_p99_us", "blocking_p50_us", "release_us"):
        assert report[name] == sized[name] > 0
    assert report["queued_p50_us"] <= report["queued_p99_us"]
    assert set(report["met"]) == set(report["goals"])
    assert sized["beside"]["unix_socket_copy_us"] > 0
    json.dumps(report)
    assert "goal 2.5" in handover.text(report)


def test_rivals_bring_the_bytes() -> None:
    assert len(rivals.unix_socket(1 << 16, 20)) == 20
    assert len(rivals.multiprocessing_queue(1 << 16, 20)) == 20


def test_too_small_a_measurement_is_refused() -> None:
    command = [sys.executable, "-m", "batchweave.bench.handover", "--calls", "3"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert "at least 1 round of 100 calls" in found.stderr
