"""Compares BatchWeave with Kafka: ingestion, `next()` beside `poll()`, and freshness, in turns.

Kafka is a broker of one node (KRaft) with the heap of its own scripts, its data in the temporary
folder, and confluent-kafka (librdkafka) as the client. BatchWeave is measured by `batchweave bench`
in the same folder. Run the tool in a Python with numpy, confluent-kafka, obstore and pyarrow; the
broker needs Java 17.

ingest     finished batches from files until they are committed. Kafka: an idempotent,
           transactional producer with acks=all, messages of at most --message-bytes (all limits are
           raised to that), one partition; transactions of whole batches, of at least 16 MiB or of
           one batch. Starts are not counted.
read       Kafka: poll() and a view of the message, with all messages in the client's queue, between
           pieces of work that touch other memory. BatchWeave: next(), release and views.
freshness  from the end of a commit to the poll() or next() that waits for it, 1 kB at a time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rivals import broker as brokers
from rivals import common, figures, kafka_client, kafka_freshness, kafka_ingest, kafka_read
from rivals.broker import Broker
from rivals.figures import Figures, Metric, Row, Side

PARTS = ("ingest", "read", "freshness")
_WARM_BYTES = 256 << 20
_INGEST = (
    Metric("bytes_per_second", "MB/s", 1e-6, 0),
    Metric("batches_per_second", "batches/s"),
    Metric("cpu_seconds_per_gb", "CPU s/GB", digits=2),
    Metric("server_cpu_seconds_per_gb", "server's CPU s/GB", digits=2),
)
_READ = (Metric("p50_us", "p50 us"), Metric("p99_us", "p99 us"))
_FRESHNESS = (
    Metric("p50_ms", "p50 ms"),
    Metric("p99_ms", "p99 ms"),
    Metric("sent_p50_ms", "from the send, p50 ms"),
)
_TABLES = {
    "ingest": ("ingestion of finished batches", _INGEST),
    "read": ("next() and poll() between pieces of work", _READ),
    "freshness": ("from a commit to the waiting next() or poll()", _FRESHNESS),
}


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the tool's arguments."""
    made = common.parser_of(__doc__ or "", 3)
    add = made.add_argument
    add("--kafka", type=Path, metavar="DIR", help="Kafka's jars (default: fetched by Maven)")
    add(
        "--kafka-version",
        default=brokers.VERSION,
        help=f"the version to fetch (default {brokers.VERSION})",
    )
    add("--java", default="java", metavar="PROGRAM", help="Java 17 or newer (default: java)")
    add("--fsync", action="store_true", help="Kafka syncs each append; its default is never")
    add(
        "--only",
        type=common.choices(PARTS),
        default=list(PARTS),
        metavar="PARTS",
        help=f"of {','.join(PARTS)} (default: all)",
    )
    add(
        "--batch-bytes",
        type=common.sizes,
        default=["100KiB", "1MiB", "10MiB", "64MiB"],
        metavar="SIZES",
        help="ingest: sizes of a batch (default 100KiB,1MiB,10MiB,64MiB)",
    )
    add(
        "--bytes",
        type=common.size,
        default=1 << 30,
        metavar="SIZE",
        help="ingest: bytes per measurement (default 1GiB)",
    )
    add(
        "--message-bytes",
        type=common.size,
        default=1 << 20,
        metavar="SIZE",
        help="ingest: Kafka's largest message; larger batches are divided (default 1MiB)",
    )
    add("--partitions", type=common.count, default=1, help="ingest: of Kafka's topic (default 1)")
    common.add_stores(made, "ingest: BatchWeave's")
    add("--calls", type=int, default=300, help="read: calls per case and round (default 300)")
    add("--samples", type=int, default=200, help="freshness: commits per round (default 200)")
    return made


