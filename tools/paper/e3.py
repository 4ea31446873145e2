"""E3: reading beside Kafka: a batch that waits, the newest one, and an old one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paper import audit, freshness, kafka_client, transforms
from paper.broker import Broker, brokers
from paper.experiment import Context, Experiment, Outcome, bars, in_turns, quantile
from paper.kafka_role import SLICES
from paper.programs import lines
from paper.streams import Site, Trainer

MIB = 1 << 20
RATE = 2.0
"""Batches per second of the producer, for the newest ones."""
WORK, WARM = 0.02, 10
CASES = ("warm", "head", "cold")


def run(ctx: Context, out: Outcome) -> None:
    """Measures both systems at each size."""
    sizes = ctx.of([MIB], [MIB, 10 * MIB], [MIB, 10 * MIB, 64 * MIB])
    stored, fresh, seeks = ctx.of((30, 4, 3), (150, 10, 12), (500, 200, 100))
    out.notes.append(
        f"one rank reads {SLICES} slices. warm: next() or poll() of a waiting batch after "
        f"{WORK * 1e3:g} ms of work; head: from the end of the commit to the waiting reader, at "
        f"{RATE:g} batches/s; cold: a new reader at a random step. BatchWeave reads a folder"
    )
    with brokers(ctx, out) as broker:
        for size in sizes:
            count = max(20, min(stored, (1 << 30) // size))
            sides: dict[str, Any] = {
                "BatchWeave": lambda s=size, c=count: ours(ctx, s, c, fresh, seeks)
            }
            if broker is not None:
                sides["Kafka"] = lambda s=size, c=count: kafka(ctx, broker, s, c, fresh, seeks)
            found = in_turns(ctx.rounds, sides)
            for name, values in found.items():
                out.rows.append({"system": name, "batch_mib": size / MIB, **values})
            title = f"batches of {size / MIB:g} MiB"
            chart = bars(title, "read", "p50, ms", found, {f"{c}_p50_ms": c for c in CASES})
            out.charts.append(chart._replace(log_y=True))
            if broker is not None:
                for case in CASES:
                    ratio = found["BatchWeave"][f"{case}_p50_ms"] / found["Kafka"][f"{case}_p50_ms"]
                    out.at_most(f"{title}, {case}: BatchWeave's p50 over Kafka's", ratio, 1.0)


def _figures(case: str, seconds: Sequence[float]) -> dict[str, float]:
    return {
        f"{case}_p50_ms": 1e3 * quantile(seconds, 0.5),
        f"{case}_p99_ms": 1e3 * quantile(seconds, 0.99),
    }


def _warm(steps: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    summary = audit.summary(steps, SLICES, WARM)
    return {"warm_p50_ms": summary["next_p50_ms"], "warm_p99_ms": summary["next_p99_ms"]}


def _seeks(ctx: Context, words: Sequence[str]) -> dict[str, float]:
    command = [ctx.python, "-m", "paper.seeks", *words]
    return _figures("cold", lines(command, ctx.env, ctx.folder / "seeks.log")[0]["times"])


def ours(ctx: Context, size: int, stored: int, fresh: int, seeks: int) -> dict[str, float]:
    """Reads from a folder."""
    given = ctx.sub("blobs") / "input"
    transforms.make(given, "blob", stored * SLICES, stored * SLICES)
    more: dict[str, Any] = {"workers": 1, "slices": SLICES, "blob": size // SLICES}
    with Site(ctx) as site:
        site.producer(0, 1, given, "blob", lead=0, **more).wait(600)
        _, socket = site.consumer(job="warm", arena=1024, prefetch=512)
        words = ["batchweave", "--place", str(socket), "--job", "warm", "--steps", str(stored)]
        made = Trainer(ctx, site.folder, [*words, "--compute", f"{WORK:g}"])
        found = _warm(made.trained(300, site))
        words = ["batchweave", "--place", str(socket), "--steps", str(stored)]
        _, cold = site.consumer("cold", job="cold", arena=512, prefetch=64)
        words[2] = str(cold)
        found |= _seeks(ctx, [*words, "--count", str(seeks)])
    waits = freshness.waits(ctx, (SLICES, size // SLICES), RATE, fresh)
    return found | _figures("head", waits[1:])


def kafka(
    ctx: Context, broker: Broker, size: int, stored: int, fresh: int, seeks: int
) -> dict[str, float]:
    """Reads slice r from partition r, one consumer for each."""
    with kafka_client.topics(broker, {"data": SLICES, "cursor": 1}, size) as names:
        place = ["--place", broker.address, "--topic", names["data"], "--steps"]
        _produced(ctx, broker, names, size, stored, 0.0)
        words = ["kafka", *place, str(stored), "--compute", f"{WORK:g}"]
        found = _warm(Trainer(ctx, ctx.sub("kafka-read"), words).trained(300))
        found |= _seeks(ctx, ["kafka", *place, str(stored), "--count", str(seeks)])
    with kafka_client.topics(broker, {"data": SLICES, "cursor": 1}, size) as names:
        words = ["kafka", "--place", broker.address, "--topic", names["data"]]
        folder = ctx.sub("kafka-head")
        made = Trainer(ctx, folder, [*words, "--steps", str(fresh)])
        commits = _produced(ctx, broker, names, size, fresh, 1 / RATE)
        steps = made.trained(300)
        waits = [max(0.0, s["wall"] - at) for s, at in zip(steps, commits, strict=True)]
        return found | _figures("head", waits[1:])


def _produced(
    ctx: Context, broker: Broker, names: Mapping[str, str], size: int, count: int, pause: float
) -> list[float]:
    """Commits batches, and returns the moment at which each was committed."""
    words = [ctx.python, "-m", "paper.kafka_role", "rows", "--address", broker.address]
    words += ["--data", names["data"], "--cursor", names["cursor"], "--bytes", str(size)]
    words += ["--batches", str(count), "--pause", f"{pause:g}"]
    words += ["--message", str(kafka_client.RAISED_MESSAGE)]
    found = lines(words, ctx.env, ctx.folder / "kafka-rows.log")
    return [float(each["wall"]) for each in found]


EXPERIMENT = Experiment("e3", "reading beside Kafka", "lower read latency than Kafka", run)
