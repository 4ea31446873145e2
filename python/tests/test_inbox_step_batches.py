"""Real producers make exactly one global batch of each step that writers put, also when killed."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import eventually
from inbox_world import DEV_S3, in_folder
from real_daemons import BINARIES

import batchweave
from batchweave import inbox

pytestmark = DEV_S3

SLICES, ROWS, STEPS = 2, 3, 12
WRITERS = ["w0", "w1", "w2"]
CONFIG = f"""
store.url = "file://{{root}}/stream"
stream = {{{{ slices = {SLICES}, rows_per_slice = {ROWS}, seq_len = 1 }}}}
producer = {{{{ name = "p{{index}}", index = {{index}}, of = {{of}} }}}}
source.follow = true
source.follow_every = "50ms"
source.settled_age = "0s"
source.paths = ["{{root}}/inbox/*/*.parquet"]
packing.mode = "opaque"
packing.arrays = [
    {{{{ name = "writer", dtype = "I64" }}}},
    {{{{ name = "step", dtype = "I64" }}}},
    {{{{ name = "noise", dtype = "F32", shape = [2] }}}},
]
commit.linger = "10ms"
admin.listen = "off"
"""

Start = Callable[[int, int], subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path, programs: Path) -> Iterator[Start]:
    """Starts producer number `index` of `of`."""
    assert programs.exists()
    (tmp_path / "stream").mkdir()
    started: list[subprocess.Popen[bytes]] = []

    def start(index: int, of: int) -> subprocess.Popen[bytes]:
        config = tmp_path / f"p{index}.toml"
        config.write_text(CONFIG.format(root=tmp_path, index=index, of=of))
        with (tmp_path / "producer.log").open("ab") as log:
            command = [str(BINARIES / "batchweave-producer"), "--config", str(config)]
            started.append(subprocess.Popen(command, stdout=log, stderr=log))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def made(writer: int, step: int) -> list[list[dict[str, Any]]]:
    """Returns a step of a writer: the same one in every call."""
    chance = np.random.default_rng((writer, step))
    return [
        [
            {
                "writer": writer,
                "step": step,
                "noise": chance.random((int(chance.integers(0, 4)), 2), np.float32),
            }
            for _ in range(ROWS)
        ]
        for _ in range(SLICES)
    ]


def committed(folder: Path) -> int:
    try:
        return len(batchweave.open(f"file://{folder}/stream"))
    except batchweave.errors.StreamNotOpenedError:
        return 0


def wait_for(folder: Path, steps: int) -> None:
    eventually(lambda: committed(folder) >= steps, 120)


def check_batch(batch: batchweave.Batch) -> tuple[int, int]:
    """Checks that a batch is one put step, slice by slice; returns its writer and number."""
    writer, step = (int(batch.slices[0][name][0]) for name in ("writer", "step"))
    for piece, rows in zip(batch.slices, made(writer, step), strict=True):
        for name in ("writer", "step"):
            assert np.asarray(piece[name]).tolist() == [row[name] for row in rows]
        noise = np.concatenate([row["noise"] for row in rows])
        assert np.asarray(piece["noise"]).tobytes() == noise.tobytes()
        ends = np.cumsum([0, *(len(row["noise"]) for row in rows)])
        assert np.asarray(piece["noise.offsets"]).tolist() == ends.tolist()
    return writer, step


@pytest.mark.parametrize("of", [1, 2])
def test_each_put_step_is_one_batch_though_producers_are_killed(
    of: int, tmp_path: Path, start: Start
) -> None:
    seed = int(os.environ.get("BATCHWEAVE_SEED") or random.randrange(1 << 30))
    print(f"BATCHWEAVE_SEED={seed}")
    chance = random.Random(seed)
    running = [start(index, of) for index in range(of)]
    writers = [
        inbox.open(tmp_path / "inbox", name, linger=60, slices=SLICES, rows_per_slice=ROWS)
        for name in WRITERS
    ]
    for step in range(STEPS):
        for number, writer in enumerate(writers):
            writer.put_step(made(number, step), step)
            # So that files have one step or several.
            if chance.random() < 0.5:
                writer.flush()
        if step == STEPS // 2:
            for writer in writers:
                writer.flush()
            wait_for(tmp_path, chance.randrange(1, STEPS))
            for process in running:
                process.kill()
                process.wait()
            running = [start(index, of) for index in range(of)]
    for writer in writers:
        writer.finish()
    wait_for(tmp_path, len(WRITERS) * STEPS)
    with batchweave.open(f"file://{tmp_path}/stream") as stream:
        found = [check_batch(batch) for batch in stream]
    for number, name in enumerate(WRITERS):
        steps = [step for writer, step in found if writer == number]
        # Producers that share the files commit in any order.
        assert (steps if of == 1 else sorted(steps)) == list(range(STEPS))
        files = in_folder(tmp_path / "inbox" / name)
        assert {file.metadata["step_rows"] for file in files} == {str(SLICES * ROWS)}
        assert sum(len(file.rows) for file in files) == STEPS * SLICES * ROWS
