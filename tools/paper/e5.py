"""E5: step time while processes are killed, frozen, and the store is away."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from paper import audit, supervised, transforms
from paper.experiment import Chart, Context, Experiment, Outcome
from paper.streams import Site
from paper.supervised import GO, KILL, STEPS_MAX, STOP, Fault, Run

COMPUTE, BATCH, SAVE_EVERY, SAMPLE_MS = 0.1, 8, 50, 40.0
PRODUCERS, WORKERS = 2, 4
COMMON = ["--steps", str(STEPS_MAX), "--compute", str(COMPUTE), "--save-every", str(SAVE_EVERY)]
Steps = Sequence[Mapping[str, Any]]


class Times(NamedTuple):
    """Seconds of the run: the faults, how long two of them last, and the end."""

    producer: float
    consumer: float
    store: float
    away: float
    frozen: float
    stop: float
    end: float


def run(ctx: Context, out: Outcome) -> None:
    """Runs both systems through the same times of faults."""
    quick, full = Times(6, 14, 22, 10, 40, 8, 54), Times(30, 60, 90, 20, 130, 20, 180)
    times = ctx.of(Times(4, 8, 12, 4, 20, 4, 30), quick, full)
    given = ctx.sub("faults") / "input"
    samples = int(times.end / COMPUTE + 400) * BATCH
    transforms.make(given, "robot", samples, samples)
    out.notes.append(
        f"{COMPUTE * 1e3:g} ms of compute, {SAMPLE_MS:g} ms per sample imitated by waiting, "
        f"checkpoints every {SAVE_EVERY} steps; {PRODUCERS} producers of {WORKERS} workers on a "
        f"dev-s3, a DataLoader of {2 * WORKERS} workers on local files, so the store's fault and "
        "the network do not touch it, and the fault behind the store's comes sooner"
    )
    _batchweave(ctx, out, given, times)
    if "torch" in ctx.packages:
        # Without the store's fault: those after it come sooner.
        sooner = times.frozen - times.store
        without = times._replace(frozen=times.store, end=times.end - sooner)
        _dataloader(ctx, out, given, without)
    else:
        out.lacks("torch DataLoader", f"{ctx.python} has no torch: pip install torch")


def _batchweave(ctx: Context, out: Outcome, given: Path, times: Times) -> None:
    with (
        Site(ctx, store="dev-s3", on_disk=True) as site,
        Run(ctx, site.folder, site) as running,
    ):
        consumer = {"arena": 1024, "prefetch": 768}
        more = {"workers": WORKERS, "wait_ms": SAMPLE_MS, "lead": 128, "consumer": consumer}
        running.ours(given, "robot", PRODUCERS, COMMON, **more)
        running.until_step(ctx.of(20, 80, 120))
        away, back = f"store away {times.away:g} s", times.store + times.away
        frozen, thaw = f"producer frozen {times.stop:g} s", times.frozen + times.stop

        def freeze(number: int) -> None:
            running.running["p1"].signal(number)

        faults = [
            Fault(times.producer, "producer killed", lambda: running.kill("p0")),
            Fault(times.consumer, "consumer killed", lambda: running.kill("consumer")),
            Fault(times.store, away, site.server.kill, back, site.start_server),
            Fault(times.frozen, frozen, lambda: freeze(STOP), thaw, lambda: freeze(GO)),
        ]
        marks = running.go(times.end, faults)
        steps = running.steps()
        audit.exactly_once("BatchWeave", steps, PRODUCERS)
        _report(out, "BatchWeave", running, steps, marks)
    began = running.began
    excused = (began + times.store, began + times.store + times.away + 5)
    some = [s for s in steps if s["at"] > began and not excused[0] <= s["at"] <= excused[1]]
    waits = sum(float(s["wait"]) for s in some) / sum(float(s["seconds"]) for s in some)
    out.at_most("waiting, percent of the time, without the store's fault", 100 * waits, 2.0)


def _dataloader(ctx: Context, out: Outcome, given: Path, times: Times) -> None:
    words = ["dataloader", "--place", str(given), "--workload", "robot", "--batch", str(BATCH)]
    with Run(ctx, ctx.sub("loader")) as running:
        running.trainer(
            [*words, "--workers", str(2 * WORKERS), *COMMON], given=given, wait_ms=SAMPLE_MS
        )
        running.until_step(20)

        def worker(number: int) -> None:
            running.signal_child("trainer", number)

        frozen, thaw = f"worker frozen {times.stop:g} s", times.frozen + times.stop
        faults = [
            Fault(times.producer, "worker killed", lambda: worker(KILL)),
            Fault(times.consumer, "rank killed", lambda: running.kill("trainer")),
            Fault(times.frozen, frozen, lambda: worker(STOP), thaw, lambda: worker(GO)),
        ]
        marks = running.go(times.end, faults)
        _report(out, "DataLoader", running, running.steps(), marks)


def _report(
    out: Outcome, system: str, running: Run, steps: Steps, marks: Sequence[tuple[float, str]]
) -> None:
    found = supervised.gaps(steps, running.began)
    usual = statistics.median(gap for _, gap in found)
    counted = audit.count(steps, PRODUCERS if system == "BatchWeave" else 1)
    late = sum(gap - usual for _, gap in found if gap > 2 * usual)
    out.rows.append(
        {
            "system": system,
            "usual_step_ms": 1e3 * usual,
            "longest_step_s": max(gap for _, gap in found),
            "seconds_lost": late + counted.repeated_steps * usual,
            "steps_repeated": counted.repeated_steps,
            "samples_lost": counted.lost,
            "samples_doubled": counted.doubled,
            "trainer_restarts": running.restarts.get("trainer", 0),
        }
    )
    # A long step is as high over its whole time.
    lines = [(at, gap) for end, gap in found for at in ([end - gap, end] if gap > 0.5 else [end])]
    series = [("step", lines)]
    out.charts.append(Chart(system, "seconds of the run", "step, s", series, marks=marks))


EXPERIMENT = Experiment(
    "e5",
    "failures beside a trainer",
    "full failure isolation: producers and data daemons fail without the trainer",
    run,
)
