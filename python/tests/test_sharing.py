"""Ranks that read one coordinate together, and ranks that share a slice's rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fake_daemon import ROWS, FakeDaemon, tokens_of

import batchweave
from batchweave.errors import BadMeshError
from batchweave.mesh import Place


def test_a_mesh_says_whether_its_coordinate_is_shared(daemon: FakeDaemon, path: Path) -> None:
    sizes = {"dp": 2, "tp": 2}
    for rank in range(4):
        place = Place.of(sizes, rank=rank, world=4)
        assert place.shared
        with batchweave.connect(path, mesh=place):
            hello = daemon.peers[-1].hello
            assert (hello["dp_rank"], hello["dp_size"]) == (rank // 2, 2)
            assert (hello["shared"], hello["global_rank"]) == (True, rank)
    alone = Place.of({"dp": 4}, rank=3, world=4)
    assert not alone.shared
    with batchweave.connect(path, mesh=alone):
        assert "shared" not in daemon.peers[-1].hello
    with batchweave.connect(path, mesh=alone, shared=True):
        assert daemon.peers[-1].hello["shared"] is True


@pytest.mark.parametrize("copy", [False, True])
def test_ranks_that_split_rows_have_each_row_once(path: Path, copy: bool) -> None:
    for parts in (1, 2, 4):
        with FakeDaemon(path, end=5, slices=2) as daemon:
            found = {}
            for rank in range(2 * parts):
                with batchweave.connect(
                    path, dp_rank=rank, dp_size=2 * parts, split_rows=parts, copy=copy
                ) as reader:
                    for batch in reader:
                        for piece in batch.slices:
                            assert {len(array) for array in piece.values()} == {ROWS // parts}
                            found[batch.step, piece.index, rank % parts] = piece["tokens"].copy()
                hello = daemon.peers[-1].hello
                assert (hello["dp_rank"], hello["dp_size"]) == (rank // parts, 2)
                assert hello.get("shared", False) == (parts > 1)
        for step in range(5):
            for index in range(4):
                rows = np.concatenate([found[step, index, part] for part in range(parts)])
                assert (rows == tokens_of(step, index)).all()


def test_rows_that_can_not_be_split_are_an_error_with_the_shapes(
    daemon: FakeDaemon, path: Path
) -> None:
    with (
        batchweave.connect(path, dp_rank=0, dp_size=3, split_rows=3) as reader,
        pytest.raises(BadMeshError, match=r"3 parts of whole rows.*'tokens': 4"),
    ):
        next(reader)
    with pytest.raises(BadMeshError, match="must divide dp_size, 3"):
        batchweave.connect(path, dp_rank=0, dp_size=3, split_rows=2)
    assert len(daemon.peers) == 1


def test_split_views_keep_the_memory(path: Path) -> None:
    with (
        FakeDaemon(path) as daemon,
        batchweave.connect(path, dp_rank=1, dp_size=2, split_rows=2) as reader,
    ):
        batch = next(reader)
        view = batch.slices[0]["tokens"]
        del batch
        for _ in range(20):
            next(reader)
        assert (view == tokens_of(0, 0)[ROWS // 2 :]).all()
        assert daemon.peers[0].held
