"""A trainer of the comparison with loaders: it reads each byte of its samples once.

    python -m rivals.trainer batchweave SOCKET --slices 4 --steps 48
    python -m rivals.trainer dataloader FOLDER --slices 4 --workers 1
    python -m rivals.trainer queue FOLDER --slices 4

Says `ready` when all is imported, begins at a line on standard input, and prints one JSON object:
`seconds` from that line to the last batch, `first_seconds` to the first one, `bytes`, those after
the first batch (`bytes_after_first`), the CPU time of this process (`cpu_seconds`) and of its
workers (`workers_cpu_seconds`), and `sum`, the sum of all words of 64 bits, which is the same for
each way.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rivals.blob_files import HEADER_BYTES, SLICES, parts

Bytes = npt.NDArray[np.uint8]
_QUEUE_BATCHES = 4
_PREFETCH = 2
"""Batches ahead of each worker of a DataLoader: its default."""
_CONNECT_SECONDS = 60.0


def batchweave(socket: Path, slices: int, steps: int) -> Iterator[list[Bytes]]:
    """Yields the views of a rank's slices, in the daemon's memory."""
    client: Any = importlib.import_module("batchweave")
    with client.connect(
        socket, dp_rank=0, dp_size=SLICES // slices, limit=steps, connect_timeout=_CONNECT_SECONDS
    ) as reader:
        for batch in reader:
            yield [piece["blob"] for piece in batch.slices]
            del batch


class Files:
    """A dataset of files."""

    def __init__(self, torch: Any, files: Sequence[Path]) -> None:
        self._torch, self._files = torch, files

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> Any:
        return self._torch.from_numpy(np.load(self._files[index]))


def _together(samples: list[Any]) -> list[Any]:
    """Returns the samples of a batch; in a worker as one tensor, made in shared memory.

    So torch's own collate function does it where all samples have one shape: one copy, and one
    segment of shared memory per batch.
    """
    torch: Any = importlib.import_module("torch")
    data: Any = importlib.import_module("torch.utils.data")
    if data.get_worker_info() is None:
        return samples
    length = sum(sample.numel() for sample in samples)
    storage = samples[0]._typed_storage()._new_shared(length, device=samples[0].device)
    out = samples[0].new(storage).resize_(length)
    return [torch.cat(samples, out=out)]


def dataloader(steps: list[list[Path]], workers: int) -> Iterator[list[Bytes]]:
    """Yields the batches of a PyTorch DataLoader."""
    torch: Any = importlib.import_module("torch")
    data: Any = importlib.import_module("torch.utils.data")
    files = [path for step in steps for path in step]
    places = iter(range(len(files)))
    loader = data.DataLoader(
        Files(torch, files),
        batch_sampler=[[next(places) for _ in step] for step in steps],
        collate_fn=_together,
        num_workers=workers,
        prefetch_factor=_PREFETCH if workers else None,
    )
    for batch in loader:
        yield [tensor.numpy() for tensor in batch]


def _fill(queue: Any, taken: Any, steps: list[list[Path]]) -> None:
    """Reads the files of each step into a tensor in shared memory, and puts it on the queue."""
    torch: Any = importlib.import_module("torch")
    for step in steps:
        sizes = [path.stat().st_size - HEADER_BYTES for path in step]
        tensor = torch.empty(sum(sizes), dtype=torch.uint8).share_memory_()
        view, at = tensor.numpy(), 0
        for path, size in zip(step, sizes, strict=True):
            with path.open("rb", buffering=0) as file:
                file.seek(HEADER_BYTES)
                while size:
                    read = file.readinto(view[at : at + size].data)
                    at, size = at + read, size - read
        queue.put(tensor)
    # The trainer takes descriptors of the tensors from this process.
    taken.wait()


def queue(steps: list[list[Path]]) -> Iterator[list[Bytes]]:
    """Yields tensors that a process passes in shared memory, by a torch.multiprocessing queue."""
    processes: Any = importlib.import_module("torch.multiprocessing")
    context = processes.get_context("fork")
    batches, taken = context.Queue(_QUEUE_BATCHES), context.Event()
    worker = context.Process(target=_fill, args=(batches, taken, steps), daemon=True)
    worker.start()
    try:
        for _ in steps:
            yield [batches.get().numpy()]
    finally:
        taken.set()
        worker.join()


def read(batches: Iterable[list[Bytes]]) -> dict[str, float]:
    """Reads all batches, and returns the figures."""
    began, cpu = time.perf_counter(), time.process_time()
    first, first_bytes, total, check = 0.0, 0, 0, 0
    for batch in batches:
        if not first:
            first = time.perf_counter() - began
            first_bytes = sum(array.nbytes for array in batch)
        for array in batch:
            total += array.nbytes
            check += int(np.add.reduce(array.view(np.uint64)))
        del batch, array
    ended = time.perf_counter() - began
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": ended,
        "first_seconds": first,
        "bytes": total,
        "bytes_after_first": total - first_bytes,
        "cpu_seconds": time.process_time() - cpu,
        "workers_cpu_seconds": workers.ru_utime + workers.ru_stime,
        "sum": check % (1 << 64),
    }


def main() -> None:
    """Runs one trainer."""
    parser = argparse.ArgumentParser(prog="python -m rivals.trainer")
    parser.add_argument("way", choices=("batchweave", "dataloader", "queue"))
    parser.add_argument("place", type=Path, help="the daemon's socket, or the folder of the files")
    parser.add_argument("--slices", type=int, required=True)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    importlib.import_module("batchweave" if args.way == "batchweave" else "torch.utils.data")
    if args.way == "batchweave":
        batches = batchweave(args.place, args.slices, args.steps)
    else:
        steps = parts(sorted(args.place.iterdir()), args.slices)
        batches = dataloader(steps, args.workers) if args.way == "dataloader" else queue(steps)
    print("ready", flush=True)
    if not sys.stdin.readline():
        return
    print(json.dumps({**read(batches), "pid": os.getpid()}), flush=True)


if __name__ == "__main__":
    main()
