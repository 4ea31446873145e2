"""What a rank pays for a batch: the hand-over from a daemon's memory, beside a queue of Python.

    python -m paper.handover {batchweave,reports,queue} BYTES CALLS

Prints the medians of one round in microseconds; a feeder stands for the daemon:

- queued: `next()` and taking the three arrays of one slice, with batches waiting and 30 us of busy
  work between calls;
- blocking: from the daemon's send to the array, where the rank waits; 0.15 ms idle before each;
- per slice: what each further slice of a step adds, its three arrays taken;
- release: dropping the arrays;
- release message: what `next()` pays for the message of a release, here by a call of its own;
- report, report loss, report sources: of each step, as trained, with its loss, with the losses of
  two sources; beside the median, which pays for no message, the mean, which pays for all.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from paper.experiment import Context, Experiment, Outcome, in_turns, quantile
from paper.programs import Program, lines

KIB, MIB = 1 << 10, 1 << 20
_MANY = 16
_BUSY_NS, _IDLE_US = 30_000, 150
_SOURCES = {0: (5120.0, 2048.0), 1: (4096.0, 2048.0)}
# Reports a step to a reader.
Report = Callable[[Any, int], None]
_GOALS = {"queued_p50_us": 5, "queued_p99_us": 50, "blocking_p50_us": 30, "per_slice_us": 2.5}


def run(ctx: Context, out: Outcome) -> None:
    """Measures both ways in turns, at each size of slices."""
    for size in ctx.of([64 * KIB], [64 * KIB], [64 * KIB, 64 * MIB]):
        calls = ctx.of(100, 2000, 4000)
        sides = {
            "BatchWeave": functools.partial(_measured, ctx, "batchweave", size, calls),
            "BatchWeave, reporting": functools.partial(_measured, ctx, "reports", size, calls),
            "multiprocessing.Queue": functools.partial(_measured, ctx, "queue", size, calls // 10),
        }
        found = in_turns(ctx.of(1, 3, 5), sides)
        for name, values in found.items():
            out.rows.append({"system": name, "slice_kib": size / KIB, **values})
        if size == 64 * KIB:
            _compare(found, out)


def _compare(found: dict[str, dict[str, Any]], out: Outcome) -> None:
    without, reporting, _ = found.values()
    for figure, goal in _GOALS.items():
        out.at_most(f"64 KiB, {figure}", without[figure], goal)
    release = reporting["release_us"] + reporting["release_message_us"]
    for kind in ("report", "report_loss", "report_sources"):
        ratio = reporting[f"queued_{kind}_us"] / without["queued_p50_us"]
        out.at_most(f"64 KiB, queued_p50_us with a {kind} per step", ratio, 1.1)
        out.at_most(f"{kind}_us beside a release", reporting[f"{kind}_us"] / release, 1.25)


def _measured(ctx: Context, way: str, size: int, calls: int) -> dict[str, float]:
    words = [ctx.python, "-m", "paper.handover", way, str(size), str(calls)]
    found: dict[str, float] = lines(words, ctx.env, ctx.folder / "handover.log")[0]
    return found


@contextlib.contextmanager
def feeding(slices: int, slice_bytes: int, credits: int, delay_us: int) -> Iterator[Path]:
    """Starts a feeder process and returns its socket."""
    with tempfile.TemporaryDirectory(prefix="paper-feeder-") as folder:
        path = Path(folder) / "s"
        numbers = (slices, slice_bytes, credits, delay_us)
        words = [sys.executable, "-m", "paper.feeder", str(path), *map(str, numbers)]
        with Program("feeder", words, Path(folder) / "log"):
            yield path


def _busy() -> None:
    until = time.perf_counter_ns() + _BUSY_NS
    while time.perf_counter_ns() < until:
        pass


def queued(
    path: Path, calls: int, credits: int, report: Report | None = None
) -> tuple[list[float], ...]:
    """Microseconds of each call that found its batch waiting, of each release, each report."""
    taken, released, reported = [], [], []
    clock, client = time.perf_counter_ns, importlib.import_module("batchweave")
    job = "bench" if report else None
    with client.connect(path, credits=credits, timeout=60, job=job) as reader:
        for _ in range(calls):
            _busy()
            began = clock()
            batch = next(reader)
            for piece in batch.slices:
                a, b, c = piece["stamp"], piece["tokens"], piece["segment_ids"]
            ended = clock()
            step = batch.step
            ended = clock()
            del batch, piece, a, b, c
            released.append((clock() - ended) / 1e3)
            taken.append((ended - began) / 1e3)
            if report is not None:
                began = clock()
                report(reader, step)
                reported.append((clock() - began) / 1e3)
    # The first calls map the segments and fill caches.
    return tuple(found[len(found) // 10 :] for found in (taken, released, reported))


def blocking(path: Path, calls: int, credits: int) -> list[float]:
    """Microseconds from the daemon's send to the array, of each call that waited."""
    found, client = [], importlib.import_module("batchweave")
    with client.connect(path, credits=credits, timeout=60) as reader:
        for _ in range(calls):
            batch = next(reader)
            sent = int(batch.slices[0]["stamp"][0])
            found.append((time.monotonic_ns() - sent) / 1e3)
            del batch
    return found[len(found) // 10 :]


def _reporting(size: int, calls: int) -> dict[str, float]:
    """Measures the hand-over of single slices to a rank that reports each step."""
    found = {}
    reports: dict[str, Report] = {
        "release_message": lambda reader, _: reader._session.release_few(),
        "report": lambda reader, step: reader.report(step),
        "report_loss": lambda reader, step: reader.report(step, loss=2.5, tokens=4096),
        "report_sources": lambda reader, step: reader.report(step, sources=_SOURCES),
    }
    for name, report in reports.items():
        with feeding(1, size, 8, 0) as path:
            taken, released, reported = queued(path, calls, 8, report)
        found[f"queued_{name}_us"] = statistics.median(taken)
        found[f"{name}_us"] = statistics.median(reported)
        found[f"{name}_mean_us"] = statistics.mean(reported)
    return {
        "queued_p50_us": found["queued_report_loss_us"],
        "queued_p99_us": quantile(taken, 0.99),
        "release_us": statistics.median(released),
        **found,
    }


def ours(size: int, calls: int) -> dict[str, float]:
    """Measures all figures for one size of slices."""
    credits, many = (4, 4) if size > MIB else (8, _MANY)
    with feeding(1, size, credits, 0) as one:
        taken, released, _ = queued(one, calls, credits)
    with feeding(many, min(size, 16 * MIB), credits, 0) as wide:
        more, _, _ = queued(wide, calls // 4, credits)
    with feeding(1, size, 2, _IDLE_US) as slow:
        waits = blocking(slow, calls // 4, 2)
    extra = statistics.median(more) - statistics.median(taken)
    return {
        "queued_p50_us": statistics.median(taken),
        "queued_p99_us": quantile(taken, 0.99),
        "blocking_p50_us": statistics.median(waits),
        "per_slice_us": extra / (many - 1),
        "release_us": statistics.median(released),
    }


def _put_all(queue: Any, size: int, calls: int) -> None:
    data = np.ones(size, np.uint8)
    for _ in range(calls):
        queue.put(data)


def theirs(size: int, calls: int) -> dict[str, float]:
    """Measures a bounded multiprocessing.Queue of numpy arrays, with the same work between."""
    context = multiprocessing.get_context("fork")
    queue: Any = context.Queue(4)
    sender = context.Process(target=_put_all, args=(queue, size, calls), daemon=True)
    sender.start()
    found = []
    for _ in range(calls):
        _busy()
        began = time.perf_counter()
        queue.get()
        found.append((time.perf_counter() - began) * 1e6)
    sender.join()
    return {"queued_p50_us": statistics.median(found), "queued_p99_us": quantile(found, 0.99)}


EXPERIMENT = Experiment(
    "handover", "hand-over to a rank", "a goal of this project: 5 us for a waiting batch", run
)

if __name__ == "__main__":
    # As in trainers; a collection would show in the 99th percentile.
    gc.disable()
    way, numbers = sys.argv[1], map(int, sys.argv[2:])
    ways = {"batchweave": ours, "reports": _reporting, "queue": theirs}
    print(json.dumps(ways[way](*numbers)))
