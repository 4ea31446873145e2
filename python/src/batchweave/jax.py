"""For trainers with JAX: the attempt's id.

Importing this module does not import JAX; its functions do when they are called.
"""

from __future__ import annotations

import importlib
import secrets
from typing import Any

import numpy as np

from batchweave._launch import DrawnId, launched
from batchweave.errors import NoAttemptError


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
