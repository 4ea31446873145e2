"""E1: ingestion of finished batches beside Kafka with strict batches."""

from __future__ import annotations

import functools
import io
import json
import random
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paper import kafka_client
from paper.broker import Broker, brokers
from paper.experiment import Chart, Context, Experiment, Outcome, in_turns, quantile
from paper.programs import FailedError, Program
from paper.streams import Site

SLICES = 64
"""Slices of a batch: Kafka has a partition for each."""
KIB, MIB = 1 << 10, 1 << 20
_SECONDS = 900.0
_HEADER = 128
GROUP = 16 * MIB
STRICT = "Kafka, a transaction per batch"


def run(ctx: Context, out: Outcome) -> None:
    """Measures all sizes, and numbers of producers."""
    sizes = ctx.of([MIB], [100 * KIB, MIB, 10 * MIB], [100 * KIB, MIB, 10 * MIB, 100 * MIB])
    producers = ctx.of([1], [1, 4], [1, 2, 4, 8, 16])
    total = ctx.of(48 * MIB, 128 * MIB, 4096 * MIB)
    out.notes.append(
        f"{SLICES} slices; bytes lie in memory before. BatchWeave: npy files, in tars below 64 KiB "
        "per slice, from the first object to the last commit. Kafka: the producer's cursor in the "
        "transaction, acks=all, no fsync; slice r in partition r, where ranks see a batch at "
        "different times, or all slices in one partition, in one global order"
    )
    out.lacks("a MinIO server", "the harness has a folder as store")
    points: dict[str, list[tuple[float, float]]] = {}
    scaled: dict[str, list[tuple[float, float]]] = {}
    with brokers(ctx, out) as broker:
        pointers = "obstore" in ctx.packages
        if broker is not None and not pointers:
            out.lacks("Kafka with pointers", f"{ctx.python} has no obstore: pip install obstore")
        for size in sizes:
            counts = producers if size == sizes[1 % len(sizes)] else producers[:1]
            for count in counts:
                found = in_turns(ctx.rounds, _sides(ctx, broker, pointers, (size, count, total)))
                for name, values in found.items():
                    row = {"system": name, "batch_kib": size / KIB, "producers": count}
                    out.rows.append({**row, **values})
                    if "mb_per_s" in values and count == producers[0]:
                        points.setdefault(name, []).append((size / MIB, values["mb_per_s"]))
                    if "mb_per_s" in values and len(counts) > 1:
                        scaled.setdefault(name, []).append((count, values["mb_per_s"]))
                _goal(out, found, size, count)
    title = "one producer"
    out.charts.append(Chart(title, "MiB of a batch", "MB/s", list(points.items()), log_x=True))
    if len(producers) > 1:
        title = f"batches of {sizes[1] / MIB:g} MiB"
        out.charts.append(Chart(title, "producers", "MB/s", list(scaled.items())))


def _goal(out: Outcome, found: Mapping[str, Mapping[str, Any]], size: int, count: int) -> None:
    rates = [v["mb_per_s"] for n, v in found.items() if n.startswith(STRICT) and "mb_per_s" in v]
    strict = max(rates, default=0.0)
    mine = found["BatchWeave, folder"]["mb_per_s"]
    if strict and count == 1 and size >= MIB:
        out.at_least(f"{size / MIB:g} MiB: BatchWeave over the better {STRICT}", mine / strict, 2.5)


Case = tuple[int, int, int]


def _sides(
    ctx: Context, broker: Broker | None, pointers: bool, case: Case
) -> dict[str, Callable[[], Mapping[str, Any]]]:
    sides: dict[str, Callable[[], Mapping[str, Any]]] = {
        "BatchWeave, folder": functools.partial(ours, ctx, case)
    }
    if broker is None:
        return sides
    raised, default = kafka_client.RAISED_MESSAGE, kafka_client.DEFAULT_MESSAGE
    sides[f"{STRICT}, 64 partitions"] = lambda: kafka(ctx, broker, case, raised, SLICES)
    sides[f"{STRICT}, one partition"] = lambda: kafka(ctx, broker, case, raised, 1)
    if case[0] < GROUP:
        grouped = "Kafka, transactions of 16 MiB, one partition"
        sides[grouped] = lambda: kafka(ctx, broker, case, raised, 1, GROUP // case[0])
    if case[0] > default:
        sides["Kafka, a message per batch, default limits"] = lambda: kafka(
            ctx, broker, case, default, 1
        )
    if pointers:
        sides["Kafka with pointers, dev-s3"] = lambda: kafka(ctx, broker, case, default, 0)
    return sides


def _files(folder: Path, size: int, count: int) -> str:
    """Writes the slices of batches as arrays of bytes, small ones in tars; returns `from`."""
    folder.mkdir(parents=True)
    length = max(8, size // SLICES)
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({length},), }}"
    header = b"\x93NUMPY\x01\x00" + (_HEADER - 10).to_bytes(2, "little")
    header += text.ljust(_HEADER - 11).encode() + b"\n"
    pool = random.Random(1).randbytes(length + 4096)
    slices = (header + pool[n % 4096 : n % 4096 + length] for n in range(count * SLICES))
    if length >= 64 * KIB:
        for number, data in enumerate(slices):
            (folder / f"{number:08}.npy").write_bytes(data)
        return ""
    with tarfile.open(folder / "all.tar", "w", format=tarfile.USTAR_FORMAT) as shard:
        for number, data in enumerate(slices):
            member = tarfile.TarInfo(f"{number:08}.npy")
            member.size = len(data)
            shard.addfile(member, io.BytesIO(data))
    return ', from = "npy"'


