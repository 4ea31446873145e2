"""An inbox: rows per second of its writer, and the time from `put` to the trainer's `next()`.

python -m paper.inbox PLACE ROWS PER_SECOND LINGER: puts rows, and prints the moment of each
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
import time
from typing import Any

from paper.experiment import Context, Experiment, Measure, Outcome, in_turns, quantile
from paper.programs import lines
from paper.streams import Site, Trainer

RATE, STEP_ROWS, WARM, ROW_BYTES = 40.0, 4, 20, 1000
_PRODUCER = """\
stream = {{ slices = 1, rows_per_slice = {rows}, seq_len = 1 }}
producer.name = "p0"
source = {{ paths = [{place}], inbox = true, follow_every = "{every}" }}
packing.mode = "opaque"
packing.arrays = [{{ name = "id", dtype = "I64" }}, {{ name = "body", dtype = "U8" }}]
commit.linger = "1ms"
tokenizer.threads = 1
"""
S3 = {"store": "dev-s3", "latency": "s3-standard"}


def run(ctx: Context, out: Outcome) -> None:
    """Measures a folder, and a store with the latencies of S3 Standard."""
    if lacking := [name for name in ("obstore", "pyarrow") if name not in ctx.packages]:
        out.lacks("inboxes", f"{ctx.python} has no {lacking[0]}: pip install {lacking[0]}")
        return
    out.notes.append(f"rows of {ROW_BYTES} bytes, {RATE:g} per second, {STEP_ROWS} per step")
    sides: dict[str, Measure] = {
        "folder": functools.partial(_measured, ctx, "0.02", "20ms", "10ms", {}),
        "dev-s3, s3-standard": functools.partial(_measured, ctx, "0.2", "100ms", "50ms", S3),
    }
    out.rows += [{"store": name, **values} for name, values in in_turns(1, sides).items()]


def _measured(
    ctx: Context, linger: str, every: str, starved: str, store: dict[str, str]
) -> dict[str, float]:
    steps = WARM + ctx.of(5, 100, 400) // STEP_ROWS
    with Site(ctx, **store) as site:  # type: ignore[arg-type]
        root, log = site.url.removesuffix("/stream"), site.folder / "writer.log"
        words = [ctx.python, "-m", "paper.inbox"]
        many = [f"{root}/many", str(ctx.of(1000, 50_000, 200_000)), "0", "0.5"]
        put = lines([*words, *many], site.env, log)[0]["put"]
        rate = len(put) / (put[-1] - put[0])
        place = f"{root}/inbox"
        text = _PRODUCER.format(rows=STEP_ROWS, place=json.dumps(place), every=every)
        site.daemon("producer", "p0", text)
        _, socket = site.consumer(more=f'follow.starved = "{starved}"\n')
        reading = ["batchweave", "--place", str(socket), "--steps", str(steps)]
        trainer = Trainer(ctx, site.folder, reading)
        paced = [place, str(steps * STEP_ROWS), f"{RATE:g}", linger]
        put = lines([*words, *paced], site.env, log)[0]["put"]
        made = trainer.trained(600, site)[WARM:]
    times = [float(step["wall"]) - put[number] for step in made for number in step["ids"]]
    return {
        "written_rows_per_s": rate,
        "put_to_next_p50_s": quantile(times, 0.5),
        "put_to_next_p99_s": quantile(times, 0.99),
    }


def main() -> None:
    """Puts rows at a steady rate, or with rate 0 as fast as it can."""
    place, rows, rate, linger = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    inbox: Any = importlib.import_module("batchweave.inbox")
    body, put, due = os.urandom(ROW_BYTES), [], time.time()
    with inbox.open(place, "w", linger=float(linger)) as writer:
        for number in range(rows):
            put.append(time.time())
            writer.put({"id": number, "body": body})
            due += 1 / rate if rate else 0.0
            time.sleep(max(0.0, due - time.time()))
    put.append(time.time())
    print(json.dumps({"put": put}))


EXPERIMENT = Experiment(
    "inbox", "inboxes", "a goal of this project: rows reach a trainer within a second", run
)

if __name__ == "__main__":
    main()
