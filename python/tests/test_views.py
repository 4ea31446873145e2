"""Micro-batches, updates of several steps, and shares of rows for context parallelism."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import eventually
from fake_daemon import LAYOUT, ROWS, FakeDaemon, Peer, tokens_of

import batchweave
from batchweave import errors
from batchweave.views import context


def rows_only(peer: Peer) -> bool:
    peer.send_welcome()
    peer.send_segment()
    peer.send_layout({**LAYOUT, "arrays": [LAYOUT["arrays"][0]]})  # type: ignore[index]
    peer.running = True
    peer.push()
    return True


@pytest.mark.parametrize("rows", [1, 2, 4, 8, 24])
def test_micro_batches_have_all_rows_in_order(path: Path, rows: int) -> None:
    with FakeDaemon(path, slices=6) as daemon:
        daemon.on_hello = rows_only
        with batchweave.connect(path, credits=2) as reader:
            batch = next(reader)
            want = np.concatenate([tokens_of(0, number) for number in range(6)])
            found = [part["tokens"] for part in batch.micro_batches(rows)]
            assert {len(part) for part in found} == {rows}
            assert (np.concatenate(found) == want).all()
            views = [np.shares_memory(part, batch.slices[0]["tokens"]) for part in found]
            assert views[0] == (rows <= ROWS), "a view where no slice ends in it"


def test_sizes_that_do_not_fit_are_refused_with_those_that_do(path: Path) -> None:
    def uneven(peer: Peer) -> bool:
        peer.send_welcome()
        peer.send_segment()
        arrays: Any = LAYOUT["arrays"]
        peer.send_layout({**LAYOUT, "arrays": [arrays[0], {**arrays[1], "shape": [2]}]})
        peer.send_step(0)
        return True

    with FakeDaemon(path, slices=6) as daemon:
        daemon.on_hello = uneven
        with (
            batchweave.connect(path) as reader,
            pytest.raises(errors.BadMeshError, match="different numbers of rows"),
        ):
            list(next(reader).micro_batches(2))
        daemon.on_hello = rows_only
        with batchweave.connect(path) as reader:
            batch = next(reader)
            for rows in (0, 3, 16, 48):
                with pytest.raises(errors.BadMeshError, match=r"fit: 1, 2, 4, 8, 12, 24 "):
                    list(batch.micro_batches(rows))


def test_updates_take_several_steps_and_end_alike(path: Path) -> None:
    with FakeDaemon(path, end=8) as daemon, batchweave.connect(path, credits=4) as reader:
        steps = [[batch.step for batch in group] for group in reader.updates(3)]
        assert steps == [[0, 1, 2], [3, 4, 5]]
        with pytest.raises(errors.BadHelloError, match="more credits"):
            next(reader.updates(4))
        eventually(lambda: len(daemon.peers[0].released) == 8)


def test_context_shares_are_views_that_make_up_the_row() -> None:
    tokens = np.arange(3 * 25, dtype=np.uint16).reshape(3, 25)
    labels = tokens[:, 1:]
    for size in (1, 2, 3, 4, 6):
        parts = [context(labels, rank, size, "zigzag") for rank in range(size)]
        assert all(np.shares_memory(part, tokens) for part in parts)
        assert {part.shape for part in parts} == {(3, 2, 24 // (2 * size))}
        front = [part[:, 0] for part in parts]
        back = [part[:, 1] for part in reversed(parts)]
        assert (np.concatenate(front + back, axis=1) == labels).all()
        plain = [context(labels, rank, size, "contiguous") for rank in range(size)]
        assert (np.concatenate(plain, axis=1) == labels).all()
        assert all(np.shares_memory(part, tokens) for part in plain)
    assert context(labels, 1, 2, "full") is labels


def test_context_sizes_that_do_not_fit() -> None:
    row = np.zeros((1, 24))
    with pytest.raises(errors.BadMeshError, match=r"fit: 1, 2, 3, 4, 6, 12 "):
        context(row, 0, 5, "zigzag")
    with pytest.raises(errors.BadMeshError, match=r"fit: 1, 2, 3, 4, 6, 8, 12, 24 "):
        context(row, 0, 5, "contiguous")
    for rank, size, way in ((2, 2, "zigzag"), (0, 1, "spiral"), (0, 0, "full")):
        with pytest.raises(errors.BadMeshError, match="ways full, contiguous, zigzag"):
            context(row, rank, size, way)
