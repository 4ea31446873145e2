"""What the launcher says about this process: rank, world size, the daemon's socket.

Only used for what the caller of `connect` leaves out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from batchweave.errors import BadHelloError

DEFAULT_SOCKET = "/run/batchweave/consumer.sock"
# Linux: sun_path has 108 bytes, and the last one is the terminating zero.
SOCKET_PATH_BYTES_MAX = 107

# torchrun (and most others), Slurm, Open MPI, MPICH: the pair must come from one launcher.
_RANK_AND_WORLD = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def socket_path(given: str | os.PathLike[str] | None, env: Mapping[str, str] = os.environ) -> str:
    """The path of the daemon's socket: the argument, BATCHWEAVE_SOCKET, or the default."""
    path = os.fspath(given) if given is not None else env.get("BATCHWEAVE_SOCKET", DEFAULT_SOCKET)
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
    """The data-parallel rank and size: the arguments, or the launcher's environment, or 0 of 1."""
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


def global_rank_of(dp_rank: int, env: Mapping[str, str] = os.environ) -> int:
    """The rank in the whole job: the launcher's, or the data-parallel one where nobody says."""
    for rank_name, world_name in _RANK_AND_WORLD:
        if rank_name in env and world_name in env:
            return _number(env, rank_name)
    return dp_rank


def _from_launcher(env: Mapping[str, str]) -> tuple[int, int]:
    for rank_name, world_name in _RANK_AND_WORLD:
        if rank_name in env and world_name in env:
            return _number(env, rank_name), _number(env, world_name)
    return 0, 1


def _number(env: Mapping[str, str], name: str) -> int:
    try:
        return int(env[name])
    except ValueError:
        raise BadHelloError(
            f"environment variable {name} is {env[name]!r}, not a number; "
            "pass dp_rank= and dp_size="
        ) from None
