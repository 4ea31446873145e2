"""Measures freshness: from the commit of a batch to the return of a waiting rank's `next()`.

    python -m batchweave.bench.freshness /data/fresh s3://bucket/fresh [--objects FOLDER] [--json]

Runs a real producer, a consumer daemon with the default settings and a trainer for each location,
one after another. Rows arrive one at a time by an inbox, at a steady rate; each is a step, and the
trainer waits for it. Writes into a folder of LOCATION-visible, and leaves the files there.

The instant of a commit is the one at which its record appears in the store: by inotify in a local
folder, and in the folder in which `dev-s3 --dir` keeps a bucket's objects (--objects). In other
buckets the log is polled, so a commit is noticed late, by the latency of a read, and the figure is
too small by that.

S3 credentials, region and endpoint come from the AWS_* variables.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batchweave.bench import commits
from batchweave.bench.visible import Instants, Setting, measure, watch_log
from batchweave.errors import BatchWeaveError

SAMPLES = 200
_GOAL_P50_MS = 15.0
"""For a local folder."""
# A step per row. The settings of the consumer are the defaults.
_LOCAL = Setting(linger=0.01, rate=15.0, step_rows=1, follow_every_ms=10)
_REMOTE = Setting(linger=0.01, rate=4.0, step_rows=1, follow_every_ms=20)


def report(locations: Sequence[str], samples: int, objects: Path | None) -> dict[str, Any]:
    """Measures each location."""
    stores = [of_location(location, samples, objects) for location in locations]
    load = round(os.getloadavg()[0], 1)
    return {"stores": stores, "cpus": os.cpu_count(), "load": load}


def of_location(location: str, samples: int, objects: Path | None = None) -> dict[str, Any]:
    """Returns the freshness of a stream at one location."""
    local = "://" not in location or location.startswith("file:")
    by_events = local or objects is not None
    failures: list[OSError] = []
    watch = functools.partial(_watch, objects, failures) if by_events else watch_log
    found = measure(location, samples, _LOCAL if local else _REMOTE, watch)
    for failure in failures:
        raise BatchWeaveError(f"cannot notice the commits of {location}: {failure}")
    freshness = found["committed_to_next_ms"]
    goal = _GOAL_P50_MS if local else None
    return {
        "location": location,
        "store": "folder" if local else "s3",
        "samples": found["rows"],
        "freshness_ms": freshness,
        "commits_seen_by": "events" if by_events else "polls",
        "rate": found["rate"],
        "starved_ms": found["starved_ms"],
        "goal_p50_ms": goal,
        "met": None if goal is None else bool(freshness["p50"] <= goal),
    }


def _watch(
    objects: Path | None,
    failures: list[OSError],
    stream: str,
    seen: Instants,
    stop: threading.Event,
) -> None:
    """Notes commits in the folder of a stream's log, or in that of its bucket."""
    scheme, separator, rest = stream.partition("://")
    folder, prefix = Path(rest if separator else stream) / "log", ""
    if separator and scheme != "file":
        assert objects is not None
        folder, prefix = objects, f"{rest.partition('/')[2]}/log/"
    try:
        commits.watch(folder, prefix, seen, stop)
    except OSError as failure:
        failures.append(failure)


def text(found: dict[str, Any]) -> str:
    """Formats the report for people."""
    lines = [f"{'from commit to next()':24}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}"]
    for store in found["stores"]:
        figures = "".join(f"{store['freshness_ms'][name]:9.1f}" for name in ("p50", "p99", "max"))
        goal = "" if store["goal_p50_ms"] is None else f"   goal {store['goal_p50_ms']:g}"
        polls = "   commits noticed by polls, so late" * (store["commits_seen_by"] == "polls")
        lines.append(f"{store['store']:24}{figures}{goal}{polls}")
    first = found["stores"][0]
    lines.append(
        f"{first['samples']} steps each, polls of the log every {first['starved_ms']} ms; "
        f"{found['cpus']} CPUs, load {found['load']}"
    )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints."""
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m batchweave.bench.freshness",
        description=about,
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("locations", nargs="+", metavar="LOCATION", help="a path, file:///data/x or s3://bucket/x")
    add("--samples", type=int, default=SAMPLES, help=f"steps measured (default {SAMPLES})")
    add("--objects", type=Path, metavar="FOLDER", help="the bucket's folder of dev-s3 --dir")
    add("--json", action="store_true", help="one JSON object instead of text")
    args = parser.parse_args(arguments)
    if args.samples < 1:
        parser.error("at least 1 sample")
    try:
        found = report(args.locations, args.samples, args.objects)
    except BatchWeaveError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps(found) if args.json else text(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
