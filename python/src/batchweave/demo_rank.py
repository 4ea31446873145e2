"""A rank of the demo: records every token that it receives, and survives being killed.

    python -m batchweave.demo_rank --socket S --job J --rank R --world W [--steps N] \\
        --state-file F --out FILE

Reads steps 0 to N - 1, or to the stream's end. FILE gets one record for every slice, in the order
of step and slice, with nothing between them (the Rust rank of the demo writes the same):

    u64 step | u32 slice | u32 nbytes | nbytes bytes: the array `tokens` as it lies in memory

Numbers are little-endian. F is a JSON object: the reader's state and the size of FILE that it
covers; it is replaced atomically. Started again, the rank cuts FILE to that size and goes on from
there, so a step is in FILE once, whenever the rank was killed. With --mark-every K, the steps that
K divides, and the end, are made restart points of the job.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import batchweave

_RECORD = struct.Struct("<QII")
# Exit codes: 1 is an error of BatchWeave's, printed to stderr.
_EXIT_ERROR = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one rank and returns its exit code."""
    args = _parse(arguments)
    saved = _load(args.state_file)
    try:
        with args.out.open("r+b" if saved else "wb") as out:
            if saved:
                out.truncate(saved["bytes"])
                out.seek(saved["bytes"])
            read, first = _run(args, saved, out)
    except batchweave.BatchWeaveError as error:
        print(f"rank {args.rank}: {error}", file=sys.stderr)
        return _EXIT_ERROR
    print(json.dumps({"rank": args.rank, "first_step": first, "steps": read}), flush=True)
    return 0


def _run(args: argparse.Namespace, saved: dict[str, Any] | None, out: BinaryIO) -> tuple[int, int]:
    read = 0
    with batchweave.connect(
        args.socket,
        job=args.job,
        attempt=args.attempt,
        dp_rank=args.rank,
        dp_size=args.world,
        global_rank=args.rank,
        state=saved["state"] if saved else None,
        credits=args.credits,
        timeout=args.timeout,
        connect_timeout=args.timeout,
    ) as reader:
        first = reader.next_step
        while args.steps is None or reader.next_step < args.steps:
            began = time.perf_counter()
            batch = next(reader, None)
            if batch is None:
                break
            if args.waits:
                with args.waits.open("a") as waits:
                    waits.write(f"{time.perf_counter() - began:.6f}\n")
            time.sleep(args.step_ms / 1000)
            _write(out, batch)
            read += 1
            marks = args.mark_every and (batch.step + 1) % args.mark_every == 0
            if marks or read % args.save_every == 0:
                _save(args.state_file, batch.state_dict(), out)
            if marks:
                reader.checkpoint(batch.state_dict())
            # The frames of this step are then free at the next `next()`.
            del batch
        _save(args.state_file, reader.state_dict(), out)
        if args.mark_every:
            # Leaving the block waits until this mark is stored, and the ledgers before it.
            reader.checkpoint(reader.state_dict())
    return read, first


def _write(out: BinaryIO, batch: batchweave.Batch) -> None:
    for piece in batch.slices:
        tokens = piece["tokens"]
        out.write(_RECORD.pack(batch.step, piece.index, tokens.nbytes))
        out.write(tokens.data)
    out.flush()


def _load(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _save(path: Path, state: dict[str, str], out: BinaryIO) -> None:
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps({"state": state, "bytes": out.tell()}))
    os.replace(fresh, path)  # noqa: PTH105 - the atomic call, by its name


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m batchweave.demo_rank",
        description=about,
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--socket", required=True, help="the consumer daemon's socket")
    parser.add_argument("--job", help="the job's name")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--attempt", help="the attempt's id, 32 hexadecimal digits")
    parser.add_argument("--steps", type=int, help="read the steps below this one (default: all)")
    parser.add_argument("--step-ms", type=float, default=0.0, help="training time of a step")
    parser.add_argument("--waits", type=Path, help="file for the seconds of each read")
    parser.add_argument("--state-file", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="file of the records")
    parser.add_argument("--save-every", type=int, default=1, metavar="K", help="steps (default 1)")
    parser.add_argument("--mark-every", type=int, default=0, metavar="K", help="default: never")
    parser.add_argument("--credits", type=int, default=4)
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
