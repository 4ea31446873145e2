"""Tensors and datasets with real PyTorch; `make test-frameworks` runs this, see conftest."""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import struct
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import eventually
from fake_daemon import LAYOUT, FakeDaemon, Peer, tokens_of
from test_frames import address, read_only_mappings

import batchweave
from batchweave import errors
from batchweave.mesh import Place
from batchweave.torch import packed, tensors, to_device
from batchweave.views import context_parallel

torch: Any = importlib.import_module("torch")
data: Any = importlib.import_module("torch.utils.data")


def test_tensors_share_the_arena_and_keep_the_frame(daemon: FakeDaemon, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with batchweave.connect(path, credits=2) as reader:
            batch = next(reader)
            found = tensors(batch.slices[0])
            assert found["tokens"].data_ptr() == address(batch["tokens"])
            assert found["tokens"].dtype == torch.uint16
            assert found["scores"].dtype == torch.bfloat16
            view = found["tokens"][1:, 3:]
            del batch, found
            gc.collect()
            assert next(reader).step == 1
            peer = daemon.peers[0]
            assert 1 not in peer.released
            assert (view.numpy() == tokens_of(0, 0)[1:, 3:]).all()
            del view
            eventually(lambda: 1 in peer.released)


def test_autograd_and_dlpack_keep_the_frame(daemon: FakeDaemon, path: Path) -> None:
    with batchweave.connect(path, credits=2, timeout=20) as reader:
        weight = torch.ones(4, 4, dtype=torch.float32, requires_grad=True)
        segments = tensors(next(reader).slices[0])["segments"].to(torch.float32)
        product = (weight * segments).sum()
        for _ in range(4):
            next(reader)
        product.backward()
        assert weight.grad is not None
        kept = torch.from_dlpack(tensors(next(reader).slices[0])["tokens"])
        next(reader)
        assert (kept.numpy() == tokens_of(5, 0)).all()
        assert daemon.peers


def packs(peer: Peer) -> bool:
    """A packed slice, all arrays as wide as `tokens`, in the memory of one frame."""
    arrays: Any = [
        {"name": "tokens", "dtype": "U16", "shape": [2, 6], "offset": 0},
        {"name": "position_ids", "dtype": "U16", "shape": [2, 6], "offset": 24},
        {"name": "segment_ids", "dtype": "U16", "shape": [2, 5], "offset": 48},
        {"name": "loss_mask", "dtype": "U8", "shape": [2, 6], "offset": 68},
        {"name": "cu_seqlens", "dtype": "I32", "shape": [2, 6], "offset": 80},
        {"name": "num_segments", "dtype": "I32", "shape": [2], "offset": 128},
    ]
    peer.send_welcome()
    peer.send_segment()
    peer.send_layout({**LAYOUT, "arrays": arrays})
    peer.send_step(0)
    bounds = np.array([[0, 3, 5, 5, 5, 5], [0, 5, 5, 5, 5, 5]], np.int32)
    peer.daemon.segment.map[80:128] = bounds.tobytes()
    peer.daemon.segment.map[128:136] = np.array([2, 1], np.int32).tobytes()
    peer.send(68, struct.pack("<Q", 1))
    return True


def test_packed_slices_give_what_models_take(path: Path) -> None:
    with FakeDaemon(path) as daemon:
        daemon.on_hello = packs
        with batchweave.connect(path) as reader:
            piece = next(reader).slices[0]
            raw = tensors(piece)
            found = packed(tensors(piece, torch.int64), labels="shifted")
            assert set(found) == {
                "input_ids",
                "labels",
                "position_ids",
                "segment_ids",
                "loss_mask",
                "cu_seqlens",
            }
            assert {name: tuple(value.shape) for name, value in found.items()} == {
                **dict.fromkeys(found, (2, 5)),
                "cu_seqlens": (2, 3),
            }
            assert found["cu_seqlens"].tolist() == [[0, 3, 5], [0, 5, 5]]
            assert torch.equal(found["input_ids"][:, 1:], found["labels"][:, :-1])
            # The mask is the labels', positions are the inputs'.
            assert torch.equal(found["loss_mask"], raw["loss_mask"][:, 1:])
            assert found["loss_mask"].dtype == torch.uint8, "bytes stay bytes"
            assert found["position_ids"][0].tolist() == raw["position_ids"][0].tolist()[:5]
            del raw, piece


@pytest.mark.parametrize("dtype", ["int64", None])
@pytest.mark.parametrize("way", ["contiguous", "zigzag"])
def test_a_dataset_gives_a_ranks_part_of_each_row(path: Path, way: str, dtype: Any) -> None:
    def even(peer: Peer) -> bool:
        """Rows of twelve tokens and one, with positions by the producer's name."""
        arrays: Any = [
            {"name": "tokens", "dtype": "U16", "shape": [2, 13], "offset": 0},
            {"name": "positions", "dtype": "I32", "shape": [2, 13], "offset": 64},
            {"name": "scores", "dtype": "BF16", "shape": [2], "offset": 192},
        ]
        peer.send_welcome(seq_len=12)
        peer.send_segment()
        peer.send_layout({**LAYOUT, "arrays": arrays})
        peer.send_step(0)
        return True

    with FakeDaemon(path) as daemon:
        daemon.on_hello = even
        for rank in range(2):
            place = Place.of({"cp": 2}, rank=rank, world=2)
            with batchweave.torch.Dataset(path, mesh=place, cp=way, dtype=dtype) as dataset:
                item = next(iter(dataset))
                assert dataset.last is not None
                piece = dataset.last.slices[0]
                want = context_parallel(piece, rank, 2, way)
                shape = (2, 6) if way == "contiguous" else (2, 2, 3)
                for name in ("input_ids", "labels", "position_ids"):
                    assert tuple(item[name].shape) == shape
                    assert (item[name].numpy() == want[name]).all()
                shared = item["labels"].data_ptr() == address(want["labels"])
                assert shared == (dtype is None)
                assert item["scores"].dtype == torch.bfloat16
                del item, piece, want
        for size, text in ((5, "cannot cut rows of 12"), (1, None)):
            place = Place.of({"cp": size}, rank=0, world=size)
            dataset = batchweave.torch.Dataset(path, mesh=place, cp=way)
            if text is None:
                assert dataset.reader.info.seq_len == 12
            else:
                with pytest.raises(errors.BadMeshError, match=text):
                    next(iter(dataset))
            dataset.close()
        with pytest.raises(errors.BadMeshError, match=r'labels="unshifted" with cp=.*shifted'):
            batchweave.torch.Dataset(path, mesh=place, cp=way, labels="unshifted")
    with pytest.raises(errors.BadMeshError, match="needs mesh="):
        batchweave.torch.Dataset(path, cp=way)
    with pytest.raises(errors.BadMeshError, match="way 'spiral'"):
        batchweave.torch.Dataset(path, mesh=place, cp="spiral")


def test_a_dataset_under_a_loader_gives_every_step_once(path: Path) -> None:
    with FakeDaemon(path, end=30, slices=2) as fake:
        dataset = batchweave.torch.Dataset(path, job="j", credits=2, timeout=20)
        loader = data.DataLoader(dataset, batch_size=None)
        with dataset:
            for step, item in enumerate(loader):
                assert item["input_ids"].dtype == item["labels"].dtype == torch.int64
                want = np.concatenate([tokens_of(step, number) for number in range(2)])
                assert (item["input_ids"].numpy() == want).all()
                assert (item["labels"].numpy() == want).all()
                if step == 11:
                    state = dataset.state_dict()
                    assert dataset.last is not None
                    assert dataset.last.state_dict() == state
                    dataset.checkpoint(state)
            assert step == 29
        assert [mark for mark, _ in fake.peers[0].checkpoints] == [12]

        again = batchweave.torch.Dataset(path, job="j", micro_batches=True, dtype=None)
        again.load_state_dict(state)
        assert again.state_dict() == state
        with again:
            assert len([len(micro) == 2 for micro in again]) == 18
    assert fake.peers[1].hello["next_step"] == 12


def test_a_dataset_ends_at_its_limit_and_knows_its_length(daemon: FakeDaemon, path: Path) -> None:
    with batchweave.torch.Dataset(path, limit=5) as dataset:
        assert len(dataset) == 5
        loader = data.DataLoader(dataset, batch_size=None)
        # Not a list: `scores` are shared with the daemon, and kept items hold their frames.
        assert sum(1 for _ in loader) == 5
        assert len(dataset) == len(loader) == 5
        # A second evaluation evaluates the same steps; a moved one others.
        for first in (0, 7):
            if first:
                dataset.seek(first)
            assert [dataset.last and dataset.last.step for _ in loader] == [
                *range(first, first + 5)
            ]
        next(iter(dataset))
        next(iter(dataset))
        assert dataset.last
        assert dataset.last.step == 8, "a pass that was left goes on"
    with batchweave.torch.Dataset(path, job="j", limit=2) as dataset:
        assert [sum(1 for _ in dataset) for _ in range(2)] == [2, 0], "a job repeats nothing"
    assert daemon.peers


@pytest.mark.parametrize("slices", [1, 2])
@pytest.mark.parametrize("labels", ["unshifted", "shifted"])
def test_items_have_one_form_on_any_number_of_ranks(path: Path, slices: int, labels: str) -> None:
    with FakeDaemon(path, end=2, slices=slices):
        with batchweave.torch.Dataset(path, labels=labels) as dataset:
            for step, item in enumerate(dataset):
                rows = np.concatenate([tokens_of(step, number) for number in range(slices)])
                whole = labels == "unshifted"
                wanted = (rows, rows) if whole else (rows[:, :-1], rows[:, 1:])
                for name, want in zip(("input_ids", "labels"), wanted, strict=True):
                    assert (item[name].numpy() == want).all()
                assert sorted(item) == ["input_ids", "labels", "scores", "segments"]
                assert item["scores"].dtype == torch.bfloat16
                assert item["segments"].dtype == torch.int64
                del item
        with batchweave.torch.Dataset(path, labels=labels, micro_batches=True) as dataset:
            first = next(iter(dataset))
            assert [len(part["labels"]) for part in first] == [4] * slices
            del first


def test_a_wrong_argument_fails_at_construction_with_the_nearest_name(path: Path) -> None:
    mistyped: Any = {"sart": 5}
    unknown: Any = {"colour": 5}
    with pytest.raises(TypeError, match=r"no argument sart=: did you mean start=\?"):
        batchweave.torch.Dataset(path, **mistyped)
    with pytest.raises(TypeError, match=r"no argument colour=: there are socket, job, .*labels"):
        batchweave.torch.Dataset(path, **unknown)
    with pytest.raises(errors.BadHelloError, match=r"labels='next'"):
        batchweave.torch.Dataset(path, labels="next")

    class Own(batchweave.torch.Dataset):
        def __init__(self, path: Path, **more: Any) -> None:
            super().__init__(path, limit=more["steps"])

    assert repr(Own(path, steps=3)) == "<Dataset labels='unshifted', not connected>"


@pytest.mark.filterwarnings("ignore")
def test_workers_are_refused_with_the_remedy(daemon: FakeDaemon, path: Path) -> None:
    for context in ("fork", "spawn"):
        dataset = batchweave.torch.Dataset(path, limit=5)
        loader = data.DataLoader(
            dataset, batch_size=None, num_workers=1, multiprocessing_context=context
        )
        with pytest.raises(errors.ForkedError, match="num_workers=0"):
            next(iter(loader))
    assert not daemon.peers


def test_a_dataset_is_pickled_with_its_position(path: Path) -> None:
    with FakeDaemon(path, end=4):
        with batchweave.torch.Dataset(path, timeout=20) as dataset:
            next(iter(dataset))
            text = pickle.dumps(dataset)
        with pickle.loads(text) as again:
            assert [again.last and again.last.step for _ in again] == [1, 2, 3]


def test_writes_are_impossible_where_copies_are_made(daemon: FakeDaemon, path: Path) -> None:
    gc.collect()
    with batchweave.connect(path, copy=True) as reader:
        found = tensors(next(reader).slices[0])
        found["scores"][0] = 1
        assert daemon.peers
        assert read_only_mappings()


def opaque(peer: Peer) -> bool:
    """Samples: pictures as bytes, whole numbers and their borders."""
    arrays: Any = [
        {"name": "picture", "dtype": "U8", "shape": [6], "offset": 0},
        {"name": "picture.offsets", "dtype": "U64", "shape": [3], "offset": 8},
        {"name": "score", "dtype": "I8", "shape": [2], "offset": 32},
        {"name": "sure", "dtype": "BOOL", "shape": [2], "offset": 40},
    ]
    peer.send_welcome()
    peer.send_segment()
    peer.send_layout({**LAYOUT, "arrays": arrays})
    peer.daemon.segment.map[8:32] = np.array([0, 2, 6], np.uint64).tobytes()
    peer.send_step(0)
    return True


def test_bytes_stay_bytes_and_other_numbers_become_wide(path: Path) -> None:
    with FakeDaemon(path) as daemon:
        daemon.on_hello = opaque
        kinds = {
            "picture": torch.uint8,
            "picture.offsets": torch.int64,
            "score": torch.int64,
            "sure": torch.bool,
        }
        with batchweave.torch.Dataset(path) as dataset:
            item = next(iter(dataset))
            assert {name: value.dtype for name, value in item.items()} == kinds
            assert dataset.last
            piece = dataset.last.slices[0]
            assert {n: v.dtype for n, v in tensors(piece, torch.int64).items()} == kinds
            del item, piece


def test_to_device_is_private_memory_without_a_device(path: Path) -> None:
    with FakeDaemon(path, slices=2) as daemon, batchweave.connect(path, credits=2) as reader:
        kept = []
        default: Any = {"device": "cpu"} if torch.cuda.is_available() else {}
        for step, device in enumerate((default, {"device": "cpu"}, {"stream": "cpu"})):
            batch = next(reader)
            given = to_device(batch, labels="shifted", **device)
            kept.append(given)
            want = np.concatenate([tokens_of(step, number) for number in range(2)])
            assert (given["labels"].numpy() == want[:, 1:]).all()
            assert given["input_ids"].dtype == torch.int64
            assert given["scores"].dtype == torch.bfloat16
            piece = to_device(batch.slices[1], **device)
            assert (piece["input_ids"].numpy() == tokens_of(step, 1)).all()
            with pytest.raises(errors.BadHelloError, match="labels='both'"):
                to_device(batch, labels="both")
            # They hold no frame, and may be written to.
            del batch
            given["scores"] += 1
            piece["scores"] += 1
        eventually(lambda: len(daemon.peers[0].released) == 6)
        assert len(kept) == 3


@pytest.mark.parametrize("flags", [[], ["-W", "error"]])
@pytest.mark.parametrize("dtype", ['"int64"', "None"])
def test_an_unclosed_dataset_ends_in_silence(path: Path, dtype: str, flags: list[str]) -> None:
    program = f"""
import torch
import batchweave
dataset = batchweave.torch.Dataset(dtype={dtype})
items = iter(dataset)
torch.kept = next(items)
for item in items:
    break
"""
    with FakeDaemon(path):
        found = subprocess.run(
            [sys.executable, *flags, "-W", "ignore::DeprecationWarning", "-c", program],
            env={**os.environ, "BATCHWEAVE_SOCKET": str(path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize("job", [None, "j"])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"batch_size": 1},
        {"batch_size": 4, "drop_last": True},
        {"batch_size": 4, "collate_fn": list},
        {"batch_size": 4, "num_workers": 1},
    ],
)
def test_a_loader_that_joins_steps_is_refused(
    path: Path, job: str | None, given: dict[str, Any]
) -> None:
    dataset = batchweave.torch.Dataset(path, job=job, copy=True)
    loader = data.DataLoader(dataset, **given)
    with FakeDaemon(path, end=4) as daemon:
        with pytest.raises(errors.WrappedLoaderError, match="joins that number of global"):
            next(iter(loader))
        assert not daemon.peers, "no step was delivered"
