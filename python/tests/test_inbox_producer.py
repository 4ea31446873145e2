"""A real producer follows an inbox: rows that writers put while it runs are in its batches."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import eventually
from inbox_world import DEV_S3, DevS3
from real_daemons import BINARIES, END

import batchweave
from batchweave import inbox

pytestmark = DEV_S3

STREAM = """
store.url = "file://{root}/stream"
stream = {{ slices = 1, rows_per_slice = 2, {shape} }}
producer.name = "p0"
source.follow = true
source.follow_every = "50ms"
source.settled_age = "0s"
source.paths = ["{inbox}/*/*.parquet"]
commit.linger = "10ms"
admin.listen = "off"
{more}
"""

Follow = Callable[..., None]


@pytest.fixture
def follow(tmp_path: Path, programs: Path) -> Iterator[Follow]:
    """Starts a producer that follows an inbox."""
    assert programs.exists()
    started: list[subprocess.Popen[bytes]] = []

    def follow(location: str, more: str, shape: str = "seq_len = 16", **environment: str) -> None:
        config = tmp_path / "producer.toml"
        config.write_text(STREAM.format(root=tmp_path, inbox=location, more=more, shape=shape))
        (tmp_path / "stream").mkdir()
        with (tmp_path / "producer.log").open("wb") as log:
            started.append(
                subprocess.Popen(
                    [BINARIES / "batchweave-producer", "--config", config],
                    stdout=log,
                    stderr=log,
                    env={"PATH": "", "NO_COLOR": "1", **environment},
                )
            )

    yield follow
    for process in started:
        process.kill()
        process.wait()


def steps(folder: Path) -> int:
    """Returns the number of committed steps; each of these tests has at least one."""
    try:
        return len(batchweave.open(f"file://{folder}/stream"))
    except batchweave.errors.StreamNotOpenedError:
        return 0


def test_text_becomes_batches_while_it_is_written(tmp_path: Path, follow: Follow) -> None:
    follow(str(tmp_path / "inbox"), 'tokenizer.kind = "bytes"')
    with inbox.open(tmp_path / "inbox", "w") as writer:
        for number in range(20):
            writer.put({"text": f"row {number:02}", "reward": 0.5})
            writer.flush()
        eventually(lambda: steps(tmp_path) >= 4, 120)
        writer.finish()
    stream = batchweave.open(f"file://{tmp_path}/stream")
    flat = [token for step in range(4) for row in stream[step].inputs for token in row.tolist()]
    expected = [b for n in range(20) for b in [*f"row {n:02}".encode(), END]]
    assert flat == expected[: len(flat)]


def test_tokens_become_batches(tmp_path: Path, follow: Follow) -> None:
    ids = 'source.content = "ids"\nsource.column = "tokens"\n'
    tokenizer = 'tokenizer = { kind = "none", vocab_size = 50257, end_token_id = 50256 }'
    follow(str(tmp_path / "inbox"), ids + tokenizer)
    with inbox.open(tmp_path / "inbox", "w") as writer:
        for number in range(20):
            writer.put({"tokens": np.arange(number, number + 4, dtype=np.uint16)})
        writer.flush()
        eventually(lambda: steps(tmp_path) >= 2, 120)
    stream = batchweave.open(f"file://{tmp_path}/stream")
    assert stream[0].inputs[0].tolist()[:7] == [0, 1, 2, 3, 50256, 1, 2]


def test_tokens_carry_marks_and_columns(tmp_path: Path, follow: Follow) -> None:
    keys = [
        'source.content = "ids"',
        'source.column = "tokens"',
        'source.mask = "loss_mask"',
        'packing.mode = "best_fit"',
        "packing.look_ahead = 1",
        'packing.extra = [{ name = "reward", dtype = "F32" }, { name = "version", dtype = "I64" }]',
        'tokenizer = { kind = "none", vocab_size = 50257, end_token_id = 50256 }',
    ]
    follow(str(tmp_path / "inbox"), "\n".join(keys), shape="seq_len = 15")
    with inbox.open(tmp_path / "inbox", "w") as writer:
        for number in range(20):
            row = {
                "tokens": np.arange(10 * number, 10 * number + 9, dtype=np.uint32),
                "loss_mask": (np.arange(9) >= 4).astype(np.uint8),
                "reward": number / 4,
                "version": 2**40 + number,
            }
            writer.put(row)
            if number % 3 == 0:
                writer.flush()
        writer.flush()
        eventually(lambda: steps(tmp_path) >= 9, 120)
    stream = batchweave.open(f"file://{tmp_path}/stream")
    for number in range(18):
        step, at = divmod(number, 2)
        batch = stream[step]
        # A document of nine ids and an end token, then six of padding.
        assert batch["tokens"][at].tolist()[:10] == [*range(10 * number, 10 * number + 9), 50256]
        assert batch["loss_mask"][at].tolist() == [0] * 4 + [1] * 5 + [0] * 7
        assert batch["reward"][at].tolist() == [number / 4] * 10 + [0] * 6
        assert batch["version"][at].tolist() == [2**40 + number] * 10 + [0] * 6


def test_arrays_become_samples_bit_for_bit(tmp_path: Path, follow: Follow) -> None:
    arrays = [
        '{ name = "image", dtype = "U8" }',
        '{ name = "action", dtype = "F32", shape = [7] }',
        '{ name = "half", dtype = "F16" }',
        '{ name = "ids", dtype = "U32" }',
        '{ name = "flags", dtype = "BOOL" }',
    ]
    follow(
        str(tmp_path / "inbox"),
        f'packing.mode = "opaque"\npacking.arrays = [{", ".join(arrays)}]',
        shape="seq_len = 1",
    )
    chance = np.random.default_rng(1)
    rows = [
        {
            "image": chance.integers(0, 256, (2, 3, n), np.uint8),
            "action": chance.random((n, 7), np.float32),
            "half": chance.random(n).astype(np.float16),
            "ids": chance.integers(0, 2**32, n, np.uint32),
            "flags": chance.integers(0, 2, n).astype(np.bool_),
        }
        for n in (1, 4)
    ]
    with inbox.open(tmp_path / "inbox", "w") as writer:
        for row in rows:
            writer.put({**row, "image": row["image"].reshape(-1)})
        writer.flush()
        eventually(lambda: steps(tmp_path) >= 1, 120)
    batch = batchweave.open(f"file://{tmp_path}/stream")[0]
    for name in rows[0]:
        flat = np.concatenate([row[name].reshape(-1) for row in rows])
        assert np.asarray(batch[name]).reshape(-1).tobytes() == flat.tobytes(), name


def test_an_inbox_of_a_bucket_is_followed(tmp_path: Path, follow: Follow) -> None:
    s3 = DevS3()
    try:
        follow("s3://batchweave/inbox", 'tokenizer.kind = "bytes"', **s3.environment)
        with inbox.open("s3://batchweave/inbox", "w", **s3.arguments) as writer:
            for number in range(20):
                writer.put({"text": f"row {number:02}"})
            writer.finish()
        eventually(lambda: steps(tmp_path) >= 3, 120)
    finally:
        s3.end()
