"""Reads BatchWeave's global batches from the consumer daemon of this node.

    with batchweave.connect(job="pretrain") as reader:
        for batch in reader:
            train(batch.inputs, batch.labels)

    batchweave.open("file:///data/stream")[5]  # to look at a stream: no daemon, no job

Arrays are read-only views of the daemon's memory. The daemon reuses a frame when all arrays that
view it are gone, so drop them when a step is over (a loop variable does that by itself).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Literal

from batchweave import errors
from batchweave import inbox as inbox
from batchweave import jax as jax
from batchweave import mesh as mesh
from batchweave import ray as ray
from batchweave import torch as torch
from batchweave import views as views
from batchweave._arguments import check_seconds, check_state, check_whole
from batchweave._connect import Options, __version__
from batchweave._launch import (
    DrawnId,
    attempt_of,
    global_rank_of,
    rank_and_world,
    socket_path,
)
from batchweave._micro_batches import MicroBatch
from batchweave._names import names_checked
from batchweave._ragged import Ragged
from batchweave._stages import Stage
from batchweave._wire import CREDITS_MAX, CREDITS_MIN
from batchweave.batch import Batch, Slice
from batchweave.errors import BadHelloError, BadMeshError, BatchWeaveError
from batchweave.mesh import Place
from batchweave.reader import Reader
from batchweave.state import State
from batchweave.stream import Stream
from batchweave.stream import open as open

# Without jax, ray, torch and open: `from batchweave import *` must not hide the real ones.
__all__ = [
    "Batch",
    "BatchWeaveError",
    "MicroBatch",
    "Ragged",
    "Reader",
    "Slice",
    "Stage",
    "Stream",
    "__version__",
    "connect",
    "errors",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "inbox", "jax", "mesh", "open", "ray", "torch", "views"])


@names_checked
def connect(
    socket: str | os.PathLike[str] | None = None,
    *,
    job: str | None = None,
    dp_rank: int | None = None,
    dp_size: int | None = None,
    mesh: Place | None = None,
    shared: bool | None = None,
    split_rows: int = 1,
    global_rank: int | None = None,
    start: int | None = None,
    state: Mapping[str, str] | None = None,
    attempt: str | None = None,
    takeover: bool = False,
    resume: bool | Literal["latest"] | None = None,
    fresh: bool = False,
    credits: int = 4,
    copy: bool = False,
    timeout: float = 600.0,
    connect_timeout: float = 60.0,
    slices: int | None = None,
    seq_len: int | None = None,
    rows_per_slice: int | None = None,
    limit: int | None = None,
    on_stage: Callable[[Stage | None], object] | None = None,
) -> Reader:
    """Connects to the consumer daemon of this node and returns a reader.

    `socket`: the daemon's; default BATCHWEAVE_SOCKET, then /run/batchweave/consumer.sock, then the
    one of this user's `batchweave run`.
    `job`: the training run; without one the reader neither retains data nor holds producers back.
    `dp_rank`, `dp_size`: the data coordinate (not the tensor or pipeline one); default: the
    launcher's rank and world size, then 0 of 1. `mesh`: instead of both, this rank's place from
    `batchweave.mesh`. `shared`: whether other ranks read the same coordinate (tensor, context or
    pipeline peers), each with its own global rank; default: whether the mesh has such ranks. They
    read the same memory. `split_rows`: the number of ranks that share a slice, each with an equal
    part of its rows; dp_size is then up to slices x split_rows.
    `global_rank`: the rank in the whole job; default: the launcher's, then dp_rank.
    `state`: a saved state_dict to continue from; without one, `start` is the first step, 0 unless
    the job has restart points: then it must be stated, or this is a `ForgottenStateError`.
    `resume="latest"` begins at the newest restart point, for a model of that step
    (`reader.next_step`); `fresh=True` begins at step 0 and gives the checkpoints up.
    `attempt`: 32 hexadecimal digits, the same on all ranks of one start of the job and new at the
    next: `batchweave.torch.attempt()` or `batchweave.jax.attempt()`; default: BATCHWEAVE_ATTEMPT,
    a drawn id where the job has one rank, Slurm's job and step, or an error with the remedy.
    `takeover`: whether an attempt with a drawn id may end one of the job that runs on this node;
    without it that is an `AttemptRunningError`. A given id, and one under a launcher, always may.
    `resume=True`: whether only this rank was restarted; default: yes if `state` is of this attempt.
    `credits`: steps that may be held or queued at once, at least 2. `copy`: arrays are private,
    writable copies. `timeout`: seconds after which `next()` fails with the cause;
    `connect_timeout`: seconds after which this call fails. `slices`, `seq_len`, `rows_per_slice`:
    the shape that the trainer expects; another stream is then refused. `limit`: the number of
    steps to read, from the first one or the last `seek` on (skipped ones count). `on_stage`: called
    with `batch.stage` before a batch is returned that has another stage than the one before.
    """
    path = socket_path(socket)
    check_whole(dp_rank=dp_rank, dp_size=dp_size, global_rank=global_rank, start=start)
    check_whole(limit=limit, credits=credits, split_rows=split_rows)
    check_whole(slices=slices, seq_len=seq_len, rows_per_slice=rows_per_slice)
    check_seconds(timeout=timeout, connect_timeout=connect_timeout)
    check_state(state)
    if mesh is not None:
        if dp_rank is not None or dp_size is not None:
            raise BadHelloError("give mesh=, or dp_rank= and dp_size=, not both")
        dp_rank, dp_size = mesh.dp_rank, mesh.dp_size
        global_rank = mesh.global_rank if global_rank is None else global_rank
        shared = mesh.shared if shared is None else shared
    rank, size = rank_and_world(dp_rank, dp_size)
    if split_rows < 1 or size % split_rows:
        raise BadMeshError(
            f"split_rows={split_rows}: this number of ranks shares a slice, so it must divide "
            f"dp_size, {size}"
        )
    if not CREDITS_MIN <= credits <= CREDITS_MAX:
        raise BadHelloError(f"credits is {credits}; {CREDITS_MIN} to {CREDITS_MAX} are allowed")
    begin = _begin(job, start, state, resume, fresh)
    first = start or 0
    if not 0 <= first < 1 << 53 or (first and state is not None):
        raise BadHelloError(f"start={start}: give a step number, or a state, not both")
    if limit is not None and limit < 0:
        raise BadHelloError(f"limit={limit}: give a number of steps, or None for all")
    saved = State.from_dict(state) if state is not None else None
    globally = global_rank_of(rank) if global_rank is None else global_rank
    if job is not None:
        attempt = attempt_of(attempt, size, globally)
    elif attempt is not None:
        raise BadHelloError("attempt= needs job=: a reader without a job has no attempts")
    elif takeover:
        raise BadHelloError("takeover= needs job=: a reader without a job ends no attempt")
    if resume is None:
        resume = saved is not None and saved.attempt == attempt
    options = Options(
        socket=path,
        job=job,
        dp_rank=rank,
        dp_size=size,
        global_rank=globally,
        shared=bool(shared) or split_rows > 1,
        split_rows=split_rows,
        attempt=None if attempt is None else str(attempt),
        begin=begin,
        yields=isinstance(attempt, DrawnId) and not takeover,
        parent=saved.parent() if saved is not None and job is not None else None,
        credits=credits,
        copy=copy,
        timeout=timeout,
        slices=slices,
        seq_len=seq_len,
        rows_per_slice=rows_per_slice,
        limit=limit,
        on_stage=on_stage,
    )
    joins = resume == "latest" or not resume
    reader = Reader(options, saved, first, mode="join" if joins else "resume")
    reader.open(time.monotonic() + connect_timeout)
    return reader


def _begin(
    job: str | None,
    start: int | None,
    state: Mapping[str, str] | None,
    resume: bool | str | None,
    fresh: bool,
) -> str | None:
    """Returns the `begin` of the first hello: None if the position is stated."""
    if isinstance(resume, str) and resume != "latest":
        raise BadHelloError(f'resume={resume!r}: give True, False, or "latest"')
    stated = {
        "state=": state is not None,
        "start=": start is not None,
        'resume="latest"': resume == "latest",
        "fresh=True": fresh,
    }
    given = [name for name, is_given in stated.items() if is_given]
    if (resume == "latest" or fresh) and (len(given) > 1 or job is None):
        why = "needs job=" if job is None else f"beside {given[0]}: give one of them"
        raise BadHelloError(f"{given[-1]} {why}")
    if job is None or resume is True or (given and resume != "latest"):
        return None
    return "latest" if given else "unstated"
