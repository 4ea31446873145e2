"""Colocated loaders over the same rows: PyTorch's DataLoader, MosaicML's, Megatron Energon's."""

from __future__ import annotations

import argparse
import functools
import importlib
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paper.experiment import Context, Outcome
from paper.programs import Program
from paper.transforms import END, FUNCTIONS, SEQ_LEN, TEXT_ROWS

PREFETCH = 4
# That of cl100k_base.
_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
Item = tuple[int, Sequence[Mapping[str, Any]], Any]


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Returns all rows of an input, in the order of their ids."""
    found = [
        json.loads(line)
        for path in sorted((folder / "rows").iterdir())
        for line in path.read_text().splitlines()
    ]
    return sorted(found, key=lambda row: int(row.get("id", 0)))


class Rows:
    """A map-style dataset of the samples of rows."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], function: str) -> None:
        self._rows, self._function = rows, function

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return FUNCTIONS[self._function](self._rows[index])


def _confine(cores: Sequence[int], _: int) -> None:
    """Moves a worker to these cores, if there are any."""
    if cores:
        os.sched_setaffinity(0, cores)


def _dataloader(args: argparse.Namespace, last: Mapping[str, Any] | None) -> Iterator[Item]:
    """Yields a DataLoader's batches; `skip`: its sampler begins behind the last checkpoint.

    `iterate` loads and drops all before it, and `restart` begins the epoch again.
    """
    data: Any = importlib.import_module("torch.utils.data")
    done = last["step"] + 1 if last else 0
    first = done * args.batch if args.resume == "skip" else 0
    rows = rows_of(args.place)
    loader = data.DataLoader(
        Rows(rows, args.workload),
        batch_size=args.batch,
        sampler=range(first, len(rows)),
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
        prefetch_factor=PREFETCH if args.workers else None,
        drop_last=True,
        worker_init_fn=functools.partial(_confine, args.worker_cores or ()),
    )
    dropped = done if args.resume == "iterate" else 0
    for number, batch in enumerate(loader):
        if number < dropped:
            continue
        step = number if args.resume == "iterate" else done + number
        if step >= args.steps:
            return
        yield step, [{name: tensor.numpy() for name, tensor in batch.items()}], None


