"""For trainers with JAX: the attempt's id, balanced batches of a fixed shape, reports of losses.

Importing this module does not import JAX; its functions do when they are called.
"""

from __future__ import annotations

import importlib
import secrets
from typing import TYPE_CHECKING, Any

import numpy as np

from batchweave._launch import DrawnId, launched
from batchweave._layout import Array
from batchweave._loss_jax import LossReporter
from batchweave.errors import NoAttemptError

if TYPE_CHECKING:
    from batchweave.batch import Batch

__all__ = ["LossReporter", "attempt", "micro_batches"]

_STACKED = ("inputs", "labels", "loss_mask", "positions", "segment_ids")


def attempt() -> str:
    """Returns an attempt's id, drawn by process 0 and broadcast: call it in all processes.

    Call it at each start, after `jax.distributed.initialize` where there are several processes.
    JAX's process 0 must be the reader's global rank 0: pass `global_rank=jax.process_index()` where
    the launcher does not set it.
    """
    try:
        multihost: Any = importlib.import_module("jax.experimental.multihost_utils")
    except ImportError as reason:
        raise NoAttemptError(f"batchweave.jax.attempt() needs JAX: {reason}") from reason
    # One byte per int32: JAX sums the processes' arrays, and has no wider integers by default.
    drawn = np.frombuffer(secrets.token_bytes(16), np.uint8).astype(np.int32)
    found = np.asarray(multihost.broadcast_one_to_all(drawn)).astype(np.uint8).tobytes().hex()
    processes = importlib.import_module("jax").process_count()
    return found if processes > 1 or launched() else DrawnId(found)


def micro_batches(batch: Batch, seq_len: int) -> dict[str, Array]:
    """Returns the bins of a balanced batch as arrays of one shape in every step.

    `inputs`, `labels`, `loss_mask`, `positions` and `segment_ids`: `[bins, seq_len]`, one bin per
    row in the order of `batch.micro_batches()`, filled up with 0, so that padding has no segment
    and no loss. `seq_len=reader.info.seq_len` fits every bin of the stream. Columns of the stream
    with an entry per token are `[bins, seq_len + 1]`; `costs` are `[bins]`, and `loss_tokens` has
    no axis. They are numpy arrays of this process; whole numbers are int32, columns stay as they
    are. Arrays of documents have no fixed shape: see `batch.ragged`.
    """
    micros = [micro.padded(seq_len) for micro in batch.micro_batches()]
    found = {
        name: np.stack([getattr(micro, name) for micro in micros]).astype(np.int32)
        for name in _STACKED
    }
    own = ("tokens", *_STACKED)
    for name in micros[0].per_token:
        if name not in own:
            found[name] = np.stack([micro[name] for micro in micros])
    found["costs"] = np.array([micro.cost for micro in micros], np.float32)
    found["loss_tokens"] = np.array(batch.loss_tokens, np.int32)
    return found
