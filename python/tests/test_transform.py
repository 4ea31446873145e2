"""A producer with functions of its user: ranks receive what they return, whatever dies.

BATCHWEAVE_LONG=1 kills a hundred of their processes in place of forty.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
import webdataset  # type: ignore[import-untyped]
from real_daemons import BINARIES, END, MARKS, Daemons

import batchweave

# The package leaves its files to the garbage collector.
pytestmark = [*MARKS, pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")]

DOCS = Path(__file__).parents[2] / "docs" / "producing.md"

CONFIG = """
store.url = "file://{root}/stream"
producer.name = "p0"
tokenizer.kind = "bytes"
admin.listen = "off"
transform.path = "{root}"
transform.python = "{python}"
"""
TEXTS = """
source.paths = ["{root}/corpus.jsonl"]
stream = {{ slices = 2, rows_per_slice = 2, seq_len = 64, producers = ["p0"] }}
packing.last_batch = "pad"
"""
ARRAYS = """
stream = {{ slices = 2, rows_per_slice = 2, seq_len = 1, producers = ["p0"] }}
packing.mode = "opaque"
packing.last_batch = "pad"
packing.arrays = [
    {{ name = "pixels", dtype = "U8", shape = [2, 3] }},
    {{ name = "score", dtype = "F32" }},
    {{ name = "caption", dtype = "U8" }},
]
"""


def configure(folder: Path, *parts: str, code: str) -> None:
    (folder / "captions.py").write_text(code)
    text = "".join(part.format(root=folder, python=sys.executable) for part in (CONFIG, *parts))
    (folder / "producer.toml").write_text(text)


def texts(folder: Path) -> list[str]:
    """Returns the documents of the stream."""
    flat: list[int] = []
    for batch in batchweave.open(f"file://{folder}/stream"):
        for piece in batch.slices:
            # The last token of a row is the first one of the next.
            flat += piece["tokens"][:, :-1].ravel().tolist()
    found, text = [], []
    for token in flat:
        if token != END:
            text.append(token)
        elif text:
            found.append(bytes(text).decode())
            text = []
    return found


def samples(folder: Path, *names: str) -> list[dict[str, bytes]]:
    """Returns the samples of the stream."""
    found = []
    for batch in batchweave.open(f"file://{folder}/stream"):
        for piece in batch.slices:
            ends = [itertools.pairwise(piece[f"{name}.offsets"].tolist()) for name in names]
            for row in zip(*ends, strict=True):
                parts = zip(names, row, strict=True)
                found.append({name: piece[name][a:b].tobytes() for name, (a, b) in parts})
    return found


def corpus(folder: Path) -> list[str]:
    lines = (folder / "corpus.jsonl").read_text().splitlines()
    return [json.loads(line)["text"] for line in lines]


def test_the_function_of_the_docs_filters_and_strips(daemons: Daemons, tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(# captions\.py\n.*?)```", DOCS.read_text(), re.DOTALL)
    configure(tmp_path, TEXTS, 'transform.function = "captions:clean"\n', code=code)
    assert daemons("producer").wait(300) == 0
    expected = [text.strip() for text in corpus(tmp_path) if len(text.strip()) >= 5]
    assert 0 < len(expected) < len(corpus(tmp_path))
    assert texts(tmp_path) == expected


SLOW = """
import pathlib, time

calls = 0

def wait(document):
    global calls
    calls += 1
    data = pathlib.Path(__file__).parent / "stream" / "data"
    while calls > 64 and not any(data.rglob("*")):
        time.sleep(0.01)
    return document
"""


def test_the_first_batch_of_a_slow_function_waits_for_few_documents(
    daemons: Daemons, tmp_path: Path
) -> None:
    more = 'transform.function = "captions:wait"\ntransform.workers = 1\n'
    configure(tmp_path, TEXTS, more, code=SLOW)
    assert daemons("producer").wait(300) == 0
    assert texts(tmp_path) == corpus(tmp_path)


PIXELS = """
import numpy as np

