"""Compares BatchWeave with PyTorch's loaders: arrays of 256 KiB to 1 MiB, from files to a trainer.

Samples are bytes, a .npy file each; a step has 64 of them, 42 MB. All is on this machine, and the
trainer reads each byte once: it adds up words of 64 bits, and all sides must have the same sum.

DataLoader   of PyTorch, with 0 and 1 workers. A worker joins the samples of a batch in one tensor
             in shared memory.
queue        a process reads the files into tensors in shared memory, and passes them by a
             torch.multiprocessing queue of 4 batches.
live         a producer commits the files while a consumer daemon serves the trainer.
stored       the batches are committed already: a consumer daemon serves the trainer.

A rank reads all 16 slices of each step, or the first 4 of them, which are 16 of the samples; a
loader then reads these files only, but BatchWeave's producer makes the whole steps. Time runs from
the start of the loader or the producer, or from the connection to the consumer daemon, to the last
batch; imports are not counted. `stores` are a folder and a dev-s3 in memory.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rivals import blob_daemons, blob_files, common, figures
from rivals.blob_daemons import Programs, Stream
from rivals.blob_files import SLICES, STEP_SAMPLES
from rivals.common import FailedError
from rivals.figures import Figures, Metric, Row, Side

WAYS = ("dataloader", "queue", "live", "stored")
_METRICS = (
    Metric("bytes_per_second", "MB/s", 1e-6, 0),
    Metric("bytes_per_second_after_first", "after the first batch", 1e-6, 0),
    Metric("trainer_cpu_seconds_per_gb", "trainer's CPU s/GB", digits=2),
    Metric("cpu_seconds_per_gb", "all CPU s/GB", digits=2),
    Metric("first_seconds", "first batch, s", digits=2),
)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the tool's arguments."""
    made = common.parser_of(__doc__ or "", 3)
    add = made.add_argument
    add(
        "--python",
        default="python3",
        metavar="PROGRAM",
        help="with numpy, and torch for the rivals (default: python3)",
    )
    add(
        "--files",
        type=common.count,
        default=3072,
        help="whole steps of 64, 0.66 MB each on average (default 3072: 2 GB)",
    )
    add(
        "--slices",
        type=common.choices(("4", "16")),
        default=["4", "16"],
        metavar="NUMBERS",
        help="that the rank reads of 16, of 4,16 (default: both)",
    )
    add(
        "--only",
        type=common.choices(WAYS),
        default=list(WAYS),
        metavar="WAYS",
        help=f"of {','.join(WAYS)} (default: all)",
    )
    common.add_stores(made, "BatchWeave's")
    return made


