"""Runs the paper's experiments into one folder: JSON and a picture of each, and a page.

    tools/paper/run --scale quick --out target/paper

`--scale quick` takes about ten minutes on two cores, `full` hours on any. Systems that are not
installed are named on the page. The Python that runs this has numpy and Pillow, torch for the
DataLoader; also, where they are, streaming (MosaicML), megatron.energon, confluent_kafka, obstore.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paper import page, programs, svg
from paper.experiment import SCALES, Chart, Context, Experiment, Outcome
from paper.programs import ROOT, FailedError, note

NAMES = tuple(f"e{number}" for number in range(1, 11))
OTHERS = ("freshness", "handover")
"""Measurements of docs/performance.md that need Python; they run when they are named."""
PACKAGES = {
    "numpy": "numpy",
    "PIL": "pillow",
    "torch": "torch",
    "streaming": "mosaicml-streaming",
    "megatron.energon": "megatron-energon",
    "av": "av",
    "confluent_kafka": "confluent-kafka",
    "obstore": "obstore",
    "pyarrow": "pyarrow",
    "tiktoken": "tiktoken",
}
"""Packages that the harness can use, and the names under which they are installed."""


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the arguments."""
    first, _, more = (__doc__ or "").partition("\n")
    made = argparse.ArgumentParser(
        prog="paper",
        description=first,
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    add("--scale", choices=SCALES, default="quick")
    add(
        "--only",
        action="append",
        choices=NAMES + OTHERS,
        metavar="NAME",
        help="e1 to e10 (all by default), freshness, handover; repeatable",
    )
    add("--out", type=Path, default=ROOT / "target" / "paper", help="default: target/paper")
    add("--bin-dir", type=Path, default=ROOT / "target" / "release", help="the built programs")
    add("--dir", type=Path, help="parent of the temporary folder (default: /dev/shm, or TMPDIR)")
    add("--kafka", type=Path, metavar="DIR", help="Kafka's jars (default: fetched by Maven)")
    add("--java", default="java", metavar="PROGRAM", help="Java 17 or newer")
    return made


def load(name: str) -> Experiment:
    """Returns an experiment."""
    found: Experiment = importlib.import_module(f"paper.{name}").EXPERIMENT
    return found


def measure(ctx: Context, experiment: Experiment) -> dict[str, Any]:
    """Runs an experiment; its failure is part of the result."""
    note(f"{experiment.name.upper()}: {experiment.title}")
    began, before, failed, out = time.monotonic(), os.getloadavg()[0], None, Outcome()
    try:
        experiment.run(ctx, out)
    except FailedError as why:
        note(f"  FAILED: {why}")
        failed = str(why)
    except Exception as why:
        traceback.print_exc()
        failed = f"a mistake of the harness: {why!r}"
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "claim": experiment.claim,
        "scale": ctx.scale,
        "command": f"tools/paper/run --scale {ctx.scale} --only {experiment.name}",
        "seconds": round(time.monotonic() - began, 1),
        "machine": {
            "cpus": len(os.sched_getaffinity(0)),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "load": [round(before, 2), round(os.getloadavg()[0], 2)],
        },
        "versions": {"python": platform.python_version(), **ctx.packages},
        "failed": failed,
        "missing": out.missing,
        "goals": [goal._asdict() for goal in out.goals],
        "notes": out.notes,
        "rows": out.rows,
        "charts": [chart._asdict() for chart in out.charts],
    }


def run(args: argparse.Namespace) -> int:
    """Runs the experiments; 1 if one has failed."""
    if not os.access(args.bin_dir / "batchweave", os.X_OK):
        raise FailedError(f"no programs in {args.bin_dir}: build them (`make build`), or --bin-dir")
    args.out.mkdir(parents=True, exist_ok=True)
    parent = args.dir or (Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None)
    failed = False
    with tempfile.TemporaryDirectory(prefix="paper-", dir=parent) as made:
        folder, bin_dir = Path(made).absolute(), args.bin_dir.absolute()
        env = programs.environment(bin_dir, folder)
        python, versions = sys.executable, programs.packages(sys.executable, PACKAGES)
        ctx = Context(args.scale, folder, bin_dir, env, python, versions, args.kafka, args.java)
        for name in args.only or NAMES:
            found = measure(ctx, load(name))
            failed |= found["failed"] is not None
            (args.out / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
            picture = args.out / f"{name}.svg"
            picture.unlink(missing_ok=True)
            if found["charts"]:
                picture.write_text(svg.draw([Chart(**chart) for chart in found["charts"]]))
            page.write(args.out, page.read(args.out, NAMES + OTHERS))
    note(f"the page: {args.out / 'index.md'}")
    return int(failed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the harness."""
    args = parser().parse_args(arguments)
    try:
        # Ends by an exception, so that all programs are stopped.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        return run(args)
    except FailedError as failure:
        note(f"error: {failure}")
        return 1
    except KeyboardInterrupt:
        note("interrupted: all programs are stopped")
        return 130


if __name__ == "__main__":
    sys.exit(main())
