"""Measures `next()` in a real loop, where the trainer's work leaves the client's memory cold.

    python -m batchweave.bench.read [--rounds N] [--calls N] [--text]

Between calls the trainer works for about 30 us, 1 ms or 20 ms: it adds to an array larger than the
last-level cache, one part after another; in 20 ms it touches at least 64 MiB. Batches wait
meanwhile. Prints one JSON object; `batchweave bench read` prints the same. Microseconds, each the
median of the rounds:

- next(): the call, the release of the step before and access to the three arrays of its slice, as
  in a `for` loop; p50 and p99. Its parts, p50 each: the call, the release, the views.
- tight: as `batchweave bench handover` measures, with 30 us of busy work that touches no memory
  between calls, and the release apart.
- bare: one recvmsg and one view, without any client, with the same work between calls.
- multiprocessing.Queue: numpy arrays of the same size from another process, with the same work.

All of them are measured in turns in each round, and ratios are of the medians.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import batchweave
from batchweave.bench import handover, rivals
from batchweave.bench.handover import KIB, MIB, percentile

SIZES = (128 * KIB, MIB)
_GOALS = {"128KiB": {"p50_us": 10, "p99_us": 28}, "1MiB": {"p50_us": 36, "p99_us": 77}}
_CREDITS = 8
BLOCK_BYTES, _PART_BYTES = 128 * MIB, 64 * KIB
_FIRST_SHARE = 10
"""The share of the first calls that is left out: they map the segments."""


class Length(NamedTuple):
    """A length of work: its time, and the bytes that it touches at least."""

    name: str
    microseconds: int
    bytes_min: int = 0


LENGTHS = (Length("30us", 30), Length("1ms", 1000), Length("20ms", 20_000, 64 * MIB))


class Work:
    """Work of a trainer: it reads and writes parts of one large array in turn."""

    def __init__(self, block: npt.NDArray[np.uint8], length: Length) -> None:
        self._block, self._length = block, length
        self._at = self.calls = self.touched = self.nanoseconds = 0

    def __call__(self) -> None:
        """Works for the time, and until the bytes are touched."""
        began, touched = time.perf_counter_ns(), 0
        until = began + 1000 * self._length.microseconds
        while touched < self._length.bytes_min or time.perf_counter_ns() < until:
            part = self._block[self._at : self._at + _PART_BYTES]
            np.add(part, 1, out=part)
            self._at = (self._at + _PART_BYTES) % len(self._block)
            touched += _PART_BYTES
        self.calls, self.touched = self.calls + 1, self.touched + touched
        self.nanoseconds += time.perf_counter_ns() - began


class Parts(NamedTuple):
    """The parts of one call, in microseconds."""

    call: float
    release: float
    views: float


def loop(path: Path, calls: int, work: Callable[[], None]) -> list[Parts]:
    """Reads batches as a `for` loop does, which drops a batch once it has the next one."""
    found, clock = [], time.perf_counter
    with batchweave.connect(path, credits=_CREDITS, timeout=60) as reader:
        batch = piece = tokens = segment_ids = None
        for _ in range(calls):
            work()
            began = clock()
            following = next(reader)
            received = clock()
            batch = piece = tokens = segment_ids = None
            released = clock()
            batch = following
            for piece in batch.slices:
                piece["stamp"]
                tokens, segment_ids = piece["tokens"], piece["segment_ids"]
            ended = clock()
            del following
            times = (received - began, released - received, ended - released)
            found.append(Parts(*(1e6 * seconds for seconds in times)))
        del batch, piece, tokens, segment_ids
    return found[len(found) // _FIRST_SHARE :]


def of_size(slice_bytes: int, rounds: int, calls: int, lengths: Sequence[Length]) -> dict[str, Any]:
    """Measures all figures for one size of slices."""
    figures: dict[tuple[str, ...], list[float]] = {}
    block = np.zeros(BLOCK_BYTES, np.uint8)
    works = {length.name: Work(block, length) for length in lengths}

    def note(values: Sequence[float], *names: str) -> None:
        figures.setdefault((*names, "p50_us"), []).append(statistics.median(values))
        figures.setdefault((*names, "p99_us"), []).append(percentile(values, 0.99))

    with handover.feeding(1, slice_bytes, _CREDITS, 0) as path:
        for _ in range(rounds):
            taken, released = handover.queued(path, calls, _CREDITS)
            note(taken, "tight")
            note(released, "tight", "release")
            for name, work in works.items():
                parts = loop(path, calls, work)
                note([sum(each) for each in parts], name, "next")
                for part in Parts._fields:
                    note([getattr(each, part) for each in parts], name, part)
                note(rivals.bare(calls, work), name, "bare")
                queue = rivals.multiprocessing_queue(slice_bytes, calls, work)
                note(queue, name, "multiprocessing_queue")
    medians = {names: round(statistics.median(values), 2) for names, values in figures.items()}
    tight = {name: medians["tight", name] for name in ("p50_us", "p99_us")}
    tight["release_us"] = medians["tight", "release", "p50_us"]
    found = {name: _of_length(name, work, medians) for name, work in works.items()}
    return {"tight": tight, "work": found}


def _of_length(name: str, work: Work, medians: dict[tuple[str, ...], float]) -> dict[str, Any]:
    whole = medians[name, "next", "p50_us"]
    tight = medians["tight", "p50_us"] + medians["tight", "release", "p50_us"]
    others = {
        other: {each: medians[name, other, each] for each in ("p50_us", "p99_us")}
        for other in ("bare", "multiprocessing_queue")
    }
    return {
        "work_us": round(work.nanoseconds / work.calls / 1e3, 1),
        "work_bytes": work.touched // work.calls,
        "p50_us": whole,
        "p99_us": medians[name, "next", "p99_us"],
        "parts_us": {part: medians[name, part, "p50_us"] for part in Parts._fields},
        "beside": others,
        "ratio_to_tight": round(whole / tight, 2),
        "ratio_to_bare": round(whole / others["bare"]["p50_us"], 2),
        "ratio_to_queue": round(whole / others["multiprocessing_queue"]["p50_us"], 3),
    }


def measure(
    rounds: int,
    calls: int,
    sizes: Sequence[int] = SIZES,
    lengths: Sequence[Length] = LENGTHS,
) -> dict[str, Any]:
    """Returns the whole report."""
    # As in trainers; a collection would show in the 99th percentile.
    collects = gc.isenabled()
    gc.disable()
    sized = {}
    for size in sizes:
        name = f"{size // MIB}MiB" if size >= MIB else f"{size // KIB}KiB"
        sized[name] = of_size(size, rounds, calls, lengths)
    if collects:
        gc.enable()
    return {
        "sizes": sized,
        "goals": _GOALS,
        "met": {name: _met(sized[name], _GOALS[name]) for name in sized if name in _GOALS},
        "rounds": rounds,
        "calls": calls,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


def _met(sized: dict[str, Any], goals: dict[str, int]) -> bool:
    """Returns whether the goals are met after every length of work."""
    return all(
        work[name] <= goal for work in sized["work"].values() for name, goal in goals.items()
    )


def text(report: dict[str, Any]) -> str:
    """Formats the report for people."""
    columns = ("next() p50", "p99", "call", "release", "views", "bare", "p99", "queue", "p99")
    lines = [f"{'us':16}" + "".join(f"{column:>11}" for column in columns)]
    for size, sized in report["sizes"].items():
        tight = sized["tight"]
        cells = [tight["p50_us"] + tight["release_us"], tight["p99_us"], tight["p50_us"]]
        lines.append(f"{size + ' tight':16}" + _cells([*cells, tight["release_us"]]))
        for name, work in sized["work"].items():
            cells = [work["p50_us"], work["p99_us"], *work["parts_us"].values()]
            for other in work["beside"].values():
                cells += [other["p50_us"], other["p99_us"]]
            lines.append(f"{size + ' ' + name:16}" + _cells(cells))
    for size, goals in report["goals"].items():
        lines.append(f"goals for {size}: p50 {goals['p50_us']}, p99 {goals['p99_us']}")
    made = f"Python {report['python']}, numpy {report['numpy']}, {report['cpus']} CPUs"
    return "\n".join([*lines, f"{made}, load {report['load']}"])


def _cells(values: Sequence[float]) -> str:
    return "".join(f"{value:11.1f}" for value in values)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints."""
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m batchweave.bench.read",
        description=about,
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=5, help="medians are over them (default 5)")
    parser.add_argument("--calls", type=int, default=300, help="of next() a round (default 300)")
    parser.add_argument("--text", action="store_true", help="a table instead of JSON")
    args = parser.parse_args(arguments)
    if args.rounds < 1 or args.calls < 100:
        parser.error("at least 1 round of 100 calls")
    report = measure(args.rounds, args.calls)
    print(text(report) if args.text else json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
