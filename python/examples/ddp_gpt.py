"""A small GPT under DDP that may be killed at any moment and goes on with another number of ranks.

    batchweave run python/examples/ddp_gpt.toml --until stopped
    torchrun --nproc-per-node 4 python/examples/ddp_gpt.py /tmp/batchweave-ddp-gpt/run

and again with --nproc-per-node 2 after a crash.

Model, optimizer and the data's position are one torch.distributed.checkpoint. A rank's slices are
its micro-batches, so a step's gradient is the mean over the same global batch on any number of
ranks: the loss curve stays the same within float noise. `losses.jsonl` in the folder has a line
for each step, `slices.jsonl` what each rank read. It runs on CPUs; the bytes are the tokens.
"""

# mypy: ignore-errors
# PyTorch is not installed where types are checked.

from __future__ import annotations

import argparse
import json
import os
import sys
import zlib
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import batchweave
from batchweave.torch import Checkpointing, packed, tensors

WIDTH, HEADS, LAYERS = 64, 4, 2


class Block(nn.Module):
    """Attention and a feed-forward layer."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Adds the output of both layers."""
        rows, length, _ = x.shape
        parts = self.qkv(self.before(x)).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.between(x))))


class GPT(nn.Module):
    """Tokens in, logits out."""

    def __init__(self, vocabulary: int, seq_len: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(seq_len, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits of the next token at each place."""
        return self.head(self.blocks(self.tokens(ids) + self.places.weight[: ids.shape[1]]))


class Training:
    """Model and optimizer as one part of a checkpoint, whatever the number of ranks."""

    def __init__(self, vocabulary: int, seq_len: int) -> None:
        torch.manual_seed(20261121)
        self.model = nn.parallel.DistributedDataParallel(GPT(vocabulary, seq_len))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state to save."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a saved state."""
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )

    def step(self, batch: batchweave.Batch) -> float:
        """One update from this rank's slices; the mean loss over all ranks."""
        self.optimizer.zero_grad()
        total = torch.zeros(())
        for number, piece in enumerate(batch.slices):
            given = packed(tensors(piece, torch.int64), labels="shifted")
            last = number == len(batch.slices) - 1
            # Gradients are summed locally, and reduced once.
            self.model.require_backward_grad_sync = last
            logits = self.model(given["input_ids"])
            loss = F.cross_entropy(logits.flatten(0, 1), given["labels"].flatten())
            (loss / len(batch.slices)).backward()
            total += loss.detach() / len(batch.slices)
        self.optimizer.step()
        dist.all_reduce(total)
        return float(total) / dist.get_world_size()


def save(folder: Path, training: Training, data: Checkpointing, step: int) -> None:
    """Saves a checkpoint that counts when `latest` names it, then marks it for the job."""
    state = data.state_dict()
    dcp.save({"training": training, "data": data}, checkpoint_id=folder / f"step{step}")
    if dist.get_rank() == 0:
        fresh = folder / "latest.new"
        fresh.write_text(f"step{step}")
        fresh.replace(folder / "latest")
    dist.barrier()
    data.after_save(state)


def check_vocabulary(reader: batchweave.Reader, size: int) -> None:
    """Refuses a stream with token ids that the model lacks: they would end in an IndexError."""
    known = reader.info.vocabulary
    if known is None:
        print(f"the stream does not name the bound of its token ids: not compared with {size}")
    elif known > size:
        sys.exit(
            f"the model has {size} token ids, the stream's tokenizer {reader.info.tokenizer!r} "
            f"{known}: pass --vocabulary {known} and a new folder"
        )


def note(path: Path, **line: Any) -> None:
    """Appends a whole line of JSON, even when several ranks write."""
    with path.open("a") as out:
        out.write(json.dumps(line) + "\n")


def main() -> None:
    """Trains up to a step, from the last checkpoint if there is one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="checkpoints, losses")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--seq-len", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=512, help="token ids of the model")
    parser.add_argument("--job", default="train")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    training, data = Training(args.vocabulary, args.seq_len), Checkpointing()
    latest = args.folder / "latest"
    if latest.exists():
        where = args.folder / latest.read_text()
        dcp.load({"training": training, "data": data}, checkpoint_id=where)
    attempt = batchweave.torch.attempt()
    with data:
        reader = data.connect(job=args.job, attempt=attempt, seq_len=args.seq_len)
        check_vocabulary(reader, args.vocabulary)
        while reader.next_step < args.steps:
            batch = next(reader)
            for piece in batch.slices:
                note(
                    args.folder / "slices.jsonl",
                    step=batch.step,
                    slice=piece.index,
                    crc=zlib.crc32(piece["tokens"].tobytes()),
                    world=dist.get_world_size(),
                )
            loss = training.step(batch)
            data.trained(batch)
            if rank == 0:
                note(args.folder / "losses.jsonl", step=batch.step, loss=loss, pid=os.getpid())
            if (batch.step + 1) % args.save_every == 0:
                save(args.folder, training, data, batch.step + 1)
            del batch
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
