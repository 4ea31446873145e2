"""A rank's whole batch is the same whatever the number of slices that it comes in."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_daemon import LAYOUT, ROWS, FakeDaemon, Peer, tokens_of

import batchweave
from batchweave import errors
from batchweave._joined import joined
from batchweave._layout import Layout
from batchweave.batch import Batch, Slice
from batchweave.state import State


def batch_of(*slices: dict[str, Any]) -> Batch:
    """A batch of arrays that no daemon sent."""
    made = []
    for number, arrays in enumerate(slices):
        listed = tuple((name, a.dtype, a.shape, 0) for name, a in arrays.items())
        made.append(Slice(number, arrays, Layout(1 << 30, listed)))
    return Batch(7, made, State("", 0))


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("count", [1, 2, 6])
def test_a_batch_has_the_rows_of_all_slices(path: Path, count: int, copy: bool) -> None:
    with FakeDaemon(path, slices=count) as daemon:
        with batchweave.connect(path, copy=copy) as reader:
            for step in range(3):
                batch = next(reader)
                want = np.concatenate([tokens_of(step, number) for number in range(count)])
                assert batch.inputs.shape == batch.labels.shape == (count * ROWS, 15)
                assert (batch.inputs == want[:, :-1]).all()
                assert (batch.labels == want[:, 1:]).all()
                assert (batch.loss_mask == 1).all()
                assert batch.loss_mask.shape == batch.labels.shape
                whole = dict(batch)
                assert list(whole) == ["tokens", "scores", "segments"]
                assert whole["scores"].shape == (count * ROWS,)
                assert batch.is_bfloat16("scores")
                assert "tokens" in batch
                assert "rewards" not in batch
                # A restart with another number of ranks never makes arrays writable.
                assert [a.flags.writeable for a in whole.values()] == [copy] * 3
                shared = np.shares_memory(batch.inputs, batch.slices[0]["tokens"])
                assert shared == (count == 1), "a view where there is nothing to join"
                assert np.shares_memory(batch.inputs, batch.labels), "joined once"
                with pytest.raises(KeyError, match="this slice has"):
                    batch["rewards"]
                del batch, whole
        assert daemon.peers


def test_a_batch_and_a_slice_show_what_they_hold(path: Path) -> None:
    shapes = "tokens: uint16[4, 16], scores: uint16[4], segments: uint32[4, 4]"
    for count, text in ((1, "1 slice"), (2, "2 slices")):
        with FakeDaemon(path, slices=count), batchweave.connect(path) as reader:
            batch = next(reader)
            assert repr(batch) == f"<Batch step 0, {text} of {shapes}>"
            assert repr(batch.slices[0]) == f"<Slice 0 {shapes}>"
            del batch


def test_readers_and_modules_show_what_matters(path: Path) -> None:
    with FakeDaemon(path, slices=2):
        with batchweave.connect(path, job="j", dp_rank=1, dp_size=3, attempt="1f" * 16) as reader:
            next(reader)
            text = "rank 1 of 3, at step 1, 2 of 6 slices of 4 rows of 15 tokens"
            assert repr(reader) == f"<Reader of job 'j', {text}, {path}>"
        assert "at step 1, closed, 2 of 6 slices" in repr(reader)
        with batchweave.connect(path) as reader:
            assert repr(reader).startswith("<Reader without a job, rank 0 of 1, at step 0, ")
    public = [name for name in dir(batchweave) if not name.startswith("_")]
    assert set(public) == {
        *(
            "Batch",
            "BatchWeaveError",
            "MicroBatch",
            "Ragged",
            "Reader",
            "Slice",
            "Stage",
            "Stream",
            "connect",
            "errors",
        ),
        *("inbox", "jax", "mesh", "open", "ray", "torch", "views"),
    }
    assert all(hasattr(batchweave, name) for name in public)
    # `from batchweave import *` hides nothing that Python or a framework has.
    assert not {"jax", "open", "ray", "torch"} & set(batchweave.__all__)
    assert {"Dataset", "attempt", "packed", "to_device"} <= set(dir(batchweave.torch))


def test_a_wrong_argument_has_the_nearest_right_one(path: Path) -> None:
    wrong: Any = {"sockt": str(path)}
    with pytest.raises(TypeError, match=r"connect\(\) has no argument sockt=: .* socket=\?"):
        batchweave.connect(**wrong)
    assert "dp_rank" in inspect.signature(batchweave.connect).parameters


def test_samples_keep_their_borders_over_slices() -> None:
    pictures = [np.arange(5, dtype=np.uint8), np.arange(5, 7, dtype=np.uint8)]
    offsets = [np.array([0, 2, 5], np.uint64), np.array([0, 0, 2], np.uint64)]
    batch = batch_of(
        *({"image": p, "image.offsets": o} for p, o in zip(pictures, offsets, strict=True))
    )
    assert batch["image"].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert batch["image.offsets"].tolist() == [0, 2, 5, 5, 7]
    assert batch["image.offsets"].dtype == np.uint64


def test_scalars_have_an_entry_per_slice() -> None:
    one, two = ({"weight": np.array(w, np.float32)} for w in (0.5, 2))
    assert batch_of(one)["weight"].tolist() == [0.5]
    assert batch_of(one, two)["weight"].tolist() == [0.5, 2]


def test_arrays_that_cannot_be_joined_are_an_error_with_their_shapes() -> None:
    batch = batch_of({"x": np.zeros((2, 3))}, {"x": np.zeros((2, 4))})
    with pytest.raises(errors.BadMeshError, match=r"step 7: array 'x'.*\[2, 4\].*batch\.slices"):
        batch["x"]
    with pytest.raises(errors.BadMeshError, match=r"uint8\[1\].*int8\[1\]"):
        joined(0, "x", [np.zeros(1, np.uint8), np.zeros(1, np.int8)])


def test_micro_batches_of_any_divisor_span_slices_alike(path: Path) -> None:
    def rows_only(peer: Peer) -> bool:
        peer.send_welcome()
        peer.send_segment()
        arrays: Any = LAYOUT["arrays"]
        peer.send_layout({**LAYOUT, "arrays": arrays[:1]})
        peer.send_step(0)
        return True

    with FakeDaemon(path, slices=3) as daemon:
        daemon.on_hello = rows_only
        with batchweave.connect(path) as reader:
            batch = next(reader)
            for rows in (1, 2, 3, 4, 6, 12):
                parts = [part["tokens"] for part in batch.micro_batches(rows)]
                assert [len(part) for part in parts] == [rows] * (12 // rows)
                assert (np.concatenate(parts) == batch["tokens"]).all()
            del batch
