"""A whole training loop: read, train, save, and go on from the last checkpoint after a crash.

    torchrun --nproc-per-node 4 examples/train_loop.py checkpoint-folder

Rank, world size and the daemon's socket come from the environment. The "model" counts tokens.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import batchweave

SAVE_EVERY = 100


def load(path: Path) -> dict[str, Any] | None:
    """The last checkpoint, if there is one."""
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def save(path: Path, checkpoint: dict[str, Any]) -> None:
    """Makes a checkpoint durable: what a crash leaves behind is the old one or the new one."""
    fresh = path.with_suffix(".new")
    with fresh.open("w") as out:
        json.dump(checkpoint, out)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(path)


def main(folder: Path) -> None:
    """Trains until the stream ends."""
    rank = os.environ.get("RANK", "0")
    path = folder / f"rank{rank}.json"
    last = load(path)
    model = last["model"] if last else {"tokens": 0}
    with batchweave.connect(job="example", state=last["data"] if last else None) as reader:
        for batch in reader:
            for piece in batch.slices:
                # Views of shared memory: give them to the device, keep none after the step.
                model["tokens"] += piece.inputs.size
            if (batch.step + 1) % SAVE_EVERY == 0:
                state = batch.state_dict()
                save(path, {"model": model, "data": state})
                reader.checkpoint(state)
    print(f"rank {rank}: {model['tokens']} tokens")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
