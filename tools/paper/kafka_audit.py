"""Kafka's side of experiments: whether it can run here, and kills of its producer and trainer."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Iterator

from paper import broker, e10, kafka_client, supervised
from paper.broker import Broker
from paper.experiment import Context, Outcome
from paper.programs import FailedError, Program
from paper.supervised import Role

NAME = "Kafka, strict batches"


@contextlib.contextmanager
def brokers(ctx: Context, out: Outcome) -> Iterator[Broker | None]:
    """Runs a broker; None, with the reason on the page, where there can be none."""
    if "confluent_kafka" not in ctx.packages:
        out.lacks(NAME, f"{ctx.python} has no confluent_kafka: pip install confluent-kafka")
        yield None
        return
    if shutil.which(ctx.java) is None:
        out.lacks(NAME, f"no Java ({ctx.java}): install Java 17 or newer, or --java PROGRAM")
        yield None
        return
    folder = ctx.sub("kafka")
    try:
        jars = broker.jars(ctx.kafka, ctx.kafka_cache, broker.VERSION)
        started = Broker(ctx.java, folder, jars, 2 * kafka_client.RAISED_MESSAGE)
    except FailedError as why:
        out.lacks(NAME, str(why))
        yield None
        return
    with started:
        yield started


def add(ctx: Context, out: Outcome, kills: int) -> None:
    """Kills a producer and a trainer by turns, and counts the samples."""
    some = kills if ctx.scale == "full" else max(2, kills // 2)
    with brokers(ctx, out) as found:
        if found is None:
            return
        slices = {"rows": 8, "cursor": 1}
        with (
            kafka_client.topics(found, slices, kafka_client.DEFAULT_MESSAGE) as names,
            supervised.Run(ctx, ctx.sub("kafka-run")) as running,
        ):
            data, cursor = names["rows"], names["cursor"]
            command = [ctx.python, "-m", "paper.kafka_role", "rows", "--address", found.address]
            command += ["--data", data, "--cursor", cursor, "--batches", str(1 << 40)]
            log = running.folder / "producer.log"
            running.add(Role("producer", lambda: Program("producer", command, log, ctx.env)))
            words = ["kafka", "--place", found.address, "--topic", data]
            words += ["--steps", str(1 << 20), "--compute", f"{e10.COMPUTE:g}"]
            running.trainer([*words, "--save-every", str(e10.SAVE_EVERY)])
            running.until_step(e10.SAVE_EVERY, 120)

            def victims(chance: random.Random) -> str:
                name = chance.choice(["producer", "trainer"])
                running.kill(name)
                return name

            e10.storm(running, some, victims)
            out.rows.append(e10.row(f"{NAME}, offsets saved", running, some, 1))