def ours(ctx: Context, case: Case) -> dict[str, Any]:
    """Commits batches from files by daemons, in a folder."""
    size, producers, total = case
    batches = max(ctx.of(8, 40, 48) // producers, total // size // producers)
    with Site(ctx) as site:
        names = ", ".join(f'"p{n}"' for n in range(producers))
        made = []
        for index in range(producers):
            field = _files(site.folder / f"input-{index}", size, batches)
        for index in range(producers):
            text = f"""\
producer.name = "p{index}"
stream = {{ slices = {SLICES}, rows_per_slice = 1, seq_len = 1, producers = [{names}] }}
tokenizer.kind = "bytes"
packing.mode = "opaque"
packing.provenance = false
packing.arrays = [{{ name = "blob", dtype = "U8"{field} }}]
source = {{ paths = [{json.dumps(str(site.folder / f"input-{index}"))}] }}
"""
            made.append(site.daemon("producer", f"p{index}", text))
        for each in made:
            each.wait(_SECONDS)
        cpu = sum(each.cpu_seconds() for each in made)
        stream = site.folder / "stream"
        objects = sorted(
            (path.stat() for path in (stream / "data").rglob("*") if path.is_file()),
            key=lambda found: found.st_mtime,
        )
        records = [path.stat().st_mtime for path in (stream / "log").rglob("*") if path.is_file()]
        status = site.status()
        if status is None or status["head"]["steps"] != batches * producers:
            raise FailedError(f"not all batches are committed: {status}")
    seconds = max(records) - objects[0].st_mtime
    committed = sum(found.st_size for found in objects)
    first = objects[0].st_size
    return {
        "mb_per_s": (committed - first) / seconds / 1e6,
        "batches_per_s": batches * producers * (1 - first / committed) / seconds,
        "cpu_s_per_gb": cpu / committed * 1e9,
        "batches": batches * producers,
    }


def kafka(
    ctx: Context, broker: Broker, case: Case, message: int, partitions: int, group: int = 1
) -> dict[str, Any]:
    """Commits batches by transactional producers, each a process; 0 partitions: pointers."""
    pointers = partitions == 0
    size, producers, total = case
    batches = max(2, total // size // producers // group)
    parts = {"data": max(1, partitions), "cursor": 1}
    folder = ctx.sub("kafka-ingest")
    site = Site(ctx, store="dev-s3") if pointers else None
    env = site.env if site else ctx.env
    with kafka_client.topics(broker, parts, message) as names:
        before, started = broker.cpu_seconds(), []
        for index in range(producers):
            words = [ctx.python, "-m", "paper.kafka_role", "ingest", "--address", broker.address]
            words += ["--data", names["data"], "--cursor", names["cursor"], "--index", str(index)]
            words += ["--bytes", str(size), "--batches", str(batches), "--message", str(message)]
            words += ["--seconds", str(ctx.of(2, 4, 60)), "--group", str(group)]
            whole = partitions and message == kafka_client.DEFAULT_MESSAGE
            words += ["--slices", "1"] if whole else []
            words += ["--pointers"] if pointers else ["--partitions", str(partitions)]
            log = folder / f"{index}.log"
            started.append(Program("a Kafka producer", words, log, env, piped=True))
        try:
            found = [_reported(each) for each in _released(started)]
        finally:
            for each in started:
                each.kill()
            if site:
                site.__exit__(None, None, None)
        server = broker.cpu_seconds() - before
    if failures := [each["failed"] for each in found if "failed" in each]:
        return {"failed": failures[0][:120]}
    committed, seconds = sum(one["bytes"] for one in found), max(one["seconds"] for one in found)
    times = [each for one in found for each in one["times"]]
    return {
        "mb_per_s": committed / seconds / 1e6,
        "batches_per_s": group * len(times) / seconds,
        "cpu_s_per_gb": (sum(each["cpu"] for each in found) + server) / committed * 1e9,
        "commit_p50_ms": 1e3 * quantile(times, 0.5),
        "commit_p99_ms": 1e3 * quantile(times, 0.99),
        "batches": group * len(times),
    }


def _released(started: list[Program]) -> list[Program]:
    """Lets all producers begin once all are ready."""
    for each in started:
        assert each.process.stdout is not None
        if each.process.stdout.readline() != "ready\n":
            raise each.failed("has not started")
    for each in started:
        assert each.process.stdin is not None
        each.process.stdin.write("go\n")
        each.process.stdin.flush()
    return started


def _reported(started: Program) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(started.answer())
    return found


EXPERIMENT = Experiment(
    "e1",
    "ingestion of finished batches",
    "more ingestion than Kafka with strict batch semantics, which fails above 10 MB",
    run,
)