class Comparison:
    """The sides, and the stored streams."""

    def __init__(self, args: argparse.Namespace, programs: Programs) -> None:
        self._args, self._programs = args, programs
        self._sums: dict[int, int] = {}
        self._lived = 0
        common.note(f"writing {args.files} files")
        self._input = blob_files.make(programs.folder / "input", args.files)

    def sides(self, stored: Mapping[str, Stream], slices: int) -> list[Side]:
        """Returns the sides of a share of the slices."""
        made, only = [], self._args.only
        if "dataloader" in only:
            for workers, name in ((0, "DataLoader, 0 workers"), (1, "DataLoader, 1 worker")):
                words = ["dataloader", "--workers", str(workers)]
                made.append(self._side(slices, name, _bind(self._rival, slices, words)))
        if "queue" in only:
            name = "shared-memory queue, 1 process"
            made.append(self._side(slices, name, _bind(self._rival, slices, ["queue"])))
        for store, stream in stored.items():
            if "live" in only:
                live = _bind(self._live, slices, store, stream)
                made.append(self._side(slices, f"BatchWeave live, {store}", live))
            if "stored" in only:
                read = _bind(self._stored, slices, stream)
                made.append(self._side(slices, f"BatchWeave stored, {store}", read))
        return made

    @contextlib.contextmanager
    def stream(self, store: str) -> Iterator[Stream]:
        """Commits all files to a stream, which lives as long as the context."""
        with Stream(self._programs, store, "stored") as stream:
            blob_daemons.store(self._programs, stream, self._input)
            yield stream

    def _side(self, slices: int, name: str, measure: Callable[[], dict[str, float]]) -> Side:
        case = f"{slices} of {SLICES} slices"
        return Side(f"{case}, {name}", lambda: {Row("blobs", case, name): measure()})

    def _trainer(self, way: str, place: Path, slices: int, more: Sequence[str]) -> list[str]:
        return [way, str(place), "--slices", str(slices), *more]

    def _rival(self, slices: int, words: Sequence[str]) -> dict[str, float]:
        line = self._trainer(words[0], self._input.folder, slices, words[1:])
        with blob_daemons.trained(self._programs, self._args.python, line) as trainer:
            found = trainer.run()
        return self._figures(slices, found, found["workers_cpu_seconds"])

    def _stored(self, slices: int, stream: Stream) -> dict[str, float]:
        steps = ["--steps", str(self._input.steps)]
        before = stream.cpu_seconds()
        with blob_daemons.consumer(self._programs, stream) as (daemon, socket):
            line = self._trainer("batchweave", socket, slices, steps)
            with blob_daemons.trained(self._programs, self._args.python, line) as trainer:
                found = trainer.run()
            daemons = daemon.cpu_seconds() + stream.cpu_seconds() - before
        return self._figures(slices, found, daemons)

    def _live(self, slices: int, store: str, stored: Stream) -> dict[str, float]:
        steps = ["--steps", str(self._input.steps)]
        self._lived += 1
        programs = self._programs
        with Stream(programs, store, f"live-{self._lived}") as stream:
            stream.init(stored)
            with blob_daemons.consumer(programs, stream) as (daemon, socket):
                line = self._trainer("batchweave", socket, slices, steps)
                with (
                    blob_daemons.trained(programs, self._args.python, line) as trainer,
                    blob_daemons.producer(programs, stream, self._input) as producer,
                ):
                    found = trainer.run()
                    producer.wait(common.STOP_SECONDS)
                    daemons = sum(each.cpu_seconds() for each in (daemon, producer, stream))
        return self._figures(slices, found, daemons)

    def _figures(self, slices: int, found: Mapping[str, float], others: float) -> dict[str, float]:
        """Returns the figures of a run, which must have read the same bytes as the others."""
        known = self._sums.setdefault(slices, int(found["sum"]))
        if known != found["sum"]:
            raise FailedError(
                f"the sum of all words is {found['sum']}, and that of the first side is {known}: "
                "the sides have read different bytes; please report this"
            )
        gb = found["bytes"] / 1e9
        return {
            "bytes_per_second": found["bytes"] / found["seconds"],
            "bytes_per_second_after_first": found["bytes_after_first"]
            / (found["seconds"] - found["first_seconds"]),
            "first_seconds": found["first_seconds"],
            "trainer_cpu_seconds_per_gb": found["cpu_seconds"] / gb,
            "cpu_seconds_per_gb": (found["cpu_seconds"] + others) / gb,
        }


def _bind(
    measure: Callable[..., dict[str, float]], *args: object
) -> Callable[[], dict[str, float]]:
    return lambda: measure(*args)


def compare(args: argparse.Namespace) -> None:
    """Measures and prints."""
    batchweave = common.program(args.batchweave)
    found = Figures()
    with common.temporary("compare-blobs", args.dir) as folder:
        env = common.environment(batchweave, folder)
        comparison = Comparison(args, Programs(batchweave, folder, env))
        _measure(comparison, args, found)
    if args.json:
        print(figures.as_json(found, args.rounds, {"files": args.files}))
        return
    title = f"from files to a trainer, {args.files // STEP_SAMPLES} steps; "
    title += f"median of {args.rounds} rounds (range)"
    print(found.table("blobs", title, _METRICS))
    print(f"\n{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")


def _measure(comparison: Comparison, args: argparse.Namespace, found: Figures) -> None:
    """Stores the streams, and measures all sides in turns."""
    with contextlib.ExitStack() as stack:
        stored: dict[str, Stream] = {}
        if {"live", "stored"} & set(args.only):
            for store in args.stores:
                common.note(f"committing the files to {store}")
                stored[store] = stack.enter_context(comparison.stream(store))
        for slices in map(int, args.slices):
            found.in_turns(args.rounds, comparison.sides(stored, slices))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the tool."""
    made = parser()
    args = made.parse_args(arguments)
    if args.files < 2 * STEP_SAMPLES:
        made.error(f"--files {args.files}: at least {2 * STEP_SAMPLES}, for two steps")
    return common.run(lambda: compare(args))
