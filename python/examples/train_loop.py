"""A whole training loop: read, train, save, and go on from the last checkpoint after a crash.

    batchweave run python/examples/train_loop.toml
    python python/examples/train_loop.py checkpoint-folder

or, with PyTorch, torchrun --nproc-per-node 4 --max-restarts 3 python/examples/train_loop.py.
Rank, world size and the daemon's socket come from the environment. The "model" counts the tokens of
all ranks, as real ones are equal on all data-parallel ranks. Kill it, start it again, with another
number of ranks if you like: the count at the end is the stream's.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import batchweave

SAVE_EVERY = 100


def load(path: Path) -> dict[str, Any] | None:
    """Returns the last checkpoint, if there is one."""
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def save(path: Path, checkpoint: dict[str, Any]) -> None:
    """Saves a checkpoint durably: a crash leaves the old one or the new one."""
    fresh = path.with_suffix(".new")
    with fresh.open("w") as out:
        json.dump(checkpoint, out)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(path)


def attempt() -> str | None:
    """Returns this start's id, equal on all ranks; None: BatchWeave draws it, or uses Slurm's."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    distributed: Any = importlib.import_module("torch.distributed")
    distributed.init_process_group("gloo")
    return batchweave.torch.attempt()


def main(folder: Path) -> None:
    """Trains until the stream ends."""
    path, rank = folder / "checkpoint.json", os.environ.get("RANK", "0")
    last = load(path)
    model = last["model"] if last else {"tokens": 0}
    with batchweave.connect(
        job="train", attempt=attempt(), state=last["data"] if last else None
    ) as reader:
        for batch in reader:
            # Views of shared memory: copy them to the device, keep none after the step.
            own = batch.inputs.size
            # The all-reduce of a real loop, which also keeps the ranks together.
            model["tokens"] += own * reader.info.slices // reader.info.slice_count
            if (batch.step + 1) % SAVE_EVERY == 0:
                state = batch.state_dict()
                if rank == "0":
                    save(path, {"model": model, "data": state})
                # On all ranks: the step is a restart point once all of them, rank 0 too, marked it.
                reader.checkpoint(state)
    print(f"rank {rank}: {model['tokens']} tokens")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