def _text(args: argparse.Namespace, _: Mapping[str, Any] | None) -> Iterator[Item]:
    """Yields rows of tokens from a DataLoader whose workers run tiktoken."""
    torch: Any = importlib.import_module("torch")
    data: Any = importlib.import_module("torch.utils.data")
    tiktoken: Any = importlib.import_module("tiktoken")
    ranks = importlib.import_module("tiktoken.load").load_tiktoken_bpe(str(args.ranks))
    encoding = tiktoken.Encoding(
        "cl100k_base", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens={}
    )
    files, needed = sorted((args.place / "rows").iterdir()), TEXT_ROWS * SEQ_LEN + 1

    class Documents(data.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            worker, waiting = data.get_worker_info(), []
            for file in files[worker.id :: worker.num_workers]:
                for line in file.read_text(encoding="utf-8").splitlines():
                    waiting += [*encoding.encode_ordinary(json.loads(line)["text"]), END]
                    while len(waiting) >= needed:
                        taken = torch.tensor(waiting[:needed], dtype=torch.int32)
                        yield taken.unfold(0, SEQ_LEN + 1, SEQ_LEN).clone()
                        del waiting[: needed - 1]

    loader = data.DataLoader(
        Documents(), batch_size=None, num_workers=args.workers, prefetch_factor=PREFETCH
    )
    for step, batch in zip(range(args.steps), loader, strict=False):
        yield step, [{"tokens": batch.numpy()}], None


def write_mosaic(folder: Path, given: Path) -> None:
    """Writes the rows as shards of a StreamingDataset."""
    streaming: Any = importlib.import_module("streaming")
    columns = {"id": "int", "episode": "int"}
    with streaming.MDSWriter(out=str(folder), columns=columns, size_limit="64kb") as out:
        for row in rows_of(given):
            out.write({name: int(row[name]) for name in columns})


def _mosaic(args: argparse.Namespace, last: Mapping[str, Any] | None) -> Iterator[Item]:
    """Yields the batches of a StreamingDataLoader, with its state in the checkpoint."""
    streaming: Any = importlib.import_module("streaming")

    class Samples(streaming.StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: int) -> Any:
            row = super().__getitem__(index)
            return FUNCTIONS[args.workload]({name: int(value) for name, value in row.items()})

    dataset = Samples(local=str(args.place), shuffle=False, batch_size=args.batch)
    loader = streaming.StreamingDataLoader(
        dataset,
        batch_size=args.batch,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
        drop_last=True,
    )
    done = last["step"] + 1 if last else 0
    if last:
        loader.load_state_dict(last["data"])
    for number, batch in enumerate(loader, done):
        if number >= args.steps:
            return
        state = loader.state_dict() if (number + 1) % args.save_every == 0 else None
        yield number, [{name: tensor.numpy() for name, tensor in batch.items()}], state


def write_energon(folder: Path, given: Path) -> None:
    """Writes the rows as a tar file, with the index of `energon prepare`."""
    folder.mkdir()
    with tarfile.open(folder / "rows.tar", "w") as out:
        for number, row in enumerate(rows_of(given)):
            data, entry = json.dumps(row).encode(), tarfile.TarInfo(f"{number:09}.json")
            entry.size = len(data)
            out.addfile(entry, io.BytesIO(data))
    words = [str(Path(sys.executable).with_name("energon")), "prepare", str(folder)]
    words += ["--non-interactive", "--no-progress", "--split-parts", "train:.*"]
    subprocess.run([*words, "--sample-type", "CrudeWebdataset"], check=True)


def _energon(args: argparse.Namespace, _: Mapping[str, Any] | None) -> Iterator[Item]:
    """Yields the batches of Energon's savable loader, without shuffling."""
    torch: Any = importlib.import_module("torch")
    energon: Any = importlib.import_module("megatron.energon")
    confined = functools.cache(_confine)

    def cook(sample: Any) -> Any:
        confined(tuple(args.worker_cores or ()), 0)
        return sample

    class Encoder(energon.DefaultTaskEncoder):  # type: ignore[misc]
        cookers = (energon.Cooker(energon.stateless(cook)),)

        @energon.stateless  # type: ignore[untyped-decorator]
        def encode_sample(self, sample: Any) -> Any:
            return FUNCTIONS[args.workload](sample["json"])

        def batch(self, samples: Any) -> Any:
            return torch.utils.data.default_collate(samples)

        def encode_batch(self, batch: Any) -> Any:
            return batch

    workers = energon.WorkerConfig(rank=0, world_size=1, num_workers=args.workers)
    how: dict[str, Any] = {"shuffle_buffer_size": None, "max_samples_per_sequence": None}
    dataset = energon.get_train_dataset(
        str(args.place),
        worker_config=workers,
        batch_size=args.batch,
        task_encoder=Encoder(),
        **how,
    )
    loader = energon.get_savable_loader(dataset, prefetch_factor=PREFETCH)
    for step, batch in zip(range(args.steps), loader, strict=False):
        yield step, [{name: tensor.numpy() for name, tensor in batch.items()}], None


WAYS = {"dataloader": _dataloader, "text": _text, "mosaic": _mosaic, "energon": _energon}
_PACKAGES = {"mosaic": ("streaming", "mosaicml-streaming")}
_PACKAGES["energon"] = ("megatron.energon", "megatron-energon")


def available(ctx: Context, out: Outcome, way: str, name: str) -> bool:
    """Returns whether a loader is installed, and names it on the page if not."""
    package, installed = _PACKAGES.get(way, ("torch", "torch"))
    if package not in ctx.packages:
        out.lacks(name, f"{ctx.python} has no {package}: pip install {installed}")
    return package in ctx.packages


def convert(ctx: Context, way: str, folder: Path, given: Path) -> None:
    """Writes the rows as a loader reads them, by a Python that has its package."""
    words = [ctx.python, "-m", "paper.loaders", way, str(folder), str(given)]
    with Program("conversion", words, folder.with_suffix(".log"), ctx.env) as converting:
        converting.wait(600)


def advance(state: Path, step: int, batch: int) -> None:
    """Changes the state of a StreamingDataLoader to that after this number of steps."""
    found = json.loads(state.read_text())
    found["step"] = step - 1
    found["data"]["sample_in_epoch"] = step * batch
    state.write_text(json.dumps(found))


if __name__ == "__main__":
    write = {"mosaic": write_mosaic, "energon": write_energon}[sys.argv[1]]
    write(Path(sys.argv[2]), Path(sys.argv[3]))