class Comparison:
    """The sides of all parts."""

    def __init__(self, args: argparse.Namespace, folder: Path, broker: Broker) -> None:
        self._args, self._folder, self._broker = args, folder, broker
        self._program = common.program(args.batchweave)
        self._env = common.environment(self._program, folder)

    def sides(self, part: str) -> Iterator[list[Side]]:
        """Yields groups of sides that are measured in turns."""
        if part == "read":
            yield self._read()
        elif part == "freshness":
            yield self._freshness()
        else:
            for text in self._args.batch_bytes:
                input_folder = self._folder / f"batches-{text}"
                yield self._ingest(text, input_folder)
                shutil.rmtree(input_folder)

    def _bench(self, *words: str) -> dict[str, Any]:
        command = [str(self._program), "bench", *words, "--json"]
        return common.report(command, self._env, self._folder)

    def _ingest(self, text: str, input_folder: Path) -> list[Side]:
        args = self._args
        batches = kafka_ingest.files(input_folder, common.size(text), args.bytes)

        def theirs(name: str, strict: bool) -> Side:
            def measure() -> figures.Found:
                limits = (args.message_bytes, args.partitions)
                found = kafka_ingest.measure(self._broker, batches, *limits, strict=strict)
                return {Row("ingest", text, name): found}

            return Side(f"ingest {text}, {name}", measure)

        def ours() -> figures.Found:
            words = ["--batch-bytes", text, "--bytes", f"{args.bytes}B", "--rounds", "1"]
            words += ["--stores", ",".join(args.stores)]
            return {
                Row("ingest", text, f"BatchWeave, {case['store']}"): {
                    metric.name: case[metric.name] for metric in _INGEST
                }
                for case in self._bench("ingest", *words)["cases"]
            }

        self._warm(text, batches)
        return [
            theirs("Kafka, 16 MiB or more per transaction", False),
            theirs("Kafka, a batch per transaction", True),
            Side(f"ingest {text}, BatchWeave", ours),
        ]

    def _warm(self, text: str, batches: Sequence[Path]) -> None:
        """Runs the broker over batches of a size, unmeasured, so that its code is compiled."""
        common.note(f"ingest {text}, warming up the broker")
        limits = (self._args.message_bytes, self._args.partitions)
        some = batches[: max(1, _WARM_BYTES // common.size(text))]
        for strict in (False, True):
            kafka_ingest.measure(self._broker, some, *limits, strict=strict)

    def _read(self) -> list[Side]:
        calls = self._args.calls

        def theirs() -> figures.Found:
            return {
                Row("read", " ".join(case), "Kafka, queued"): values
                for case, values in kafka_read.measure(self._broker, calls).items()
            }

        def ours() -> figures.Found:
            words = ["--python", sys.executable, "--rounds", "1", "--calls", str(calls)]
            sized = self._bench("read", *words)["sizes"]
            return {
                Row("read", f"{size} {length}", "BatchWeave"): {
                    name: found[name] for name in ("p50_us", "p99_us")
                }
                for size in sized
                for length, found in sized[size]["work"].items()
            }

        return [Side("read, Kafka", theirs), Side("read, BatchWeave", ours)]

    def _freshness(self) -> list[Side]:
        samples = self._args.samples

        def theirs(name: str, transactional: bool) -> Side:
            def measure() -> figures.Found:
                found = kafka_freshness.measure(self._broker, samples, transactional=transactional)
                return {Row("freshness", "", name): found}

            return Side(f"freshness, {name}", measure)

        def ours() -> figures.Found:
            words = ["--python", sys.executable, "--samples", str(samples)]
            names = {"folder": "BatchWeave, folder", "s3": "BatchWeave, dev-s3 like S3 Standard"}
            return {
                Row("freshness", "", names[store["store"]]): {
                    f"{name}_ms": store["freshness_ms"][name] for name in ("p50", "p99")
                }
                for store in self._bench("freshness", *words)["stores"]
            }

        return [
            theirs("Kafka, a transaction", True),
            theirs("Kafka, acks=all and flush", False),
            Side("freshness, BatchWeave", ours),
        ]


def compare(args: argparse.Namespace) -> None:
    """Measures and prints."""
    kafka_client.check_packages()
    common.program(args.batchweave)
    sys.path.insert(0, str(common.CLIENT))
    with common.temporary("compare-kafka", args.dir) as folder:
        jars = brokers.jars(args.kafka, folder, args.kafka_version)
        found = Figures()
        with Broker(args.java, folder, jars, fsync=args.fsync) as broker:
            comparison = Comparison(args, folder, broker)
            try:
                for part in args.only:
                    for sides in comparison.sides(part):
                        found.in_turns(args.rounds, sides)
            except kafka_client.kafka().KafkaException as why:
                raise broker.failed(f"or its client failed ({why}); the broker's messages") from why
    if args.json:
        settings = {
            "client": kafka_client.versions(),
            "message_bytes": args.message_bytes,
            "group_bytes": kafka_ingest.GROUP_BYTES,
            "partitions": args.partitions,
            "fsync": args.fsync,
        }
        print(figures.as_json(found, args.rounds, settings))
        return
    for part in args.only:
        title, metrics = _TABLES[part]
        print(found.table(part, f"{title}; median of {args.rounds} rounds (range)", metrics))
        print()
    print(f"{kafka_client.versions()}; {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the tool."""
    made = parser()
    args = made.parse_args(arguments)
    if args.calls < 100:
        made.error(f"--calls {args.calls}: at least 100")
    if args.samples < 10:
        made.error(f"--samples {args.samples}: at least 10")
    return common.run(lambda: compare(args))
