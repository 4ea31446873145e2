"""Measures an inbox: rows per second of a writer, and the time from `put` to the trainer.

    python -m batchweave.bench.inbox file:///data/inbox [--json]

Writes about 200 MB into new writers of that inbox, and rows with their stream into a folder of
LOCATION-visible, and leaves them there. Measures, in this order:

- rows of 1 kB per second of one writer;
- from `put` to durable, where the writer waits for more rows (--linger), and for put and flush;
- visible: from `put` to the trainer's `next()`, through a real producer and consumer daemon, with
  rows at a steady rate. Its parts: until the row is durable, until a batch with it is committed,
  until `next()` returns that batch.

S3 credentials, region and endpoint come from the AWS_* variables.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import sys
import time
from collections.abc import Sequence
from typing import Any

from batchweave import inbox
from batchweave.bench.visible import Setting, measure, quantiles
from batchweave.errors import BatchWeaveError

ROWS, ROW_BYTES = 200_000, 1000
SAMPLES = 400
_SHORT = 50
"""Samples of the parts that a writer does alone."""
_GOALS = {"rows_per_second": 50_000, "visible_p50_ms": 1000.0, "visible_p99_ms": 2500.0}
_LOCAL_GOALS = {**_GOALS, "visible_p50_ms": 150.0}
_LOCAL = Setting(linger=0.02, follow_every_ms=20, starved_ms=10)


def report(location: str, rows: int, samples: int, setting: Setting) -> dict[str, Any]:
    """Measures all figures."""
    text = random.Random(1).randbytes(4 * ROW_BYTES).hex()
    texts = [text[at : at + ROW_BYTES] for at in range(ROW_BYTES)]
    name = f"bench-{secrets.token_hex(4)}"
    short = min(samples, _SHORT)
    found: dict[str, Any] = {
        "location": location,
        "rows_per_second": _rows_per_second(location, name, texts, rows),
        "durable_ms": _durable(location, name, texts[:short], setting.linger),
        "flush_ms": _flush(location, name, texts[:short]),
        "visible": measure(location, samples, setting),
    }
    waits = found["visible"]["put_to_next_ms"]
    found |= {"visible_p50_ms": waits["p50"], "visible_p99_ms": waits["p99"]}
    goals = _GOALS if _is_remote(location) else _LOCAL_GOALS
    met = {
        name: bool(found[name] >= goal if name == "rows_per_second" else found[name] <= goal)
        for name, goal in goals.items()
    }
    load = round(os.getloadavg()[0], 1)
    return {**found, "goals": goals, "met": met, "cpus": os.cpu_count(), "load": load}


def _rows_per_second(location: str, name: str, texts: list[str], rows: int) -> int:
    with inbox.open(location, name) as writer:
        began = time.perf_counter()
        for number in range(rows):
            writer.put({"text": texts[number % ROW_BYTES]})
        writer.flush()
        return round(rows / (time.perf_counter() - began))


def _durable(location: str, name: str, texts: list[str], linger: float) -> dict[str, float]:
    waits = []
    with inbox.open(location, f"{name}-linger", linger=linger) as writer:
        for number, text in enumerate(texts):
            began = time.perf_counter()
            writer.put({"text": text})
            while writer.durable_rows <= number:
                time.sleep(0.0005)
            waits.append((time.perf_counter() - began) * 1e3)
    return quantiles(waits)


def _flush(location: str, name: str, texts: list[str]) -> dict[str, float]:
    waits = []
    with inbox.open(location, f"{name}-flush") as writer:
        for text in texts:
            began = time.perf_counter()
            writer.put({"text": text})
            writer.flush()
            waits.append((time.perf_counter() - began) * 1e3)
    return quantiles(waits)


def text(found: dict[str, Any]) -> str:
    """Formats the report for people."""
    visible, goals = found["visible"], found["goals"]
    lines = [
        f"{found['rows_per_second']:,} rows of {ROW_BYTES:,} bytes per second "
        f"(goal {goals['rows_per_second']:,})",
        f"{_ms(found['durable_ms'])} from put to durable, with linger={visible['linger']:g}",
        f"{_ms(found['flush_ms'])} for put and flush",
        f"{_ms(visible['put_to_next_ms'])} from put to the trainer's next() "
        f"(goals {goals['visible_p50_ms']:g}, {goals['visible_p99_ms']:g})",
    ]
    parts = ("put_to_durable_ms", "durable_to_committed_ms", "committed_to_next_ms")
    for part in parts:
        lines.append(f"  {_ms(visible[part])} {part[:-3].replace('_', ' ')}")
    lines.append(
        f"with {visible['rate']:g} rows per second, {visible['step_rows']} per step, polls every "
        f"{visible['follow_every_ms']} ms and {visible['starved_ms']} ms; {found['cpus']} CPUs, "
        f"load {found['load']}"
    )
    return "\n".join(lines)


def _ms(waits: dict[str, float]) -> str:
    return f"p50 {waits['p50']:.1f} ms, p99 {waits['p99']:.1f} ms, maximum {waits['max']:.1f} ms"


def _is_remote(location: str) -> bool:
    return "://" in location and not location.startswith("file:")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints."""
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m batchweave.bench.inbox",
        description=about,
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("location", help="the inbox: s3://bucket/inbox, file:///data/inbox or a path")
    add("--rows", type=int, default=ROWS, help=f"rows of the throughput (default {ROWS:,})")
    add("--samples", type=int, default=SAMPLES, help=f"rows of the latency (default {SAMPLES})")
    add("--linger", type=float, help="seconds (default 0.2; in a local folder 0.02)")
    add("--rate", type=float, help="rows per second of the latency (default 40)")
    add("--step-rows", type=int, help="rows per step of the latency (default 4)")
    add("--follow-every-ms", type=int, help="polls for new files (default 100; local 20)")
    add("--commit-linger-ms", type=int, help="commit.linger (default 1)")
    add("--starved-ms", type=int, help="follow.starved (default 50; local 10)")
    add("--json", action="store_true", help="one JSON object instead of text")
    args = parser.parse_args(arguments)
    if min(args.rows, args.samples) < 1:
        parser.error("at least 1 row and 1 sample")
    default = Setting() if _is_remote(args.location) else _LOCAL
    given = {name: value for name in Setting._fields if (value := getattr(args, name)) is not None}
    try:
        found = report(args.location, args.rows, args.samples, default._replace(**given))
    except BatchWeaveError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps(found) if args.json else text(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
