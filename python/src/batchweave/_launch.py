"""The launcher's environment of this process: rank, world size, attempt, the daemon's socket.

Used only for arguments that the caller of `connect` omits.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from batchweave.errors import BadHelloError, NoAttemptError

DEFAULT_SOCKET = "/run/batchweave/consumer.sock"
# Where `batchweave run` makes its socket when it may not write the folder above.
_USERS_SOCKETS = (
    "/run/user/{user}/batchweave/consumer.sock",
    "/tmp/batchweave-{user}/consumer.sock",
)
# Linux: sun_path has 108 bytes, and the last one is the terminating zero.
SOCKET_PATH_BYTES_MAX = 107

# torchrun (and most others, Kubeflow's too), Slurm, Open MPI, MPICH, MVAPICH, LeaderWorkerSet,
# indexed jobs of Kubernetes: the pair must come from one launcher.
_INDEXED = ("JOB_COMPLETION_INDEX", "BATCHWEAVE_WORLD_SIZE")
_RANK_AND_WORLD = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("LWS_WORKER_INDEX", "LWS_GROUP_SIZE"),
    _INDEXED,
)
# Variables that change with every `srun`: a job's step, and the job's requeues.
_SLURM_START = ("SLURM_JOB_ID", "SLURM_STEP_ID")
_SLURM_MORE = ("SLURM_CLUSTER_NAME", "SLURM_RESTART_COUNT", "SLURM_JOB_START_TIME")

_HOW = (
    "draw one on global rank 0 and give it to all: attempt=batchweave.torch.attempt() after "
    "init_process_group (torchrun, Accelerate, Lightning), batchweave.jax.attempt() after "
    "jax.distributed.initialize, or, where a shell starts all ranks, the environment variable "
    'BATCHWEAVE_ATTEMPT="$(uuidgen)", new at each start'
)


class DrawnId(str):
    """An attempt's id that a single process drew for itself, without a launcher.

    Such an attempt ends no other that runs: its process may be a second shell or a notebook.
    """

    __slots__ = ()


def drawn_id(env: Mapping[str, str] = os.environ) -> str:
    """Returns a random id for the only rank of a job."""
    drawn = secrets.token_hex(16)
    return drawn if launched(env) else DrawnId(drawn)


def launched(env: Mapping[str, str] = os.environ) -> bool:
    """Returns whether a launcher started this process."""
    pairs = (rank in env and world in env for rank, world in _RANK_AND_WORLD)
    return any(pairs) or "TORCHELASTIC_RUN_ID" in env


class DefaultSocket(str):
    """The socket's path when neither the caller nor the environment names one."""

    __slots__ = ()


def socket_places(path: str) -> list[str]:
    """Returns the paths to try for a socket: that path, and for the default one this user's own."""
    if not isinstance(path, DefaultSocket):
        return [path]
    user = os.geteuid()
    own = [place.format(user=user) for place in _USERS_SOCKETS]
    return [str(path), *(place for place in own if _is_safe(place, user))]


def _is_safe(path: str, user: int) -> bool:
    """Returns whether only root or this user can have made the file."""
    try:
        found = Path(path).parent.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid in (0, user) and not found.st_mode & 0o022


def socket_path(given: str | os.PathLike[str] | None, env: Mapping[str, str] = os.environ) -> str:
    """Returns the path of the daemon's socket: the argument, BATCHWEAVE_SOCKET, or the default."""
    if given is None and "BATCHWEAVE_SOCKET" not in env:
        return DefaultSocket(DEFAULT_SOCKET)
    path = os.fspath(given) if given is not None else env["BATCHWEAVE_SOCKET"]
    if path.startswith("\0") or not path:
        raise BadHelloError(f"socket is {path!r}: give the path of the consumer daemon's socket")
    size = len(os.fsencode(path))
    if size > SOCKET_PATH_BYTES_MAX:
        raise BadHelloError(
            f"socket path has {size} bytes, the system allows {SOCKET_PATH_BYTES_MAX}: {path}; "
            "use a shorter path in the daemon's configuration and here"
        )
    return path


def rank_and_world(
    rank: int | None, world: int | None, env: Mapping[str, str] = os.environ
) -> tuple[int, int]:
    """Returns the data-parallel rank and size: the arguments, the launcher's, or 0 of 1."""
    if rank is None and world is None:
        rank, world = _from_launcher(env)
    elif rank is None or world is None:
        raise BadHelloError(
            "give both dp_rank and dp_size, or neither (then the launcher's are used)"
        )
    if world < 1 or not 0 <= rank < world:
        raise BadHelloError(
            f"dp_rank {rank} of dp_size {world}: 0 to {max(world, 1) - 1} is allowed"
        )
    return rank, world


