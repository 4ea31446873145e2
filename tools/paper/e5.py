"""E5: step time while processes are killed, frozen, and the store is away."""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paper import audit, supervised, transforms
from paper.experiment import Chart, Context, Experiment, Outcome
from paper.streams import Site
from paper.supervised import Fault, Run

COMPUTE, BATCH, SAVE_EVERY, SAMPLE_MS = 0.1, 8, 50, 40.0
PRODUCERS, WORKERS = 2, 4
_STEPS_MAX = 20_000


def run(ctx: Context, out: Outcome) -> None:
    """Runs both systems through the same times of faults."""
    times = ctx.of(
        (4, 8, 12, 4, 20, 4, 30), (8, 16, 24, 10, 42, 8, 58), (30, 60, 90, 20, 130, 20, 180)
    )
    given = ctx.sub("faults") / "input"
    samples = int(times[-1] / COMPUTE + 200) * BATCH
    transforms.make(given, "robot", samples, samples)
    out.notes.append(
        f"{COMPUTE * 1e3:g} ms of compute, {SAMPLE_MS:g} ms per sample imitated by waiting, "
        f"checkpoints every {SAVE_EVERY} steps; {PRODUCERS} producers of {WORKERS} workers on a "
        f"dev-s3, a DataLoader of {2 * WORKERS} workers on local files, so the store's fault and "
        "the network do not touch it"
    )
    _batchweave(ctx, out, given, times)
    if "torch" in ctx.packages:
        _dataloader(ctx, out, given, times)
    else:
        out.lacks("torch DataLoader", f"{ctx.python} has no torch: pip install torch")


def _batchweave(ctx: Context, out: Outcome, given: Path, times: Sequence[float]) -> None:
    words = ["--steps", str(_STEPS_MAX), "--compute", f"{COMPUTE:g}", "--save-every", "50"]
    with (
        Site(ctx, store="dev-s3", on_disk=True) as site,
        supervised.ours(
            ctx,
            site,
            given,
            "robot",
            producers=PRODUCERS,
            workers=WORKERS,
            wait_ms=SAMPLE_MS,
            lead=128,
            trainer_words=words,
            consumer={"arena_mib": 1024, "prefetch_mib": 768},
        ) as running,
    ):
        running.until_step(ctx.of(20, 80, 120), 120)
        assert site.server is not None
        faults = [
            Fault(times[0], "producer killed", lambda: running.kill("p0")),
            Fault(times[1], "consumer killed", lambda: running.kill("consumer")),
            Fault(
                times[2],
                f"store away {times[3]:g} s",
                site.server.kill,
                times[2] + times[3],
                site.start_server,
            ),
            Fault(
                times[4],
                f"producer frozen {times[5]:g} s",
                lambda: running.freeze("p1", True),
                times[4] + times[5],
                lambda: running.freeze("p1", False),
            ),
        ]
        marks = running.go(times[-1], faults)
        steps = running.steps()
        audit.exactly_once("BatchWeave", steps, PRODUCERS)
        _report(out, "BatchWeave", running, steps, marks)
        waits = _waiting(steps, running.began, times)
        out.at_most("waiting, percent of the time, without the store's fault", waits, 2.0)


def _dataloader(ctx: Context, out: Outcome, given: Path, times: Sequence[float]) -> None:
    words = ["dataloader", "--place", str(given), "--workload", "robot", "--batch", str(BATCH)]
    words += ["--steps", str(_STEPS_MAX), "--compute", f"{COMPUTE:g}"]
    words += ["--workers", str(2 * WORKERS), "--save-every", str(SAVE_EVERY)]
    chance = random.Random(5)
    with Run(ctx, ctx.sub("loader")) as running:
        running.trainer(words, given=given, wait_ms=SAMPLE_MS)
        running.until_step(20, 120)
        faults = [
            Fault(times[0], "worker killed", lambda: running.kill_child("trainer", chance)),
            Fault(times[1], "rank killed", lambda: running.kill("trainer")),
            Fault(
                times[4],
                f"worker frozen {times[5]:g} s",
                lambda: running.freeze("trainer", True, child=True),
                times[4] + times[5],
                lambda: running.freeze("trainer", False, child=True),
            ),
        ]
        marks = running.go(times[-1], faults)
        _report(out, "DataLoader", running, running.steps(), marks)


def _waiting(steps: Sequence[Mapping[str, Any]], began: float, times: Sequence[float]) -> float:
    """Returns the share of waiting, without the time from the store's fault to 5 s after it."""
    away = (began + times[2], began + times[2] + times[3] + 5)
    some = [s for s in steps if s["at"] > began and not away[0] <= s["at"] <= away[1]]
    whole = sum(float(each["seconds"]) for each in some)
    return 100 * sum(float(each["wait"]) for each in some) / whole


def _report(
    out: Outcome,
    system: str,
    running: Run,
    steps: Sequence[Mapping[str, Any]],
    marks: Sequence[tuple[float, str]],
) -> None:
    found = supervised.gaps(steps, running.began)
    usual = statistics.median(gap for _, gap in found)
    counted = audit.count(steps, PRODUCERS if system == "BatchWeave" else 1)
    out.rows.append(
        {
            "system": system,
            "usual_step_ms": 1e3 * usual,
            "longest_step_s": max(gap for _, gap in found),
            "seconds_lost": supervised.seconds_lost(found, usual) + counted.repeated_steps * usual,
            "steps_repeated": counted.repeated_steps,
            "samples_lost": counted.lost,
            "samples_doubled": counted.doubled,
            "trainer_restarts": running.restarts.get("trainer", 0),
        }
    )
    out.charts.append(
        Chart(system, "seconds of the run", "step, s", [("step", found)], "line", (), marks)
    )


EXPERIMENT = Experiment(
    "e5",
    "failures beside a trainer",
    "full failure isolation: producers and data daemons fail without the trainer",
    run,
)
