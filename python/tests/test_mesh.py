"""Places on meshes: any names and orders, and errors that list valid sizes."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_daemon import FakeDaemon

import batchweave
from batchweave import _launch, errors
from batchweave.mesh import Place, divisors, from_device_mesh, megatron, reads_in_megatron


def device_mesh(shape: tuple[int, ...], names: tuple[str, ...] | None, rank: int) -> Any:
    """The used parts of torch's DeviceMesh, whose ranks are in row-major order."""
    mesh = np.arange(int(np.prod(shape))).reshape(shape)
    at = [int(i) for i in np.argwhere(mesh == rank).ravel()]
    return SimpleNamespace(
        mesh=mesh,
        mesh_dim_names=names,
        get_coordinate=lambda: at or None,
        get_rank=lambda: rank,
    )


def test_every_mesh_shares_the_slices_out_once() -> None:
    names = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
    for world in (1, 2, 6, 8, 12, 24):
        shapes = [
            shape
            for shape in itertools.product(divisors(world), repeat=5)
            if np.prod(shape) == world
        ]
        for shape in shapes:
            sizes = dict(zip(names, shape, strict=True))
            places = [Place.of(sizes, rank=rank, world=world) for rank in range(world)]
            # The owner by torch's own rule: the rank's position in the reshaped range.
            grid = np.arange(world).reshape(shape)
            for (_, replicate, shard, _, _), rank in np.ndenumerate(grid):
                assert places[rank].dp_rank == replicate * shape[2] + shard
            readers = [place.dp_rank for place in places if place.first()]
            assert sorted(readers) == list(range(places[0].dp_size))