def decode(sample):
    if sample["json"]["skip"]:
        return None
    number = sample["cls"]
    pixels = np.frombuffer(sample["png"], np.uint8).reshape(-1, 2, 3)
    return {"pixels": pixels[::-1], "score": number / 2, "caption": sample["txt"].upper()}
"""


def test_arrays_of_a_tar_pass_a_function(daemons: Daemons, tmp_path: Path) -> None:
    chance, expected = np.random.default_rng(3), []
    with webdataset.TarWriter(str(tmp_path / "a.tar")) as shard:
        for number in range(40):
            pixels = chance.integers(0, 256, (number % 4, 2, 3), np.uint8)
            skip, text = number % 7 == 0, f"Bild {number} ü"
            parts = {"png": pixels.tobytes(), "cls": number, "txt": text, "json": {"skip": skip}}
            shard.write({"__key__": f"{number:03}", **parts})
            if not skip:
                score = np.float32(number / 2).tobytes()
                both = {"pixels": pixels[::-1].tobytes(), "score": score}
                expected.append({**both, "caption": text.upper().encode()})
    more = 'source.paths = ["{root}/a.tar"]\ntransform.function = "captions:decode"\n'
    more += 'transform.fields = ["jpg;png", "json", "cls", "txt"]\n'
    code = PIXELS.replace('sample["png"]', 'sample["jpg"]')
    configure(tmp_path, ARRAYS, more, code=code)
    assert daemons("producer").wait(300) == 0
    assert samples(tmp_path, "pixels", "score", "caption") == expected


ROWS = """
import numpy as np

def decode(row):
    image = row["image"]
    assert isinstance(image["bytes"], bytes) and image["path"] is None, image
    pixels = np.frombuffer(image["bytes"], np.uint8).reshape(-1, 2, 3)
    return {"pixels": pixels, "score": row["score"], "caption": row["text"]}
"""


def test_images_of_parquet_pass_a_function(daemons: Daemons, tmp_path: Path) -> None:
    chance = np.random.default_rng(4)
    images = [chance.integers(0, 256, (n % 3 + 1, 2, 3), np.uint8).tobytes() for n in range(30)]
    captions = [f'["{n}", "ü"]' for n in range(30)]
    rows = {
        "image": pa.array([{"bytes": image, "path": None} for image in images]),
        "score": pa.array(np.arange(30, dtype=np.float32)),
        "text": captions,
        "unused": pa.array([b"\xff"] * 30),
    }
    pq.write_table(pa.table(rows), tmp_path / "a.parquet", row_group_size=7)
    more = 'source.paths = ["{root}/a.parquet"]\ntransform.function = "captions:decode"\n'
    more += 'transform.fields = ["image", "score", "text"]\n'
    configure(tmp_path, ARRAYS, more, code=ROWS)
    assert daemons("producer").wait(300) == 0
    found = samples(tmp_path, "pixels", "score", "caption")
    assert [sample["pixels"] for sample in found] == images
    assert [sample["caption"].decode() for sample in found] == captions
    assert [np.frombuffer(s["score"], np.float32)[0] for s in found] == list(range(30))


KILLS = 100 if os.environ.get("BATCHWEAVE_LONG") else 40

DRAWN = """
import os, time

FOLDER = os.path.dirname(__file__)

def clean(document):
    time.sleep(0.002)
    open(f"{FOLDER}/{os.getpid()}.ready", "w").close()
    text = document["text"]
    return None if len(text) % 5 == 0 else {"text": text[::-1]}
