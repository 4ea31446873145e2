"""`to_device` with a stand-in for CUDA, whose copies read memory when their stream runs."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import eventually
from fake_cuda import Cuda
from fake_daemon import FakeDaemon, tokens_of
from test_frames import address

import batchweave
from batchweave import _device
from batchweave.torch import in_flight, to_device


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cuda]:
    found = Cuda()
    for name, module in found.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(_device, "_told", False)
    yield found
    found.run()
    assert in_flight() == 0


def test_a_frame_is_held_until_its_copies_have_ended(
    daemon: FakeDaemon, path: Path, cuda: Cuda
) -> None:
    with batchweave.connect(path, credits=3, timeout=20) as reader:
        batch = next(reader)
        given = to_device(batch, labels="shifted")
        del batch
        gc.collect()
        for _ in range(5):
            next(reader)
        peer = daemon.peers[0]
        assert 1 not in peer.released
        assert in_flight() == 1
        cuda.run()
        # Widened from 16 bits and shifted, after the copy.
        assert (given["input_ids"].value() == tokens_of(0, 0)[:, :-1]).all()
        assert (given["labels"].value() == tokens_of(0, 0)[:, 1:]).all()
        assert given["input_ids"].value().dtype == np.int64
        assert set(given) == {"input_ids", "labels", "scores", "segments"}
        assert in_flight() == 0
        eventually(lambda: 1 in peer.released)


def test_waiting_for_credits_waits_for_copies(daemon: FakeDaemon, path: Path, cuda: Cuda) -> None:
    with batchweave.connect(path, credits=2, timeout=20) as reader:
        first, second = (to_device(next(reader), labels="shifted") for _ in range(2))
        assert in_flight() == 2
        cuda.run()
        # Nobody but `next` lets go of the frames.
        assert next(reader).step == 2
        assert (first["labels"].value() == tokens_of(0, 0)[:, 1:]).all()
        assert (second["labels"].value() == tokens_of(1, 0)[:, 1:]).all()
        assert daemon.peers


def test_the_arrays_own_mapping_is_never_registered(
    daemon: FakeDaemon, path: Path, cuda: Cuda
) -> None:
    gc.collect()
    with batchweave.connect(path) as reader:
        batch = next(reader)
        own = address(batch["tokens"])
        to_device(batch.slices[0])
        to_device(next(reader))
        ((registered, size),) = cuda.registered.items()
        assert size == daemon.segment.size
        assert not registered <= own < registered + size
        assert all(registered <= source < registered + size for source in cuda.sources)
    del batch
    gc.collect()
    # The segment is unmapped, its copies still run: the second mapping stays for them.
    assert list(cuda.registered) == [registered]
    cuda.run()
    assert in_flight() == 0
    gc.collect()
    eventually(lambda: not cuda.registered)


def test_without_registering_the_copies_are_right_too(
    daemon: FakeDaemon, path: Path, cuda: Cuda, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "batchweave")
    cuda.registers = False
    with batchweave.connect(path) as reader:
        given = [to_device(next(reader), labels="shifted") for _ in range(2)]
        cuda.run()
        for step, each in enumerate(given):
            assert (each["input_ids"].value() == tokens_of(step, 0)[:, :-1]).all()
    assert len(caplog.records) == 1
    assert "error 801" in caplog.text
    assert daemon.peers


def test_a_batch_of_several_slices_is_joined_on_the_device(path: Path, cuda: Cuda) -> None:
    with FakeDaemon(path, slices=3) as daemon, batchweave.connect(path, timeout=20) as reader:
        want = np.concatenate([tokens_of(0, number) for number in range(3)])
        batch = next(reader)
        given, piece = to_device(batch), to_device(batch.slices[1])
        del batch
        cuda.run()
        # Whole rows, for a model that shifts them itself.
        for name in ("input_ids", "labels"):
            assert (given[name].value() == want).all()
            assert (piece[name].value() == tokens_of(0, 1)).all()
        assert given["scores"].value().shape == (3 * 4,)
        assert daemon.peers


@pytest.mark.usefixtures("cuda")
def test_copies_for_the_cpu_are_pinned_where_there_is_cuda(daemon: FakeDaemon, path: Path) -> None:
    with batchweave.connect(path) as reader:
        given = to_device(next(reader), device="cpu")
        assert set(given) == {"input_ids", "labels", "scores", "segments"}
        assert all(tensor.pinned for tensor in given.values())
        assert (given["labels"].value() == tokens_of(0, 0)).all()
        assert in_flight() == 0
        assert daemon.peers


def test_private_copies_go_as_they_are(daemon: FakeDaemon, path: Path, cuda: Cuda) -> None:
    with batchweave.connect(path, copy=True) as reader:
        given = to_device(next(reader), labels="shifted")
        cuda.run()
        assert (given["input_ids"].value() == tokens_of(0, 0)[:, :-1]).all()
    assert not cuda.registered
    assert daemon.peers
