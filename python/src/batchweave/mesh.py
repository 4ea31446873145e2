"""A rank's place on the data-parallel axes of any mesh, which determines its slices.

Slices are counted along the flattened data axes alone (replicate x shard, say). Ranks that differ
only in tensor, pipeline or context coordinates read the same slices.

    place = batchweave.mesh.from_device_mesh(mesh)        # torch's DeviceMesh
    place = batchweave.mesh.megatron(tp=4, pp=2, cp=1)    # Megatron's order of ranks
    place = batchweave.mesh.Place.of({"dp": 8, "tp": 4}, data=("dp",))
    reader = batchweave.connect(job="pretrain", mesh=place, attempt=...)
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batchweave._launch import rank_and_world_of_job
from batchweave.errors import BadMeshError

# Usual names of data axes, and of others.
DATA_NAMES = frozenset(
    [
        "dp",
        "ddp",
        "data",
        "data_parallel",
        "batch",
        "replicate",
        "shard",
        "fsdp",
        "hsdp",
        "dp_replicate",
        "dp_shard",
        "replica",
        "zero",
    ]
)
OTHER_NAMES = frozenset(
    [
        "tp",
        "tensor",
        "model",
        "mp",
        "sp",
        "sequence",
        "cp",
        "context",
        "context_parallel",
        "pp",
        "pipeline",
        "pipe",
        "stage",
        "ep",
        "expert",
        "etp",
        "edp",
    ]
)
CONTEXT_NAMES = frozenset(["cp", "context", "context_parallel"])
MEGATRON_ORDER = "tp-cp-ep-dp-pp"


@dataclass(frozen=True)
class Place:
    """One rank's coordinates on a mesh."""

    sizes: dict[str, int]
    """The mesh's dimensions by name, the slowest first: the last one differs between neighbours."""
    coordinates: dict[str, int]
    data: tuple[str, ...]
    """The dimensions along which slices are counted, the slowest first."""
    global_rank: int

    @staticmethod
    def of(
        sizes: Mapping[str, int],
        data: Sequence[str] | None = None,
        *,
        rank: int | None = None,
        world: int | None = None,
    ) -> Place:
        """Returns the place of `rank` (default: the launcher's) in a mesh in row-major order.

        `data` names the data axes; without it the usual names are recognised, and unknown ones are
        an error.
        """
        rank, world = _job(rank, world)
        _check_sizes(sizes, world)
        left, coordinates = rank, {}
        for name in reversed(list(sizes)):
            left, coordinates[name] = divmod(left, sizes[name])
        return Place.at(sizes, coordinates, data, rank)

    @staticmethod
    def at(
        sizes: Mapping[str, int],
        coordinates: Mapping[str, int],
        data: Sequence[str] | None,
        rank: int,
    ) -> Place:
        """Returns the place with these coordinates, for any order of ranks."""
        for name, size in sizes.items():
            if not 0 <= coordinates.get(name, -1) < size:
                raise BadMeshError(
                    f"coordinate {name}={coordinates.get(name)} of rank {rank}: 0 to {size - 1} is "
                    f"allowed in the mesh {_text(sizes)}"
                )
        axes = _data_axes(sizes, data)
        ordered = {name: coordinates[name] for name in sizes}
        return Place(dict(sizes), ordered, axes, rank)

    @property
    def dp_size(self) -> int:
        """The number of data-parallel ranks: of different parts of a step."""
        return math.prod(self.sizes[name] for name in self.data)

    @property
    def dp_rank(self) -> int:
        """The index of this rank's part of a step."""
        found = 0
        for name in self.data:
            found = found * self.sizes[name] + self.coordinates[name]
        return found

    @property
    def cp_size(self) -> int:
        """The number of context-parallel ranks that share a row."""
        return math.prod(self.sizes[name] for name in self._context())

    @property
    def cp_rank(self) -> int:
        """The index of this rank's part of a row: see `batchweave.views.context_parallel`."""
        return sum(self.coordinates[name] for name in self._context())

    def _context(self) -> list[str]:
        found = [n for n in self.sizes if n.lower() in CONTEXT_NAMES and n not in self.data]
        if len(found) > 1:
            raise BadMeshError(
                f"the mesh {_text(self.sizes)} has two dimensions of context parallelism, {found}: "
                "give rank and size to batchweave.views.context_parallel yourself"
            )
        return found

    @property
    def shared(self) -> bool:
        """Whether other ranks have the same place on the data axes."""
        return math.prod(self.sizes.values()) > self.dp_size

    def first(self, *names: str) -> bool:
        """Returns whether this rank is first along the dimensions, by default all but the data's.

        Where one rank reads for its tensor-parallel group and broadcasts, that one is first("tp").
        """
        others = names or tuple(name for name in self.sizes if name not in self.data)
        return all(self.coordinates[name] == 0 for name in others)

    def check(self, slices: int, split_rows: int = 1) -> None:
        """Checks that the ranks divide the slices evenly; an error lists sizes that do."""
        if slices * split_rows % self.dp_size:
            raise BadMeshError(
                f"the mesh {_text(self.sizes)} has {self.dp_size} data-parallel ranks "
                f"({' x '.join(self.data) or 'none'}), which do not divide the stream's {slices} "
                f"slices; sizes that do: {', '.join(map(str, divisors(slices)))}"
            )


