"""E10: kills, and the samples that each system has lost or learned twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paper import audit, kafka_client, loaders, transforms
from paper.broker import brokers
from paper.experiment import Context, Experiment, Outcome, bars
from paper.programs import FailedError, Program
from paper.streams import Site
from paper.supervised import KILL, STEPS_MAX, Run

BATCH, COMPUTE, SAVE_EVERY, WORKERS = 8, 0.02, 20, 2
COMMON = ["--steps", str(STEPS_MAX), "--compute", str(COMPUTE), "--save-every", str(SAVE_EVERY)]


def run(ctx: Context, out: Outcome) -> None:
    """Kills each system as often."""
    kills = ctx.of(3, 6, 200)
    given = ctx.sub("kills") / "input"
    samples = ctx.of(40_000, 60_000, 1_000_000)
    transforms.make(given, "ids", samples, 1)
    mine = _batchweave(ctx, given, kills)
    out.rows.append(mine)
    out.at_most("BatchWeave, samples lost", mine["samples_lost"], 0)
    out.at_most("BatchWeave, samples doubled", mine["samples_doubled"], 0)
    _loaders(ctx, out, given, kills)
    _kafka(ctx, out, kills)
    keys = ("samples_lost", "samples_doubled", "steps_repeated")
    found = {str(each["system"]): each for each in out.rows}
    figures = {key: key.replace("_", " ") for key in keys}
    out.charts.append(bars(f"after {kills} kills", "", "count", found, figures))


def storm(running: Run, kills: int, victim: Callable[[random.Random], object]) -> None:
    """Kills at random moments, each time after the trainer has made progress."""
    chance = random.Random(10)
    for _ in range(kills):
        running.go(chance.uniform(0.2, 1.0))
        victim(chance)
        reached = running.steps()[-1]["step"] if running.steps() else 0
        running.until_step(reached + chance.randint(1, 2 * SAVE_EVERY))
    running.until_step(running.steps()[-1]["step"] + SAVE_EVERY)


def row(system: str, running: Run, kills: int, sources: int) -> dict[str, Any]:
    """Returns the counts of a run."""
    steps = running.steps()
    counted = audit.count(steps, sources)
    return {
        "system": system,
        "kills": kills,
        "steps": len(audit.history(steps)),
        "samples_lost": counted.lost,
        "samples_doubled": counted.doubled,
        "steps_repeated": counted.repeated_steps,
    }


def _batchweave(ctx: Context, given: Path, kills: int) -> dict[str, Any]:
    with Site(ctx) as site, Run(ctx, site.folder, site) as running:
        consumer = {"arena": 64, "prefetch": 32}
        running.ours(given, "plain", 2, COMMON, workers=1, consumer=consumer)
        running.until_step(SAVE_EVERY)
        names = ["p0", "p1", "consumer", "trainer"]
        storm(running, kills, lambda chance: running.kill(chance.choice(names)))
        audit.exactly_once("BatchWeave", running.steps(), 2)
        return row("BatchWeave", running, kills, 2)


def _loaders(ctx: Context, out: Outcome, given: Path, kills: int) -> None:
    """DataLoaders with and without a position in the checkpoint, and MosaicML's."""
    cases = [("dataloader", "restart", "DataLoader, epoch begun again")]
    cases.append(("dataloader", "skip", "DataLoader, sampler's position saved"))
    cases.append(("mosaic", "skip", "MosaicML, its state saved"))
    for way, resume, name in cases:
        if not loaders.available(ctx, out, way, name):
            continue
        try:
            out.rows.append(_loader(ctx, given, kills, (way, resume, name)))
        except FailedError as why:
            out.lacks(name, f"it failed: {str(why)[-300:]}")


def _loader(ctx: Context, given: Path, kills: int, case: tuple[str, str, str]) -> dict[str, Any]:
    way, resume, name = case
    # A killed rank of a loader takes seconds to start, so fewer kills are quick.
    some = kills if ctx.scale == "full" else max(2, kills // 3)
    folder, place = ctx.sub("loader"), given
    if way == "mosaic":
        place = folder / "shards"
        loaders.convert(ctx, way, place, given)
    words = [way, "--place", str(place), "--workload", "ids", "--batch", str(BATCH)]
    words += ["--workers", str(WORKERS), "--resume", resume, *COMMON]
    with Run(ctx, folder) as running:
        running.trainer(words, given=given)
        running.until_step(SAVE_EVERY)

        def victim(chance: random.Random) -> None:
            worker = chance.random() < 0.5
            running.signal_child("trainer", KILL) if worker else running.kill("trainer")

        storm(running, some, victim)
        return row(name, running, some, 1)


def _kafka(ctx: Context, out: Outcome, kills: int) -> None:
    """Kills the producer and the trainer of strict batches, whose offsets are in the checkpoint."""
    some = kills if ctx.scale == "full" else max(2, kills // 2)
    parts, message = {"rows": 8, "cursor": 1}, kafka_client.DEFAULT_MESSAGE
    with brokers(ctx, out) as broker:
        if broker is None:
            return
        with (
            kafka_client.topics(broker, parts, message) as names,
            Run(ctx, ctx.sub("kafka-run")) as running,
        ):
            command = [ctx.python, "-m", "paper.kafka_role", "rows", "--address", broker.address]
            command += ["--data", names["rows"], "--cursor", names["cursor"]]
            command += ["--batches", str(1 << 40)]
            log = running.folder / "producer.log"
            running.add("producer", lambda: Program("producer", command, log, ctx.env))
            words = ["kafka", "--place", broker.address, "--topic", names["rows"]]
            running.trainer([*words, *COMMON])
            running.until_step(SAVE_EVERY)
            storm(running, some, lambda c: running.kill(c.choice(["producer", "trainer"])))
            out.rows.append(row("Kafka, strict batches, offsets saved", running, some, 1))


EXPERIMENT = Experiment(
    "e10", "lost and doubled samples after kills", "exactly-once recovery from end to end", run
)
