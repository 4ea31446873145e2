"""A function that makes several documents of one: ranks receive all, whatever dies."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from real_daemons import MARKS, Daemons
from test_transform import configure, texts, workers

import batchweave

pytestmark = MARKS

SHAPE = 'stream = {{ slices = 2, rows_per_slice = 2, seq_len = 96, producers = ["p0"] }}\n'
SETTINGS = """
transform.function = "captions:parts"
transform.workers = 2
commit.linger = "0ms"
packing.last_batch = "pad"
packing.object_bytes = "8KiB"
"""
CODE = """
import os, time

FOLDER = os.path.dirname(__file__)

def parts(document):
    time.sleep(0.003)
    open(f"{FOLDER}/{os.getpid()}.ready", "w").close()
    found = [text for text in document["text"].split("|") if text]
    %s
"""
TEXT = CODE % 'return ({"text": text} for text in found)'
LENGTHS = CODE % 'return [{"text": text, "length": [len(text)]} for text in found]'
CAPTIONS = CODE % 'return [{"caption": t, "length": len(t).to_bytes(4, "little")} for t in found]'
ONE = 'source.paths = ["{root}/a.jsonl"]\n'
TWO = """
[[sources]]
name = "a"
paths = ["{root}/a.jsonl"]
weight = 0.7
[[sources]]
name = "b"
paths = ["{root}/b.jsonl"]
weight = 0.3
"""
BEST_FIT = """
packing.mode = "best_fit"
packing.look_ahead = 16
packing.arrays = [{{ name = "length", dtype = "I32" }}]
"""
OPAQUE = """
packing.mode = "opaque"
packing.arrays = [{{ name = "caption", dtype = "U8" }}, {{ name = "length", dtype = "I32" }}]
"""


def written(path: Path, documents: int, seed: int) -> list[str]:
    """Writes documents of 0 to 6 parts, and returns the parts."""
    chance, parts = random.Random(seed), []
    with path.open("w") as lines:
        for number in range(documents):
            count = chance.randrange(7)
            own = [f"{seed}.{number}.{n} " * chance.randrange(1, 12) for n in range(count)]
            lines.write(json.dumps({"text": "|".join(own)}) + "\n")
            parts += own
    return parts


def batches(folder: Path) -> list[list[bytes]]:
    """Returns the bytes of all arrays of each batch."""
    with batchweave.open(f"file://{folder}/stream") as reader:
        return [
            [np.asarray(piece[name]).tobytes() for piece in batch.slices for name in sorted(piece)]
            for batch in reader
        ]


def objects(folder: Path) -> int:
    """Return the number of objects; a folder may go meanwhile, which `rglob` does not bear."""
    return sum(len(files) for _, _, files in os.walk(folder / "stream"))


def killed(daemons: Daemons, folder: Path) -> int:
    """Runs a producer to its end, and kills it and its processes on the way; returns how often.

    Between two kills it makes an object, so that a busy machine has no more of them.
    """
    chance, workers_killed, restarts = random.Random(7), 0, 0
    stored, seen = 0, -1
    producer = daemons("producer")
    while restarts < 5 and producer.poll() is None:
        time.sleep(chance.random() * 0.1)
        ready = [p for p in workers(producer.pid) if (folder / f"{p}.ready").exists()]
        now = objects(folder)
        if ready and now > seen and chance.random() < 0.5:
            try:
                os.kill(chance.choice(ready), signal.SIGKILL)
                workers_killed, seen = workers_killed + 1, now
            except ProcessLookupError:
                continue
        elif ready and now > stored + 8:
            stored = now
            producer.kill()
            producer.wait()
            restarts += 1
            producer = daemons("producer")
    assert producer.wait(300) == 0
    return workers_killed + restarts


@pytest.mark.parametrize(
    ("code", "parts"),
    [(TEXT, (ONE,)), (LENGTHS, (ONE, BEST_FIT)), (CAPTIONS, (ONE, OPAQUE)), (TEXT, (TWO,))],
    ids=["concat", "best_fit", "opaque", "two sources"],
)
def test_deaths_lose_and_double_no_part(
    daemons: Daemons, tmp_path: Path, code: str, parts: tuple[str, ...]
) -> None:
    first = written(tmp_path / "a.jsonl", 600, 0)
    both = first + written(tmp_path / "b.jsonl", 600, 1)
    settings = SHAPE.replace("seq_len = 96", "seq_len = 1") if OPAQUE in parts else SHAPE
    configure(tmp_path, settings, SETTINGS, *parts, code=code)
    assert killed(daemons, tmp_path) >= 3
    stormy = batches(tmp_path)
    assert len(stormy) > 50
    if parts == (ONE,):
        assert texts(tmp_path) == first
    if parts == (TWO,):
        assert sorted(texts(tmp_path)) == sorted(both)
    (tmp_path / "stream").rename(tmp_path / "stormy")
    assert daemons("producer").wait(300) == 0
    assert batches(tmp_path) == stormy
