"""Arrays of any length as tensors of real PyTorch; `make test-frameworks` runs this."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from test_frames import address
from test_ragged import documents, opaque
from test_whole import batch_of

import batchweave
from batchweave import errors
from batchweave._layout import Layout
from batchweave._tensors import model_inputs
from batchweave.batch import Batch, Slice
from batchweave.state import State
from batchweave.torch import nested, padded, ragged, to_device

torch: Any = importlib.import_module("torch")

ROWS = [[1, 0], [2], [], [3, 1]]
LENGTHS = [1, 0, 2, 3, 1]


def sources(arrays: dict[str, Any]) -> list[Any]:
    """A batch, a slice, the item of a dataset, and copies for a device."""
    batch = batch_of(arrays)
    return [batch, batch.slices[0], model_inputs(batch, torch.int64), to_device(batch, "cpu")]


def test_documents_are_a_nested_tensor_over_the_same_memory() -> None:
    arrays = documents(ROWS)
    for number, source in enumerate(sources(arrays)):
        found = nested(source, "action")
        assert found.is_nested
        assert found.layout == torch.jagged
        assert [part.shape[0] for part in found.unbind()] == LENGTHS
        assert found.values().tolist() == arrays["action"].tolist()
        shared = found.values().data_ptr() == address(arrays["action"])
        assert shared == (number < 3), "private after to_device, else the memory of the batch"
    joined = nested(batch_of(arrays, arrays), "action")
    assert [part.shape[0] for part in joined.unbind()] == LENGTHS * 2


def test_documents_are_filled_up_to_the_longest() -> None:
    arrays = documents(ROWS)
    want, lengths = batch_of(arrays).ragged("action").padded(-1)
    for source in sources(arrays):
        dense, found = padded(source, "action", -1)
        assert (dense.numpy() == want).all()
        assert found.tolist() == lengths.tolist() == LENGTHS
    assert padded(batch_of(opaque()), "pixels")[0].shape == (0, 0, 3)


def test_pictures_are_views_of_their_own_shapes() -> None:
    arrays = opaque([(1, 2)], [], [(2, 1), (3, 2)])
    want = list(batch_of(arrays).ragged("pixels", shape="size"))
    for number, source in enumerate(sources(arrays)):
        found = ragged(source, "pixels", shape="size")
        assert [picture.shape for picture in found] == [(1, 2, 3), (2, 1, 3), (3, 2, 3)]
        assert all((one.numpy() == other).all() for one, other in zip(found, want, strict=True))
        assert (found[1].data_ptr() == address(want[1])) == (number < 3)
        assert [len(part) for part in ragged(source, "pixels")] == [2, 0, 8]
    arrays["size"] += 1
    for source in sources(arrays):
        with pytest.raises(errors.BadShapeError, match="sample 0 has 2 items"):
            ragged(source, "pixels", shape="size")


def test_bfloat16_stays_so() -> None:
    bits = np.array([0x3F80, 0x4000, 0xC000], np.uint16)
    arrays = {"reward": bits, "reward.offsets": np.array([0, 1, 3])}
    listed = tuple((name, a.dtype, a.shape, 0) for name, a in arrays.items())
    layout = Layout(1 << 30, listed, frozenset(["reward"]))
    batch = Batch(0, [Slice(0, arrays, layout)], State("", 0))
    dense, _ = padded(batch, "reward", -100)
    assert dense.dtype == torch.bfloat16
    assert dense.tolist() == [[1, -100], [2, -2]]
    assert nested(batch, "reward").values().dtype == torch.bfloat16


def test_items_of_a_dataset_pass_arrays_on_without_copies() -> None:
    arrays = documents(ROWS)
    item = model_inputs(batch_of(arrays), torch.int64)
    for name in ("action", "action.offsets", "segments.offsets"):
        assert item[name].data_ptr() == address(arrays[name]), name
    assert batchweave.torch.packed(arrays)["action"] is arrays["action"]