def from_device_mesh(mesh: Any, data: Sequence[str] | None = None) -> Place:
    """Returns the place of this process in a torch.distributed DeviceMesh with named dimensions."""
    names = mesh.mesh_dim_names
    if not names:
        raise BadMeshError(
            "the DeviceMesh has no names of dimensions: pass mesh_dim_names= to init_device_mesh, "
            "or use Place.of"
        )
    coordinates = mesh.get_coordinate()
    if coordinates is None:
        raise BadMeshError(
            f"rank {mesh.get_rank()} is not in the DeviceMesh {tuple(names)}: it has no place there"
        )
    sizes = {name: int(size) for name, size in zip(names, mesh.mesh.shape, strict=True)}
    places = dict(zip(names, map(int, coordinates), strict=True))
    return Place.at(sizes, places, data, int(mesh.get_rank()))


def megatron(
    *,
    tp: int = 1,
    pp: int = 1,
    cp: int = 1,
    order: str = MEGATRON_ORDER,
    rank: int | None = None,
    world: int | None = None,
) -> Place:
    """Returns the place of a rank in Megatron's order: tensor fastest, pipeline slowest by default.

    Expert parallelism lies within the data axis there, so it changes nothing for data.
    """
    rank, world = _job(rank, world)
    model = tp * pp * cp
    if min(tp, pp, cp) < 1 or world % model:
        raise BadMeshError(
            f"{world} ranks cannot be split into tp={tp} x pp={pp} x cp={cp} = {model}; "
            f"sizes of a model that can: {', '.join(map(str, divisors(world)))}"
        )
    sizes = {"tp": tp, "cp": cp, "dp": world // model, "pp": pp}
    names = [name for name in order.split("-") if name != "ep"]
    if sorted(names) != sorted(sizes):
        raise BadMeshError(f"order={order!r}: name tp, cp, dp and pp, each once ({MEGATRON_ORDER})")
    slowest_first = {name: sizes[name] for name in reversed(names)}
    return Place.of(slowest_first, ("dp",), rank=rank, world=world)


def reads_in_megatron(place: Place) -> bool:
    """Returns whether Megatron reads data on this rank: the first tensor rank, in the first or last
    stage of the pipeline."""
    stages = place.sizes.get("pp", 1)
    return place.coordinates.get("tp", 0) == 0 and place.coordinates.get("pp", 0) in (0, stages - 1)


def divisors(number: int) -> list[int]:
    """Returns the divisors in ascending order."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def _job(rank: int | None, world: int | None) -> tuple[int, int]:
    if (rank is None) != (world is None):
        raise BadMeshError("give both rank= and world=, or neither (then the launcher's are used)")
    if rank is None or world is None:
        return rank_and_world_of_job(os.environ)
    if not 0 <= rank < world:
        raise BadMeshError(f"rank {rank} of {world}: 0 to {max(world, 1) - 1} is allowed")
    return rank, world


def _check_sizes(sizes: Mapping[str, int], world: int) -> None:
    made = math.prod(sizes.values())
    if not sizes or min(sizes.values()) < 1 or made != world:
        raise BadMeshError(
            f"the mesh {_text(sizes)} has {made} ranks, the job {world}; sizes must multiply to "
            f"{world}, whose divisors are {', '.join(map(str, divisors(world)))}"
        )


def _data_axes(sizes: Mapping[str, int], data: Sequence[str] | None) -> tuple[str, ...]:
    if data is not None:
        wrong = [name for name in data if name not in sizes]
        if wrong or isinstance(data, str) or len(set(data)) != len(data):
            raise BadMeshError(
                f"data={data!r}: give names of the mesh's dimensions {list(sizes)}, each once"
            )
        return tuple(data)
    unknown = [n for n in sizes if n.lower() not in DATA_NAMES | OTHER_NAMES]
    if unknown:
        raise BadMeshError(
            f"the mesh {_text(sizes)} has dimensions of unknown names {unknown}: say which are "
            "data-parallel, data=(...)"
        )
    return tuple(name for name in sizes if name.lower() in DATA_NAMES)


def _text(sizes: Mapping[str, int]) -> str:
    return " x ".join(f"{name}={size}" for name, size in sizes.items()) or "of no dimensions"
