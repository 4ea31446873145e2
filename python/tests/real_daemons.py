"""The built daemons for tests: a corpus, a producer and a consumer of one stream in a folder.

BATCHWEAVE_BIN_DIR, or target/release of this repository. Under CI=true they must be there.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from conftest import eventually

import batchweave

BINARIES = Path(
    os.environ.get("BATCHWEAVE_BIN_DIR") or Path(__file__).parents[2] / "target" / "release"
)
BUILT = all((BINARIES / f"batchweave-{name}").exists() for name in ("producer", "consumer"))

MARKS = [
    pytest.mark.daemons,
    pytest.mark.skipif(
        not BUILT and os.environ.get("CI") != "true",
        reason=f"no daemons in {BINARIES}: build them, or set BATCHWEAVE_BIN_DIR",
    ),
]

SLICES, ROWS, SEQ_LEN = 4, 3, 64
END = 256
Tokens = npt.NDArray[np.uint16]
Daemons = Callable[..., subprocess.Popen[bytes]]

JOB = 'name = "t"\nopen = true'
"""The consumer's job, which it opens itself."""


def documents() -> list[str]:
    chance = random.Random(20261121)
    words = ["batch", "weave", "über", "数据", "loss", "\n", " ", "0123456789"]
    return ["".join(chance.choices(words, k=chance.randrange(1, 400))) for _ in range(400)]


def expected() -> npt.NDArray[np.uint16]:
    """Steps x slices x rows x tokens, from the documents alone."""
    flat: list[int] = []
    for text in documents():
        flat += [*text.encode(), END]
    rows_per_step = SLICES * ROWS
    steps = (len(flat) - 1) // (rows_per_step * SEQ_LEN)
    rows = [flat[k * SEQ_LEN : k * SEQ_LEN + SEQ_LEN + 1] for k in range(steps * rows_per_step)]
    return np.array(rows, np.uint16).reshape(steps, SLICES, ROWS, SEQ_LEN + 1)


PRODUCER = f"""
[store]
url = "file://{{root}}/stream"
[stream]
slices = {SLICES}
rows_per_slice = {ROWS}
seq_len = {SEQ_LEN}
producers = ["p0"]
[producer]
name = "p0"
[source]
paths = ["{{root}}/corpus.jsonl"]
[tokenizer]
kind = "bytes"
"""

CONSUMER = """
[store]
url = "file://{root}/stream"
[job]
{job}
[arena]
bytes = "8MiB"
segment_bytes = "2MiB"
[socket]
path = "{root}/s.sock"
[prefetch]
bytes = "4MiB"
[follow]
idle = "100ms"
[admin]
listen = "off"
"""


def running(tmp_path: Path) -> Iterator[Daemons]:
    """Starts daemons by name, with configuration files in `tmp_path`; ends them after the test."""
    with (tmp_path / "corpus.jsonl").open("w") as corpus:
        corpus.writelines(json.dumps({"text": text}) + "\n" for text in documents())
    (tmp_path / "producer.toml").write_text(PRODUCER.format(root=tmp_path))
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, job: str = JOB) -> subprocess.Popen[bytes]:
        if name == "consumer":
            (tmp_path / "consumer.toml").write_text(CONSUMER.format(root=tmp_path, job=job))
            # A consumer without a stream stops with an error.
            eventually((tmp_path / "stream" / "stream.json").exists, 60)
        command = [str(BINARIES / f"batchweave-{name}"), "--config", str(tmp_path / f"{name}.toml")]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait(60)


ATTEMPTS = [f"{number:032x}" for number in range(1, 10)]


def read(
    path: Path, rank: int, world: int, then: Callable[[int], None] = lambda _: None, **more: Any
) -> tuple[list[int], list[Tokens]]:
    """Reads all steps, in the first attempt by default; returns their numbers and contents."""
    steps, found = [], []
    more.setdefault("attempt", ATTEMPTS[0])
    with batchweave.connect(
        path, job="t", dp_rank=rank, dp_size=world, timeout=60, **more
    ) as reader:
        for batch in reader:
            steps.append(batch.step)
            found.append(np.stack([piece["tokens"] for piece in batch.slices]))
            then(batch.step)
    return steps, found
