"""For trainers with JAX: the attempt's id.

Importing this module imports nothing: JAX is imported by what needs it, when it is called.
"""

from __future__ import annotations

import importlib
import secrets
from typing import Any

import numpy as np

from batchweave.errors import NoAttemptError


def attempt() -> str:
    """An attempt's id, drawn by process 0 and broadcast: call it in all processes, at each start.

    Needs `jax.distributed.initialize` where there are several. JAX's process 0 must be the reader's
    global rank 0: pass `global_rank=jax.process_index()` where the launcher does not say.
    """
    try:
        multihost: Any = importlib.import_module("jax.experimental.multihost_utils")
    except ImportError as reason:
        raise NoAttemptError(f"batchweave.jax.attempt() needs JAX: {reason}") from reason
    # A byte in each int32: JAX adds the processes' arrays up, and has no wider integers by default.
    drawn = np.frombuffer(secrets.token_bytes(16), np.uint8).astype(np.int32)
    found = np.asarray(multihost.broadcast_one_to_all(drawn))
    return found.astype(np.uint8).tobytes().hex()