def rank_and_world_of_job(env: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Returns the rank and world size of the whole job: the launcher's, or 0 of 1."""
    return rank_and_world(None, None, env)


def global_rank_of(dp_rank: int, env: Mapping[str, str] = os.environ) -> int:
    """Returns the rank in the whole job: the launcher's, or else the data-parallel one."""
    for rank_name, world_name in _RANK_AND_WORLD:
        if rank_name in env and world_name in env:
            return _number(env, rank_name)
    return dp_rank


def attempt_of(
    given: str | None, dp_size: int, global_rank: int | None, env: Mapping[str, str] = os.environ
) -> str:
    """Returns the attempt's id: the argument, BATCHWEAVE_ATTEMPT, or that of the ranks' start.

    That is a drawn one for a single rank, Slurm's, or one that the process group broadcasts.
    """
    if given is not None:
        return given if isinstance(given, DrawnId) else _id("attempt=", given)
    if env.get("BATCHWEAVE_ATTEMPT"):
        _refuse_restarts(env)
        return _id("environment variable BATCHWEAVE_ATTEMPT", env["BATCHWEAVE_ATTEMPT"])
    world = max(dp_size, _from_launcher(env)[1])
    if world == 1 and not global_rank:
        return drawn_id(env)
    step = _slurm_step(world, env)
    if step is None and (shared := _of_group(dp_size)) is not None:
        return shared
    if step is None:
        raise NoAttemptError(f"the job's {world} ranks need one attempt's id: {_HOW}", remedy=_HOW)
    return hashlib.sha256(step.encode()).hexdigest()[:32]


def _of_group(dp_size: int) -> str | None:
    """Returns the id that torch's process group broadcasts, if each of its ranks connects.

    With tensor or pipeline parallelism some ranks may read nothing: a broadcast would wait for them
    for ever, so those trainers pass `attempt=`.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    if distributed.get_world_size() != dp_size:
        return None
    return broadcast_id(distributed)


def broadcast_id(distributed: Any) -> str:
    """Returns an id that global rank 0 of torch's process group draws for all ranks."""
    drawn = [secrets.token_hex(16) if distributed.get_rank() == 0 else None]
    distributed.broadcast_object_list(drawn, src=0)
    return str(drawn[0])


def _id(source: str, text: str) -> str:
    found = text.replace("-", "").lower()
    if not re.fullmatch("[0-9a-f]{32}", found) or not int(found, 16):
        raise BadHelloError(
            f"{source} is {text!r}; an attempt's id is 32 random hexadecimal digits, or a UUID"
        )
    return found


def _refuse_restarts(env: Mapping[str, str]) -> None:
    """Refuses a fixed id under torchrun, whose restarts keep the environment of the first start."""
    counts = [env.get(f"TORCHELASTIC_{name}", "0") for name in ("MAX_RESTARTS", "RESTART_COUNT")]
    if any(count not in ("", "0") for count in counts):
        raise NoAttemptError(
            "BATCHWEAVE_ATTEMPT stays the same when torchrun restarts the ranks (--max-restarts is "
            "not 0), and each start is an attempt of its own: unset it, and pass "
            "attempt=batchweave.torch.attempt()"
        )


def _slurm_step(world: int, env: Mapping[str, str]) -> str | None:
    """Returns the name of this `srun`, where all ranks are its tasks and nothing restarts them."""
    own = all(env.get(name) for name in _SLURM_START) and "TORCHELASTIC_RUN_ID" not in env
    if not own or env.get("SLURM_NTASKS") != str(world):
        return None
    return "/".join(env.get(name, "") for name in (*_SLURM_START, *_SLURM_MORE))


def _from_launcher(env: Mapping[str, str]) -> tuple[int, int]:
    for rank_name, world_name in _RANK_AND_WORLD:
        if rank_name in env and world_name in env:
            return _number(env, rank_name), _number(env, world_name)
    index, size = _INDEXED
    if index in env:
        raise BadHelloError(
            f"Kubernetes sets {index}={env[index]}, but not the number of pods: set {size} to "
            "the job's spec.completions, or pass dp_rank= and dp_size="
        )
    return 0, 1


def _number(env: Mapping[str, str], name: str) -> int:
    try:
        return int(env[name])
    except ValueError:
        raise BadHelloError(
            f"environment variable {name} is {env[name]!r}, not a number; "
            "pass dp_rank= and dp_size="
        ) from None
