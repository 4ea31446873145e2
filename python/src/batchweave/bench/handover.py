"""What a rank pays for a batch: the hand-over from the daemon's memory, and its rivals beside it.

    python -m batchweave.bench.handover [--rounds N] [--calls N] [--text]

Prints one JSON object; `batchweave bench handover` prints the same. Microseconds, each the median
of the rounds:

- queued: `next()` and taking the three arrays of one slice, with batches waiting and 30 us of busy
  work between calls; p50 and p99.
- blocking: from the daemon's send to the array, where the rank waits; 0.15 ms idle before each.
- per slice: what each further slice of a step adds, its three arrays taken; 16 slices against 1.
- release: dropping the arrays, the message to the daemon included.
- bare: one recvmsg and one view, without any client: what this machine takes at the least just now.

The rivals hand the same bytes from another process to this one: a multiprocessing.Queue of numpy
arrays, a copy over a Unix socket, and a PyTorch DataLoader with one worker where torch is there.
Each is ready with the next batch before it is asked for.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import batchweave
from batchweave.bench import rivals

KIB, MIB = 1 << 10, 1 << 20
SIZES = (64 * KIB, 64 * MIB)
_MANY = 16
_BUSY_NS, _IDLE_US = 30_000, 150
_GOALS = {"queued_p50_us": 5, "queued_p99_us": 50, "blocking_p50_us": 30, "per_slice_us": 2.5}


@contextlib.contextmanager
def feeding(slices: int, slice_bytes: int, credits: int, delay_us: int) -> Iterator[Path]:
    """Starts a feeder process and returns its socket."""
    with tempfile.TemporaryDirectory(prefix="batchweave-bench-") as folder:
        path = Path(folder) / "s"
        numbers = (slices, slice_bytes, credits, delay_us)
        command = [sys.executable, "-m", "batchweave.bench.feeder", str(path), *map(str, numbers)]
        process = subprocess.Popen(command)
        try:
            yield path
        finally:
            process.kill()
            process.wait()


def _busy(nanoseconds: int) -> None:
    until = time.perf_counter_ns() + nanoseconds
    while time.perf_counter_ns() < until:
        pass


def queued(path: Path, calls: int, credits: int) -> tuple[list[float], list[float]]:
    """Microseconds of each call that found its batch waiting, and of each release."""
    taken, released = [], []
    clock = time.perf_counter_ns
    with batchweave.connect(path, credits=credits, timeout=60) as reader:
        for _ in range(calls):
            _busy(_BUSY_NS)
            began = clock()
            batch = next(reader)
            for piece in batch.slices:
                a, b, c = piece["stamp"], piece["tokens"], piece["segment_ids"]
            ended = clock()
            del batch, piece, a, b, c
            released.append((clock() - ended) / 1e3)
            taken.append((ended - began) / 1e3)
    # The first calls map the segments and fill caches.
    return taken[len(taken) // 10 :], released[len(released) // 10 :]


def blocking(path: Path, calls: int, credits: int) -> list[float]:
    """Microseconds from the daemon's send to the array, of each call that waited."""
    found = []
    with batchweave.connect(path, credits=credits, timeout=60) as reader:
        for _ in range(calls):
            batch = next(reader)
            sent = int(batch.slices[0]["stamp"][0])
            found.append((time.monotonic_ns() - sent) / 1e3)
            del batch
    return found[len(found) // 10 :]


def percentile(values: Sequence[float], share: float) -> float:
    """Returns the value below which this share of the values lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def of_size(slice_bytes: int, rounds: int, calls: int) -> dict[str, float]:
    """Measures all figures for one size of slices."""
    credits = 4 if slice_bytes > MIB else 8
    many = _MANY if slice_bytes <= MIB else 4
    figures: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        figures.setdefault(name, []).append(value)

    with (
        feeding(1, slice_bytes, credits, 0) as one,
        feeding(1, slice_bytes, 2, _IDLE_US) as slow,
        feeding(many, min(slice_bytes, 16 * MIB), credits, 0) as wide,
    ):
        for _ in range(rounds):
            taken, released = queued(one, calls, credits)
            note("bare_p50_us", statistics.median(rivals.bare(calls)))
            note("queued_p50_us", statistics.median(taken))
            note("queued_p99_us", percentile(taken, 0.99))
            note("release_us", statistics.median(released))
            more, _ = queued(wide, calls // 4, credits)
            extra = statistics.median(more) - statistics.median(taken)
            note("per_slice_us", extra / (many - 1))
            note("blocking_p50_us", statistics.median(blocking(slow, calls // 4, 2)))
    return {name: round(statistics.median(values), 2) for name, values in figures.items()}


def beside(slice_bytes: int, calls: int) -> dict[str, float | None]:
    """Measures the rivals' medians at one size; None where one cannot run here."""
    ways: dict[str, Callable[[int, int], list[float]] | None] = {
        "unix_socket_copy_us": rivals.unix_socket,
        "multiprocessing_queue_us": rivals.multiprocessing_queue,
        "dataloader_worker_us": None,
    }
    if importlib.util.find_spec("torch") is not None:
        ways["dataloader_worker_us"] = rivals.dataloader
    return {
        name: round(statistics.median(way(slice_bytes, calls)), 1) if way is not None else None
        for name, way in ways.items()
    }


def measure(rounds: int, calls: int, sizes: Sequence[int] = SIZES) -> dict[str, Any]:
    """Returns the whole report."""
    sized: dict[str, Any] = {}
    # As in trainers; a collection would show in the 99th percentile.
    collects = gc.isenabled()
    gc.disable()
    for size in sizes:
        name = f"{size // MIB}MiB" if size >= MIB else f"{size // KIB}KiB"
        others = beside(size, max(10, min(calls, 20 if size >= MIB else 400)))
        sized[name] = {**of_size(size, rounds, calls), "beside": others}
    if collects:
        gc.enable()
    first = next(iter(sized.values()))
    return {
        **{name: value for name, value in first.items() if name != "beside"},
        "goals": _GOALS,
        "met": {name: bool(first[name] <= goal) for name, goal in _GOALS.items()},
        "sizes": sized,
        "rounds": rounds,
        "calls": calls,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


def text(report: dict[str, Any]) -> str:
    """Formats the report for people."""
    names = ["queued_p50_us", "queued_p99_us", "blocking_p50_us", "per_slice_us", "release_us"]
    names.append("bare_p50_us")
    lines = [f"{'us':24}" + "".join(f"{size:>12}" for size in report["sizes"])]
    for name in names:
        goal = f"   goal {_GOALS[name]}" if name in _GOALS else ""
        values = "".join(f"{sized[name]:12.2f}" for sized in report["sizes"].values())
        lines.append(f"{name[:-3].replace('_', ' '):24}{values}{goal}")
    rivals_names = next(iter(report["sizes"].values()))["beside"]
    for name in rivals_names:
        cells = [sized["beside"][name] for sized in report["sizes"].values()]
        values = "".join("     no torch" if v is None else f"{v:12.1f}" for v in cells)
        lines.append(f"{name[:-3].replace('_', ' '):24}{values}")
    made = f"Python {report['python']}, numpy {report['numpy']}, {report['cpus']} CPUs"
    return "\n".join([*lines, f"{made}, load {report['load']}"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints."""
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m batchweave.bench.handover",
        description=about,
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=5, help="medians are over them (default 5)")
    parser.add_argument("--calls", type=int, default=4000, help="of next() a round (default 4000)")
    parser.add_argument("--text", action="store_true", help="a table instead of JSON")
    args = parser.parse_args(arguments)
    if args.rounds < 1 or args.calls < 100:
        parser.error("at least 1 round of 100 calls")
    report = measure(args.rounds, args.calls)
    print(text(report) if args.text else json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
