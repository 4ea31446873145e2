"""E6: bytes that nodes read over those that their ranks need."""

from __future__ import annotations

import contextlib
import socket
import urllib.request

from paper import transforms
from paper.experiment import Chart, Context, Experiment, Outcome
from paper.streams import Site, Trainer

SHARD = 67e6
"""Bytes of a shard of MosaicML's StreamingDataset by default."""
_COUNTERS = ("needed_bytes", "fetched_bytes", "store_requests", "hedged_reads")
"""Of the requests only those for data."""


def run(ctx: Context, out: Outcome) -> None:
    """Reads the same steps by 1 to 8 nodes."""
    ranks, steps = ctx.of((4, 10), (16, 24), (64, 200))
    nodes = ctx.of([1, 2], [1, 2, 4, 8], [1, 2, 4, 8])
    given = ctx.sub("amplification") / "input"
    transforms.make(given, "robot", steps * ranks, steps * ranks)
    points: list[tuple[float, float]] = []
    with Site(ctx, store="dev-s3", on_disk=True) as site:
        producer = site.producer(
            0, 1, given, "robot", workers=4, wait_ms=0.01, slices=ranks, lead=0
        )
        producer.wait(600)
        sizes = [p.stat().st_size for p in (site.folder / "objects").rglob("*") if p.is_file()]
        for count in nodes:
            needed, fetched, requests, hedged = _read(ctx, site, count, ranks, steps)
            row = {"system": "BatchWeave", "nodes": count, "amplification": fetched / needed}
            row |= {"gets_per_step_and_node": requests / steps / count, "hedged": hedged}
            out.rows.append(row)
            points.append((count, fetched / needed))
    payload = needed
    stored = sum(size for size in sizes if size > 1 << 16)
    whole = [(float(count), count * stored / payload) for count in nodes]
    shards = max(1.0, payload / SHARD)
    shard = [(float(count), count * max(SHARD * shards, payload) / payload) for count in nodes]
    for count, value in whole:
        out.rows.append({"system": "whole objects", "nodes": int(count), "amplification": value})
    out.notes.append(
        f"{ranks} ranks, {steps} steps of {payload / steps / 1e6:.1f} MB, in objects of "
        f"{max(sizes) / 1e6:.0f} MB at most. Beside it by arithmetic from these objects: each node "
        "gets whole objects, or whole shards of 67 MB with a part of each global batch; a loader "
        "that gives each node shards of its own reads each once, without a global order"
    )
    out.at_most("amplification, the worst number of nodes", max(a for _, a in points), 1.05)
    series = [("BatchWeave", points), ("whole objects", whole), ("shards of 67 MB", shard)]
    out.charts.append(Chart("bytes read over bytes needed", "nodes", "times", series))


def _read(ctx: Context, site: Site, nodes: int, ranks: int, steps: int) -> tuple[float, ...]:
    """Reads all steps by all ranks; returns bytes needed and fetched, GETs and hedged ones."""
    here, job = ranks // nodes, f"nodes-{nodes}"
    ports, made, daemons = [], [], []
    for node in range(nodes):
        with contextlib.closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
        daemon, path = site.consumer(
            f"n{nodes}-{node}",
            job=job,
            arena=max(128, 1024 // nodes),
            prefetch=max(64, 512 // nodes),
            admin=f"127.0.0.1:{ports[-1]}",
        )
        daemons.append(daemon)
        words = ["batchweave", "--place", str(path), "--job", job, "--steps", str(steps)]
        words += ["--world", str(ranks), "--first", str(node * here), "--here", str(here)]
        words += ["--attempt", f"{nodes:032x}"]
        made.append(Trainer(ctx, site.folder, words, name=f"reader-{nodes}-{node}"))
    for each in made:
        each.trained(300, site)
    totals = [0.0, 0.0, 0.0, 0.0]
    for port in ports:
        for number, value in enumerate(_metrics(port)):
            totals[number] += value
    for daemon in daemons:
        daemon.kill()
    return tuple(totals)


def _metrics(port: int) -> tuple[float, ...]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = dict.fromkeys(_COUNTERS, 0.0)
    for line in text.splitlines():
        name, _, value = line.removeprefix("batchweave_consumer_").rpartition(" ")
        counter = name.partition("_total")[0]
        if counter in found and ("requests" not in counter or 'class="data"' in name):
            found[counter] += float(value)
    return tuple(found.values())


EXPERIMENT = Experiment(
    "e6",
    "read amplification",
    "read amplification near 1 at all scales (from a digest of the paper)",
    run,
)
