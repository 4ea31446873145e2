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
from batchweave.torch import packed
from batchweave.views import context, context_parallel


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


def test_sizes_that_do_not_fit_are_refused_with_fitting_ones_named(path: Path) -> None:
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
            for rows in (0, 5, 16, 48):
                with pytest.raises(errors.BadMeshError, match=r"fit: 1, 2, 3, 4, 6, 8, 12, 24 "):
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


SEQ_LEN = 24
SHARES = [(size, way) for size in (1, 2, 3, 4, 6) for way in ("contiguous", "zigzag")]


def packed_slice() -> dict[str, Any]:
    """All fields that a producer makes, in one piece of memory as a frame is: two rows."""
    fields = [("tokens", "<u2"), ("segment_ids", "<i4"), ("positions", "<i4"), ("loss_mask", "u1")]
    fields += [("document_ids", "<i8"), ("cu_seqlens", "<i4")]
    shapes = [(name, kind, (2, SEQ_LEN + 1)) for name, kind in fields]
    frame: Any = np.zeros((), [*shapes, ("num_segments", "<i4", (2,)), ("weights", "<f4", (2,))])
    for number, (name, _) in enumerate(fields[:5]):
        frame[name] = np.arange(2 * (SEQ_LEN + 1)).reshape(2, -1) + 50 * number
    frame["cu_seqlens"][:] = [[0, 7, *[24] * 23], [0, 5, 19, *[24] * 22]]
    frame["num_segments"][:] = [2, 3]
    frame["weights"][:] = [0.5, 2]
    return {name: frame[name] for name in frame.dtype.names}


def joined(parts: list[Any], way: str) -> Any:
    """Rebuilds the rows from the parts of all ranks."""
    if way == "zigzag":
        parts = [part[:, 0] for part in parts] + [part[:, 1] for part in reversed(parts)]
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize(("size", "way"), SHARES)
def test_the_parts_of_all_ranks_are_the_rows_of_every_field(size: int, way: str) -> None:
    arrays = packed_slice()
    parts = [context_parallel(arrays, rank, size, way) for rank in range(size)]
    tokens = arrays["tokens"]
    want = {
        "input_ids": tokens[:, :-1],
        "labels": tokens[:, 1:],
        "segment_ids": arrays["segment_ids"][:, :-1],
        "position_ids": arrays["positions"][:, :-1],
        "document_ids": arrays["document_ids"][:, :-1],
        "loss_mask": arrays["loss_mask"][:, 1:],
    }
    assert set(parts[0]) == {*want, "cu_seqlens", "weights"}
    for name, rows in want.items():
        assert (joined([part[name] for part in parts], way) == rows).all(), name
        assert all(np.shares_memory(part[name], tokens.base) for part in parts), name
    for part in parts:
        # Each label follows its input in the row, even at the end of a part.
        assert (part["labels"] == part["input_ids"] + 1).all()
        assert part["cu_seqlens"].tolist() == [[0, 7, 24, 24], [0, 5, 19, 24]]
        assert part["weights"].tolist() == [0.5, 2]
    again = context_parallel(packed(arrays, "shifted"), size - 1, size, way)
    assert all((again[name] == parts[-1][name]).all() for name in parts[-1])
    one_row = {name: array[1:] for name, array in arrays.items()}
    assert (context_parallel(one_row, 0, size, way)["labels"] == parts[0]["labels"][1:]).all()


def test_a_slice_of_a_daemon_is_cut_in_place(daemon: FakeDaemon, path: Path) -> None:
    with batchweave.connect(path, credits=2) as reader:
        batch = next(reader)
        tokens = {"tokens": batch["tokens"]}
        parts = [context_parallel(tokens, rank, 3, "contiguous") for rank in range(3)]
        assert all(np.shares_memory(part["labels"], batch["tokens"]) for part in parts)
        whole = np.concatenate([part["labels"] for part in parts], axis=1)
        assert (whole == tokens_of(0, 0)[:, 1:]).all()
        assert daemon.peers


def test_what_has_no_parts_is_an_error_that_says_so() -> None:
    arrays = packed_slice()
    with pytest.raises(errors.BadMeshError, match=r"rows of 24 into 10 .*: 1, 2, 3, 4, 6, 12 "):
        context_parallel(arrays, 0, 5)
    with pytest.raises(errors.BadMeshError, match="into 7 equal parts"):
        context_parallel(arrays, 0, 7, "contiguous")
    for way in ("full", "contiguous"):
        with pytest.raises(errors.BadMeshError, match="ranks are 0 to 1"):
            context_parallel(arrays, 2, 2, way)
    for width in (SEQ_LEN, SEQ_LEN + 1):
        with pytest.raises(errors.BadMeshError, match=r"'rewards' is as wide as a row"):
            context_parallel({**arrays, "rewards": np.zeros((2, width))}, 0, 2)
    with pytest.raises(errors.BadMeshError, match="segment_ids has rows of 23"):
        context_parallel({**arrays, "segment_ids": arrays["segment_ids"][:, 2:]}, 0, 2)
    opaque = {"image": np.zeros(99, np.uint8), "image.offsets": np.array([0, 99])}
    with pytest.raises(errors.BadMeshError, match=r"neither tokens nor input_ids.*views\.context"):
        context_parallel(opaque, 0, 2)
    assert context_parallel(opaque, 1, 2, "full") == opaque
