"""Compares BatchWeave with a PyTorch DataLoader over live text: from lines to a trainer's tokens.

A step has 16 rows of 2,049 tokens of cl100k_base, and the trainer adds up all of them. All is on
this machine. Time runs from the start of the loader or the producer to the last step; imports are
not counted.

DataLoader   of PyTorch, with a worker per core, which encode with tiktoken.
BatchWeave   a producer commits the steps while a consumer daemon serves the trainer, whose job
             holds the producer back at a lead of `ahead.max_steps`, or not (0).
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rivals import blob_daemons, common, figures, text_files
from rivals.blob_daemons import Programs, Stream
from rivals.figures import Figures, Metric, Row, Side
from rivals.text_files import ROWS, SEQ_LEN

_RUN_SECONDS = 600.0
_LEAST_BYTES = 1 << 20
_METRICS = (
    Metric("tokens_per_second", "million tokens/s", 1e-6, 2),
    Metric("steps_per_second", "steps/s"),
    Metric("tokens_per_second_after_first", "after the first step", 1e-6, 2),
    Metric("first_seconds", "first step, s", digits=2),
)
_PRODUCER = """\
producer.name = "p0"
stream = {{ slices = {rows}, rows_per_slice = 1, seq_len = {length}, producers = ["p0"] }}
tokenizer = {{ kind = "embedded", name = "cl100k_base" }}
source.paths = [{folder}]
ahead = {{ max_steps = {bound}, when_no_job = {when} }}
"""
_CONSUMER = """\
socket.path = {socket}
arena = {{ bytes = "256MiB", segment_bytes = "64MiB" }}
job = {{ name = "compare-text", open = true }}
"""


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the tool's arguments."""
    made = common.parser_of(__doc__ or "", 3)
    add = made.add_argument
    add(
        "--python",
        default="python3",
        metavar="PROGRAM",
        help="with numpy, and torch and tiktoken for the rival (default: python3)",
    )
    add(
        "--bytes",
        type=common.size,
        default=256 << 20,
        metavar="SIZE",
        help="bytes of documents (default 256MiB)",
    )
    add(
        "--max-steps",
        type=_bounds,
        default=[0, 256, 64, 16],
        metavar="NUMBERS",
        help="bounds of the lead; 0: none (default 0,256,64,16)",
    )
    common.add_stores(made, "BatchWeave's")
    add(
        "--ranks",
        type=Path,
        metavar="FILE",
        help="cl100k_base.tiktoken (default: tiktoken fetches it)",
    )
    add("--no-rival", action="store_true", help="without the DataLoader, which needs torch")
    return made


def _bounds(text: str) -> list[int]:
    return [0 if each == "0" else common.count(each) for each in text.split(",")]


class Comparison:
    """The sides."""

    def __init__(self, args: argparse.Namespace, programs: Programs) -> None:
        self._args, self._programs, self._streams = args, programs, 0
        common.note(f"writing {args.bytes >> 20} MiB of text")
        self._text = text_files.make(programs.folder / "input", args.bytes)
        self._sums: set[int] = set()

    def sides(self, shape: Stream) -> list[Side]:
        """Returns all sides; streams have the parameters of `shape`."""
        made = [] if self._args.no_rival else [Side("DataLoader", self._rival)]
        for store in self._args.stores:
            made += [self._ours(store, bound, shape) for bound in self._args.max_steps]
        return made

    def fill(self, stream: Stream) -> None:
        """Commits all text to a stream."""
        with self._producer(stream, 0) as made:
            made.wait(_RUN_SECONDS)

    def _producer(self, stream: Stream, bound: int) -> common.Program:
        text = _PRODUCER.format(
            rows=ROWS,
            length=SEQ_LEN,
            folder=json.dumps(str(self._text.folder)),
            bound=bound,
            when=json.dumps("wait" if bound else "run"),
        )
        return self._programs.daemon("producer", text, stream)

    def _rival(self) -> figures.Found:
        words = ["dataloader", str(self._text.folder), "--workers", str(os.cpu_count())]
        if self._args.ranks is not None:
            words += ["--ranks", str(self._args.ranks.absolute())]
        with self._trainer(words) as trainer:
            return self._figures("DataLoader, tiktoken", trainer.run())

    def _ours(self, store: str, bound: int, shape: Stream) -> Side:
        name = f"BatchWeave, {store}, " + (f"max_steps = {bound}" if bound else "no bound")
        return Side(name, lambda: self._figures(name, self._live(store, bound, shape)))

    def _live(self, store: str, bound: int, shape: Stream) -> dict[str, Any]:
        self._streams += 1
        programs = self._programs
        with Stream(programs, store, f"text-{self._streams}") as stream:
            stream.init(shape)
            with (
                blob_daemons.consumer(programs, stream, _CONSUMER) as (_, socket),
                self._trainer(["batchweave", str(socket)]) as trainer,
                self._producer(stream, bound),
            ):
                found = trainer.run()
        self._sums.add(found["sum"])
        if len(self._sums) > 1:
            raise common.FailedError("two runs of BatchWeave have different tokens: report it")
        return found

    def _trainer(self, words: Sequence[str]) -> blob_daemons.Trainer:
        steps = ["--steps", str(self._text.steps)]
        return blob_daemons.trained(
            self._programs, self._args.python, [*words, *steps], "text_trainer"
        )

    @staticmethod
    def _figures(name: str, found: dict[str, Any]) -> figures.Found:
        rate = found["tokens"] / found["seconds"]
        first, step = found["first_seconds"], ROWS * SEQ_LEN
        values = {
            "tokens_per_second": rate,
            "steps_per_second": rate / step,
            "tokens_per_second_after_first": (found["tokens"] - step) / (found["seconds"] - first),
            "first_seconds": first,
        }
        return {Row("text", "", name): values}


def compare(args: argparse.Namespace) -> None:
    """Measures and prints."""
    program = common.program(args.batchweave)
    with common.temporary("compare-text", args.dir) as folder:
        programs = Programs(program, folder, common.environment(program, folder))
        comparison = Comparison(args, programs)
        found = Figures()
        with Stream(programs, "folder", "shape") as shape:
            comparison.fill(shape)
            found.in_turns(args.rounds, comparison.sides(shape))
    if args.json:
        print(figures.as_json(found, args.rounds, {"bytes": args.bytes}))
        return
    print(found.table("text", f"text, live; median of {args.rounds} rounds (range)", _METRICS))
    print(f"\n{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the tool."""
    made = parser()
    args = made.parse_args(arguments)
    if args.bytes < _LEAST_BYTES:
        made.error(f"--bytes {args.bytes}B: at least 1MiB, for several steps")
    if args.ranks is not None and not args.ranks.is_file():
        made.error(f"--ranks {args.ranks}: not a file: name tiktoken's cl100k_base.tiktoken")
    return common.run(lambda: compare(args))
