"""A training loop without the training, in a machine of `node.py`: `trainer.py JOB FOLDER [STEPS]`.

It writes each step and its time to FOLDER/steps, at most a hundred per second while FOLDER/hurry is
absent, and saves a checkpoint every 200 steps. It ends with the stream, or after STEPS; fewer
are an error.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import batchweave


def main(job: str, folder: Path, wanted: int | None) -> None:
    """Read, and check that each step follows the one before."""
    folder.mkdir(exist_ok=True)
    received = 0
    with (
        (folder / "steps").open("w", buffering=1) as out,
        batchweave.connect(job=job, start=0, dp_rank=0, dp_size=1, connect_timeout=120) as reader,
    ):
        for batch in reader:
            if batch.step != received:
                sys.exit(f"step {batch.step} after {received} steps")
            received += 1
            out.write(f"{batch.step} {time.time():.3f}\n")
            if received % 200 == 0:
                reader.checkpoint(batch.state_dict())
            if received == wanted:
                break
            if not (folder / "hurry").exists():
                time.sleep(0.01)
    if wanted is not None and received != wanted:
        sys.exit(f"the stream ended after {received} of {wanted} steps")
    print(f"received {received} steps")


main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
