"""Arrays lie in the daemon's memory, and a frame is free exactly when its last array is gone."""

from __future__ import annotations

import gc
import os
import queue
import random
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from conftest import eventually
from fake_daemon import LAYOUT, STREAM, FakeDaemon, Peer, tokens_of

import batchweave
from batchweave.errors import FramesHeldError, StepTimeoutError


def read_only_mappings(before: Collection[tuple[int, int]] = ()) -> list[tuple[int, int]]:
    """Returns the mappings of arenas without those of `before`, which other tests left."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "fake-arena" in line and " r--s " in line:
            first, _, last = line.split()[0].partition("-")
            found.append((int(first, 16), int(last, 16)))
    return [mapping for mapping in found if mapping not in before]


def address(a: npt.NDArray[Any]) -> int:
    return int(a.__array_interface__["data"][0])


def test_batches_come_in_order_with_the_right_tokens(path: Path) -> None:
    with (
        FakeDaemon(path, end=50, slices=3) as daemon,
        batchweave.connect(path, dp_rank=1, dp_size=2, timeout=10) as reader,
    ):
        steps = []
        for batch in reader:
            steps.append(batch.step)
            assert [piece.index for piece in batch.slices] == [3, 4, 5]
            for piece in batch.slices:
                assert (piece["tokens"] == tokens_of(batch.step, piece.index)).all()
        assert steps == list(range(50))
        assert reader.info.slice_count == 3
        assert reader.info.stream_id == str(STREAM)
        assert daemon.peers[0].hello["dp_size"] == 2


def test_arrays_lie_inside_the_mapping_and_refuse_writes(daemon: FakeDaemon, path: Path) -> None:
    before = read_only_mappings()
    with batchweave.connect(path) as reader:
        batch = next(reader)
        (mapping,) = read_only_mappings(before)
        for view in [*batch.slices[0].values(), batch.inputs, batch.labels]:
            assert mapping[0] <= address(view) < mapping[1]
            with pytest.raises(ValueError, match="read-only"):
                view[0] = 1
            with pytest.raises(ValueError, match="WRITEABLE"):
                view.flags.writeable = True
        assert address(batch["tokens"]) % 64 == 0
        assert (batch.inputs == tokens_of(0, 0)[:, :-1]).all()
        assert (batch.labels == tokens_of(0, 0)[:, 1:]).all()
        assert {name: str(a.dtype) for name, a in batch.slices[0].items()} == {
            "tokens": "uint16",
            "scores": "uint16",
            "segments": "uint32",
        }
        assert daemon.peers[0].hello["mode"] == "join"


def test_a_held_array_keeps_its_frame_and_a_dropped_one_frees_it(
    daemon: FakeDaemon, path: Path
) -> None:
    with batchweave.connect(path, credits=3) as reader:
        kept = next(reader)["tokens"][1:, ::2][:, 1:]
        for _ in range(20):
            batch = next(reader)
        peer = daemon.peers[0]
        assert (kept == tokens_of(0, 0)[1:, ::2][:, 1:]).all()
        eventually(lambda: 0 in {step for _, step in peer.held.values()})
        frame = next(frame for frame, (_, step) in peer.held.items() if step == 0)
        del kept
        # No call of the reader is needed: the release went out as the array died.
        eventually(lambda: frame in peer.released)
        assert (batch["tokens"] == tokens_of(20, 0)).all()


def test_views_of_every_kind_keep_the_frame(daemon: FakeDaemon, path: Path) -> None:
    with batchweave.connect(path, credits=2) as reader:
        for make in (
            lambda a: a.T[2:][::-1],
            lambda a: np.lib.stride_tricks.as_strided(a, (2, 2), (2, 2)),
            lambda a: memoryview(a),
            lambda a: a.view(np.uint8)[0],
            lambda a: np.asarray(a).reshape(2, -1)[0, 3:],
            lambda a: np.from_dlpack(a) if hasattr(a, "__dlpack__") and _dlpack() else a[:1],
        ):
            batch = next(reader)
            step, view = batch.step, make(batch["tokens"])
            copy = np.array(view)
            del batch
            gc.collect()
            peer = daemon.peers[0]
            assert any(held == step for _, held in list(peer.held.values())), make
            next(reader)
            assert (np.array(view) == copy).all()
            del view
            eventually(lambda step=step, p=peer: all(s != step for _, s in list(p.held.values())))  # type: ignore[misc]


def _dlpack() -> bool:
    # Read-only arrays can be exported since numpy 2.1.
    return tuple(int(n) for n in np.__version__.split(".")[:2]) >= (2, 1)


def test_arrays_freed_by_other_threads(path: Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    with FakeDaemon(path, end=3000, slices=2) as daemon:
        kept: list[queue.SimpleQueue[batchweave.Slice | None]]
        kept = [queue.SimpleQueue() for _ in range(3)]

        def drop(mine: queue.SimpleQueue[batchweave.Slice | None]) -> None:
            while mine.get() is not None:
                pass

        threads = [threading.Thread(target=drop, args=(mine,)) for mine in kept]
        for thread in threads:
            thread.start()
        with batchweave.connect(path, credits=16, timeout=20) as reader:
            for batch in reader:
                piece = batch.slices[1]
                assert (piece["tokens"] == tokens_of(batch.step, piece.index)).all()
                chance.choice(kept).put(piece)
                del piece
            for mine, thread in zip(kept, threads, strict=True):
                mine.put(None)
                thread.join(20)
            del batch
            peer = daemon.peers[0]
            eventually(lambda: len(peer.released) == 6000)
        assert sorted(peer.released) == list(range(1, 6001)), "each frame once"


def test_all_credits_held_is_an_error_that_lists_them(daemon: FakeDaemon, path: Path) -> None:
    with batchweave.connect(path, credits=2, timeout=2) as reader:
        kept = [next(reader), next(reader)]
        with pytest.raises(FramesHeldError) as caught:
            next(reader)
        assert "steps 0 to 1 (512 bytes) taken at" in str(caught.value)
        assert "test_frames.py:" in str(caught.value)
        assert "2 credits" in str(caught.value)
        assert caught.value.step == 2
        del kept, caught
        assert next(reader).step == 2
        assert daemon.peers[0].progress[-1][2] == 1, "it said that it waits"


def test_a_wait_is_told_while_it_lasts(path: Path) -> None:
    def silent(peer: Peer) -> bool:
        peer.send_welcome()
        return True

    with FakeDaemon(path) as daemon:
        daemon.on_hello = silent
        with batchweave.connect(path, timeout=6) as reader:
            with pytest.raises(StepTimeoutError):
                next(reader)
            told = [waited for _, waited, waiting in daemon.peers[0].progress if waiting]
            assert len(told) >= 2, daemon.peers[0].progress
            assert told == sorted(told)
            assert told[-1] - told[0] > 900_000, "microseconds until now, not until the last step"


def test_frames_in_reference_cycles_are_collected(daemon: FakeDaemon, path: Path) -> None:
    gc.disable()
    try:
        with batchweave.connect(path, credits=2, timeout=10) as reader:
            for _ in range(6):
                cycle: list[Any] = [next(reader)]
                cycle.append(cycle)
                del cycle
            assert reader.next_step == 6
            assert daemon.peers[0].session == 1
            assert len(daemon.peers) == 1
    finally:
        gc.enable()


def test_copies_are_private_and_hold_nothing(daemon: FakeDaemon, path: Path) -> None:
    with batchweave.connect(path, credits=2, copy=True, timeout=5) as reader:
        kept = [next(reader) for _ in range(10)]
        kept[0]["tokens"][0, 0] = 7
        for batch in kept[1:]:
            assert (batch["tokens"] == tokens_of(batch.step, 0)).all()
        assert read_only_mappings()[0][0] > address(kept[1]["tokens"]) or (
            read_only_mappings()[0][1] <= address(kept[1]["tokens"])
        )
        assert len(daemon.peers) == 1


def test_a_step_of_many_slices_comes_in_parts(path: Path) -> None:
    def in_parts(peer: Peer) -> bool:
        peer.send_welcome()
        peer.send_segment()
        peer.send_layout()
        for step in range(3):
            peer.send_step(step, parts=3)
        return True

    with FakeDaemon(path, slices=7) as daemon:
        daemon.on_hello = in_parts
        with batchweave.connect(path, timeout=5) as reader:
            for step in range(3):
                batch = next(reader)
                assert [piece.index for piece in batch.slices] == list(range(7))
                for piece in batch.slices:
                    assert (piece["tokens"] == tokens_of(step, piece.index)).all()
                whole = np.concatenate([tokens_of(step, number) for number in range(7)])
                assert (batch["tokens"] == whole).all()


def test_a_layout_is_replaced_and_a_segment_retired(path: Path) -> None:
    gc.collect()
    before = read_only_mappings()

    def start(peer: Peer) -> bool:
        peer.send_welcome()
        peer.send_segment()
        peer.send_layout()
        peer.send_step(0)
        arrays: Any = LAYOUT["arrays"]
        peer.send_layout({"length": 256, "arrays": [{**arrays[0], "name": "ids"}]})
        peer.send_step(1)
        peer.send(71, (0).to_bytes(8, "little"))
        peer.send(68, (2).to_bytes(8, "little"))
        return True

    with FakeDaemon(path) as daemon:
        daemon.on_hello = start
        with batchweave.connect(path, timeout=5) as reader:
            first, second = next(reader), next(reader)
            assert next(reader, None) is None
            assert list(first.slices[0]) == ["tokens", "scores", "segments"]
            assert (second["ids"] == tokens_of(1, 0)).all()
            assert len(read_only_mappings(before)) == 1
            del first
            assert len(read_only_mappings(before)) == 1
            del second
            assert read_only_mappings(before) == [], "unmapped with its last frame"


def test_ten_thousand_steps_leave_descriptors_and_memory_flat(path: Path) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    def resident_kib() -> int:
        return (
            int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024
        )

    with FakeDaemon(path, end=12_000), batchweave.connect(path, timeout=20) as reader:
        before = (0, 0)
        for batch in reader:
            assert batch["tokens"][0, 0] == tokens_of(batch.step, 0)[0, 0]
            if batch.step == 1999:
                gc.collect()
                before = descriptors(), resident_kib()
        gc.collect()
        assert batch.step == 11_999
        assert descriptors() == before[0]
        assert resident_kib() - before[1] < 2048
