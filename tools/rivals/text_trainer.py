"""A trainer of the comparison over text: it adds up the tokens of each step.

    python -m rivals.text_trainer batchweave SOCKET --steps 500
    python -m rivals.text_trainer dataloader FOLDER --steps 500 --workers 2

Says `ready` when all is imported, begins at a line on standard input, and prints one JSON object:
`seconds` from that line to the last step, `first_seconds` to the first one, `tokens`, and `sum`.
The DataLoader's workers encode with tiktoken's cl100k_base, each its share of the documents;
tiktoken fetches it, or reads it from the file `--ranks`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rivals.text_files import END, ROWS, SEQ_LEN

_JOB = "compare-text"
# That of cl100k_base.
_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CONNECT_SECONDS = 60.0


def batchweave(socket: Path, steps: int) -> Iterator[list[Any]]:
    """Yields the views of a rank's slices, as the only rank of a job that paces the producer."""
    client: Any = importlib.import_module("batchweave")
    with client.connect(
        socket, job=_JOB, dp_rank=0, dp_size=1, limit=steps, connect_timeout=_CONNECT_SECONDS
    ) as reader:
        for batch in reader:
            yield [piece["tokens"] for piece in batch.slices]
            del batch


def _encoding(ranks: Path | None) -> Any:
    tiktoken: Any = importlib.import_module("tiktoken")
    if ranks is None:
        return tiktoken.get_encoding("cl100k_base")
    loaded = importlib.import_module("tiktoken.load").load_tiktoken_bpe(str(ranks))
    return tiktoken.Encoding(
        "cl100k_base", pat_str=_PATTERN, mergeable_ranks=loaded, special_tokens={}
    )


def dataloader(folder: Path, steps: int, workers: int, encoding: Any) -> Iterator[list[Any]]:
    """Yields the batches of a PyTorch DataLoader."""
    torch: Any = importlib.import_module("torch")
    data: Any = importlib.import_module("torch.utils.data")
    files = sorted(folder.iterdir())
    needed = ROWS * SEQ_LEN + 1

    class Documents(data.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            worker = data.get_worker_info()
            waiting: list[int] = []
            for file in files:
                with file.open(encoding="utf-8") as lines:
                    for number, line in enumerate(lines):
                        if number % worker.num_workers != worker.id:
                            continue
                        waiting += encoding.encode_ordinary(json.loads(line)["text"])
                        waiting.append(END)
                        while len(waiting) >= needed:
                            taken = torch.tensor(waiting[:needed], dtype=torch.int32)
                            yield taken.unfold(0, SEQ_LEN + 1, SEQ_LEN).clone()
                            del waiting[: needed - 1]

    loader = data.DataLoader(Documents(), batch_size=None, num_workers=workers)
    for _, batch in zip(range(steps), loader, strict=False):
        yield [batch.numpy()]


def main() -> None:
    """Runs one trainer."""
    parser = argparse.ArgumentParser(prog="python -m rivals.text_trainer")
    parser.add_argument("way", choices=("batchweave", "dataloader"))
    parser.add_argument("place", type=Path, help="the daemon's socket, or the folder of the files")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--ranks", type=Path, help="cl100k_base.tiktoken")
    args = parser.parse_args()
    if args.way == "batchweave":
        importlib.import_module("batchweave")
        batches = batchweave(args.place, args.steps)
    else:
        importlib.import_module("torch.utils.data")
        encoding = _encoding(args.ranks)
        batches = dataloader(args.place, args.steps, args.workers, encoding)
    print("ready", flush=True)
    if not sys.stdin.readline():
        return
    began, first, tokens, total = time.perf_counter(), 0.0, 0, 0
    for batch in batches:
        first = first or time.perf_counter() - began
        for array in batch:
            tokens += array[:, 1:].size
            total += int(np.add.reduce(array, axis=None, dtype=np.uint64))
        del batch, array
    seconds = time.perf_counter() - began
    found = {"seconds": seconds, "first_seconds": first, "tokens": tokens, "sum": total}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
