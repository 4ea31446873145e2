"""A rank of real PyTorch processes, for test_torch.

    torch_ranks.py SOCKET GROUP CHECKPOINT WORLD RANK

Loads the checkpoint if it is there, reads five steps and saves: with real gloo, real DCP.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import batchweave

distributed: Any = importlib.import_module("torch.distributed")
dcp: Any = importlib.import_module("torch.distributed.checkpoint")


def main() -> None:
    """Five steps of one attempt."""
    socket, group, folder = sys.argv[1:4]
    world, rank = map(int, sys.argv[4:6])
    distributed.init_process_group("gloo", f"file://{group}", rank=rank, world_size=world)
    attempt = batchweave.torch.attempt()
    data = batchweave.torch.Checkpointing()
    if Path(folder).exists():
        dcp.load({"data": data}, checkpoint_id=folder)
    distributed.barrier()
    with data:
        reader = data.connect(socket, job="j", attempt=attempt, dp_rank=rank, dp_size=world)
        first = reader.next_step
        for batch in reader:
            if batch.step == first + 4:
                break
        future = dcp.async_save({"data": data}, checkpoint_id=folder)
        data.after_async_save(future, data.state_dict())
    print(json.dumps({"first": first, "attempt": attempt}))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
