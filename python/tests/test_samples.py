"""Samples of a robot through the real daemons: pictures, actions and rewards, byte by byte.

An episode has as many pictures as it took; a step of sixteen episodes is more than 16 MB, with
BATCHWEAVE_LONG=1 more than 50 MB.
"""

from __future__ import annotations

import base64
import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import real_daemons
from real_daemons import MARKS, Daemons

import batchweave

pytestmark = MARKS

SLICES, ROWS, EPISODES = 4, 4, 36
LONG = os.environ.get("BATCHWEAVE_LONG") == "1"
# Of an episode, and the bytes of a step.
PICTURES, LEAST = ((90, 120), 50_000_000) if LONG else ((30, 40), 16_000_000)
PICTURE = (96, 128, 3)
NAMES = ("pictures", "action", "reward")

PRODUCER = """
[store]
url = "file://{root}/stream"
[stream]
slices = 4
rows_per_slice = 4
seq_len = 1
producers = ["p0"]
[producer]
name = "p0"
[source]
paths = ["{root}/episodes-*.jsonl"]
[tokenizer]
kind = "bytes"
[packing]
mode = "opaque"
last_batch = "pad"
object_bytes = "8MiB"
arrays = [
    {{ name = "pictures", dtype = "U8", shape = [96, 128, 3], base64 = true }},
    {{ name = "action", dtype = "F32", shape = [7] }},
    {{ name = "reward", dtype = "F64" }},
]
"""

Episode = dict[str, np.ndarray[Any, Any]]


def episodes() -> list[Episode]:
    """Of any length, one of them of none; what is in them is drawn."""
    chance = np.random.default_rng(6)
    found = []
    for number in range(EPISODES):
        length = 0 if number == 17 else int(chance.integers(*PICTURES))
        found.append(
            {
                "pictures": chance.integers(0, 256, (length, *PICTURE), np.uint8),
                "action": chance.standard_normal((length, 7)).astype(np.float32),
                "reward": chance.standard_normal(length) / 7,
            }
        )
    return found


def write(episodes: list[Episode], path: Path) -> None:
    with path.open("w") as out:
        for episode in episodes:
            fields = {
                "pictures": base64.b64encode(episode["pictures"].tobytes()).decode(),
                "action": episode["action"].tolist(),
                "reward": episode["reward"].tolist(),
            }
            out.write(json.dumps(fields) + "\n")


def received(path: Path, rank: int) -> tuple[dict[tuple[int, int, int], Episode], dict[int, int]]:
    """By step, slice and row what one of two ranks got, and how many bytes each step had."""
    found, size = {}, {}
    with batchweave.connect(path, dp_rank=rank, dp_size=2, credits=2, timeout=120) as reader:
        for batch in reader:
            size[batch.step] = sum(array.nbytes for s in batch.slices for array in s.values())
            for piece in batch.slices:
                assert sorted(piece) == sorted([*NAMES, *(f"{name}.offsets" for name in NAMES)])
                offsets = {name: piece[f"{name}.offsets"] for name in NAMES}
                for row in range(len(offsets["pictures"]) - 1):
                    found[batch.step, piece.index, row] = {
                        name: piece[name][offsets[name][row] : offsets[name][row + 1]].copy()
                        for name in NAMES
                    }
    return found, size


def test_a_robots_episodes_reach_python_byte_by_byte(
    daemons: Daemons, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = episodes()
    write(given[:10], tmp_path / "episodes-0.jsonl")
    write(given[10:], tmp_path / "episodes-1.jsonl")
    (tmp_path / "producer.toml").write_text(PRODUCER.format(root=tmp_path))
    large = real_daemons.CONSUMER.replace('"8MiB"', '"192MiB"').replace('"2MiB"', '"32MiB"')
    monkeypatch.setattr(real_daemons, "CONSUMER", large.replace('"4MiB"', '"64MiB"'))
    assert daemons("producer").wait(300) == 0
    daemons("consumer")
    results: dict[int, Any] = {}

    def rank(number: int) -> None:
        results[number] = received(tmp_path / "s.sock", number)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert set(results) == {0, 1}, "a rank failed"
    size = {step: results[0][1][step] + results[1][1][step] for step in results[0][1]}
    assert sorted(size) == [0, 1, 2]
    assert min(size[0], size[1]) >= LEAST, size
    found = {**results[0][0], **results[1][0]}
    assert len(found) == EPISODES
    # In the order of their lines, row by row, slice by slice.
    for (_, episode), expected in zip(sorted(found.items()), given, strict=True):
        for name in NAMES:
            assert episode[name].dtype == expected[name].dtype
            assert episode[name].shape == expected[name].shape
            assert episode[name].tobytes() == expected[name].tobytes(), name
