"""A training loop without the training: writes each step and its tokens, 50 steps per second."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import batchweave


def main(socket: str, dp_rank: int, path: str) -> None:
    """Read until the stream ends."""
    with (
        Path(path).open("wb", buffering=0) as out,
        batchweave.connect(
            socket, job="training", start=0, dp_rank=dp_rank, dp_size=2, connect_timeout=60
        ) as reader,
    ):
        for batch in reader:
            (piece,) = batch.slices
            out.write(batch.step.to_bytes(8, "little") + piece.inputs.astype("<u2").tobytes())
            if batch.step % 500 == 499:
                reader.checkpoint(batch.state_dict())
            time.sleep(0.02)
    print("the stream has ended")


main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