"""


def workers(producer: int) -> list[int]:
    """Returns the processes of the function."""
    path = Path(f"/proc/{producer}/task")
    children = []
    for task in list(path.iterdir()) if path.exists() else []:
        try:
            children += [int(pid) for pid in (task / "children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return children


def test_deaths_lose_and_double_nothing(daemons: Daemons, tmp_path: Path) -> None:
    with (tmp_path / "corpus.jsonl").open("a") as lines:
        lines.writelines(json.dumps({"text": f"{n} " * (n % 60 + 1)}) + "\n" for n in range(3000))
    more = 'transform.function = "captions:clean"\ntransform.workers = 3\ncommit.linger = "0ms"\n'
    more += 'packing.object_bytes = "16KiB"\n'
    configure(tmp_path, TEXTS, more, code=DRAWN)
    chance, killed, restarts = random.Random(5), 0, 0
    producer = daemons("producer")
    while killed < KILLS or restarts < 3:
        if producer.poll() is not None:
            break
        time.sleep(chance.random() * 0.05)
        if restarts < 3 and killed >= KILLS // 4 * (restarts + 1):
            producer.kill()
            producer.wait()
            restarts += 1
            producer = daemons("producer")
        elif found := [p for p in workers(producer.pid) if (tmp_path / f"{p}.ready").exists()]:
            try:
                os.kill(chance.choice(found), signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                continue
    assert producer.wait(300) == 0
    assert killed >= 20, "no process was killed"
    expected = [text[::-1] for text in corpus(tmp_path) if len(text) % 5]
    assert texts(tmp_path) == expected


def check(folder: Path) -> tuple[int, str]:
    command = [str(BINARIES / "batchweave-producer"), "--config", str(folder / "producer.toml")]
    command.append("--check")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.usefixtures("daemons")
def test_the_check_finds_a_function_that_is_not_deterministic(tmp_path: Path) -> None:
    function = 'transform.function = "captions:clean"\n'
    configure(tmp_path, TEXTS, function, code=DRAWN)
    status, text = check(tmp_path)
    assert status == 0, text
    dropped = sum(len(text) % 5 == 0 for text in corpus(tmp_path))
    assert f"made the same of 400 documents in two processes; it left out {dropped}" in text
    code = 'def clean(document):\n    return {"text": " ".join({*"abcdefgh"})}\n'
    configure(tmp_path, TEXTS, function, code=code)
    status, text = check(tmp_path)
    assert status != 0
    assert "captions:clean made different documents of" in text
    assert "corpus.jsonl:" in text


def test_a_bad_document_stops_or_is_left_out(daemons: Daemons, tmp_path: Path) -> None:
    code = 'def clean(document):\n    assert len(document["text"]) % 5\n    return document\n'
    function = 'transform.function = "captions:clean"\n'
    configure(tmp_path, TEXTS, function, code=code)
    assert daemons("producer").wait(300) != 0
    skip = 'source.on_bad_document = "skip"\n'
    configure(tmp_path, TEXTS, function, skip, code=code)
    assert daemons("producer").wait(300) == 0
    assert texts(tmp_path) == [text for text in corpus(tmp_path) if len(text) % 5]


SLEEPING = "import time\ndef clean(document):\n    time.sleep(1000)\n"
# Its regular expression takes for ever, and holds the lock that other threads of Python need.
STUCK = """
import os, re, time
def clean(document):
    if os.fork() == 0:
        os.setsid()
        time.sleep(1000)
    open(os.path.join(os.path.dirname(__file__), "stuck"), "w").close()
    re.match("(a+)+$", "a" * 60 + "b")
"""


@pytest.mark.parametrize("code", [SLEEPING, STUCK])
def test_processes_end_with_a_producer_that_is_killed(
    daemons: Daemons, tmp_path: Path, code: str
) -> None:
    configure(tmp_path, TEXTS, 'transform.function = "captions:clean"\n', code=code)
    producer, stuck = daemons("producer"), tmp_path / "stuck"
    found: list[int] = []
    while not found or (code == STUCK and (len(found) < 2 or not stuck.exists())):
        time.sleep(0.05)
        found = workers(producer.pid)
        found += [child for worker in found for child in workers(worker)]
    producer.kill()
    gone = threading.Event()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and any(map(lives, found)):
        gone.wait(0.1)
    assert not any(map(lives, found))


def lives(process: int) -> bool:
    """False also for one that nobody has waited for."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes() != b""
    except (FileNotFoundError, ProcessLookupError):
        return False