def test_a_device_mesh_says_where_its_rank_is() -> None:
    for rank in range(12):
        mesh = device_mesh((2, 3, 2), ("dp_replicate", "dp_shard", "tp"), rank)
        place = from_device_mesh(mesh)
        assert place == Place.of({"dp_replicate": 2, "dp_shard": 3, "tp": 2}, rank=rank, world=12)
        assert (place.dp_rank, place.dp_size) == (rank // 2, 6)
    own = device_mesh((2, 3), ("outer", "inner"), 4)
    with pytest.raises(errors.BadMeshError, match=r"unknown names \['outer', 'inner'\]"):
        from_device_mesh(own)
    assert from_device_mesh(own, data=("inner",)).dp_rank == 1
    with pytest.raises(errors.BadMeshError, match="mesh_dim_names="):
        from_device_mesh(device_mesh((2, 3), None, 0))
    with pytest.raises(errors.BadMeshError, match="rank 9 is not in the DeviceMesh"):
        from_device_mesh(device_mesh((2, 3), ("dp", "tp"), 9))


def test_a_place_says_which_part_of_a_row_is_its_ranks() -> None:
    places = [megatron(tp=2, cp=3, rank=rank, world=12) for rank in range(12)]
    assert [place.cp_rank for place in places] == [0, 0, 1, 1, 2, 2] * 2
    assert {place.cp_size for place in places} == {3}
    assert all(place.shared for place in places), "one memory for all parts of a row"
    mesh = from_device_mesh(device_mesh((2, 4), ("dp", "context"), 6))
    assert (mesh.cp_rank, mesh.cp_size, mesh.dp_rank) == (2, 4, 1)
    without = Place.of({"dp": 4}, rank=3, world=4)
    assert (without.cp_rank, without.cp_size) == (0, 1)
    # Where it counts as data, its ranks read other rows, and nothing is cut.
    as_data = Place.of({"dp": 2, "cp": 2}, data=("dp", "cp"), rank=3, world=4)
    assert (as_data.cp_rank, as_data.cp_size, as_data.dp_rank) == (0, 1, 3)
    with pytest.raises(errors.BadMeshError, match=r"two dimensions.*\['cp', 'context'\]"):
        Place.of({"cp": 2, "context": 2}, rank=0, world=4).cp_rank  # noqa: B018


def test_megatrons_order_is_tensor_fastest_and_pipeline_slowest() -> None:
    # Megatron-LM's own example: 16 ranks, tp 2, pp 4 have the data groups [0, 2], [1, 3], [4, 6].
    groups: dict[tuple[int, int], list[int]] = {}
    for rank in range(16):
        place = megatron(tp=2, pp=4, rank=rank, world=16)
        groups.setdefault((place.coordinates["pp"], place.coordinates["tp"]), []).append(rank)
        assert reads_in_megatron(place) == (rank in {0, 2, 12, 14})
    assert sorted(groups.values())[:3] == [[0, 2], [1, 3], [4, 6]]
    assert [megatron(cp=2, rank=r, world=4).dp_rank for r in range(4)] == [0, 0, 1, 1]
    other = [megatron(tp=2, pp=2, order="tp-pp-dp-cp", rank=r, world=8).dp_rank for r in range(8)]
    assert other == [0, 0, 0, 0, 1, 1, 1, 1]
    with pytest.raises(errors.BadMeshError, match=r"can: 1, 2, 3, 4, 6, 12"):
        megatron(tp=5, rank=0, world=12)
    with pytest.raises(errors.BadMeshError, match="each once"):
        megatron(order="tp-dp", rank=0, world=12)


def test_errors_list_what_would_do() -> None:
    with pytest.raises(
        errors.BadMeshError, match=r"dp=3 x tp=2 has 6 ranks, the job 8.* 1, 2, 4, 8"
    ):
        Place.of({"dp": 3, "tp": 2}, rank=0, world=8)
    with pytest.raises(errors.BadMeshError, match="data='dp'"):
        Place.of({"dp": 4, "tp": 2}, data="dp", rank=0, world=8)
    with pytest.raises(errors.BadMeshError, match="coordinate tp=2 of rank 0: 0 to 1"):
        Place.at({"dp": 4, "tp": 2}, {"dp": 0, "tp": 2}, None, 0)
    with pytest.raises(errors.BadMeshError, match="rank 8 of 8: 0 to 7"):
        Place.of({"dp": 8}, rank=8, world=8)
    place = Place.of({"dp": 3}, rank=0, world=3)
    with pytest.raises(errors.BadMeshError, match=r"divide the stream's 16 .* 1, 2, 4, 8, 16"):
        place.check(16)
    place.check(18)


@pytest.mark.parametrize(
    ("rank", "world"),
    [
        ("RANK", "WORLD_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
        ("LWS_WORKER_INDEX", "LWS_GROUP_SIZE"),
        ("JOB_COMPLETION_INDEX", "BATCHWEAVE_WORLD_SIZE"),
    ],
)
def test_launchers_say_rank_and_world(
    monkeypatch: pytest.MonkeyPatch, rank: str, world: str
) -> None:
    monkeypatch.setenv(rank, "5")
    monkeypatch.setenv(world, "8")
    place = Place.of({"dp": 4, "tp": 2})
    assert (place.global_rank, place.coordinates) == (5, {"dp": 2, "tp": 1})


def test_an_indexed_job_must_say_its_size() -> None:
    with pytest.raises(errors.BadHelloError, match="BATCHWEAVE_WORLD_SIZE"):
        _launch.rank_and_world(None, None, {"JOB_COMPLETION_INDEX": "0"})


def test_a_place_is_what_connect_takes(daemon: FakeDaemon, path: Path) -> None:
    place = megatron(tp=2, pp=2, rank=6, world=8)
    with batchweave.connect(path, job="j", mesh=place, attempt="1f" * 16):
        hello = daemon.peers[0].hello
    assert (hello["dp_rank"], hello["dp_size"], hello["global_rank"]) == (1, 2, 6)
    with pytest.raises(errors.BadHelloError, match="not both"):
        batchweave.connect(path, mesh=place, dp_rank=0, dp_size=1)
