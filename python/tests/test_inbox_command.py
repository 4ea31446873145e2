"""`batchweave inbox` on a folder that real writers fill and a real producer reads."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from inbox_world import DEV_S3
from real_daemons import BINARIES

from batchweave import inbox

pytestmark = DEV_S3

ROWS = 40
CONFIG = """
store.url = "file://{root}/stream"
stream = {{ slices = 2, rows_per_slice = 2, seq_len = 32, producers = ["p0"] }}
producer.name = "p0"
source.inbox = true
source.follow_every = "50ms"
source.paths = ["{root}/inbox"]
inbox = {{ writers = ["w0", "w1"], delete = "committed" }}
tokenizer.kind = "bytes"
packing.last_batch = "pad"
commit.linger = "10ms"
"""


def write(root: Path, name: str) -> None:
    """Puts two files of rows."""
    with inbox.open(root / "inbox", name) as writer:
        for number in range(2 * ROWS):
            writer.put({"text": f"row {number} of {name}"})
            if number == ROWS - 1:
                writer.flush()


def command(root: Path, *words: str) -> tuple[int, Any]:
    """Returns the exit code and the JSON of `batchweave inbox`."""
    verb, *options = words
    program = [str(BINARIES / "batchweave"), "inbox", verb, str(root / "inbox"), "--json"]
    done = subprocess.run([*program, *options], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def produce(root: Path) -> None:
    """Runs a producer until both writers have ended and all is committed."""
    (root / "stream").mkdir(exist_ok=True)
    (root / "p0.toml").write_text(CONFIG.format(root=root))
    subprocess.run(
        [str(BINARIES / "batchweave-producer"), "--config", str(root / "p0.toml")], check=True
    )


def test_rows_are_listed_deleted_and_each_in_the_stream_once(
    tmp_path: Path, programs: Path
) -> None:
    assert programs.exists()
    store = ["--store", f"file://{tmp_path}/stream"]
    assert command(tmp_path, "ls", *store)[1] == {
        "inbox": f"file://{tmp_path}/inbox",
        "writers": [],
        "stream": None,
    }
    for name in ("w0", "w1"):
        write(tmp_path, name)
    writers = command(tmp_path, "ls")[1]["writers"]
    row = {"files": 2, "rows_durable": 2 * ROWS, "ended": False, "rows_committed": None}
    assert [{**writer, **row} for writer in writers] == writers
    for name in ("w0", "w1"):
        inbox.open(tmp_path / "inbox", name).finish()
    produce(tmp_path)
    code, listed = command(tmp_path, "ls", *store)
    row = {"files": 1, "rows_durable": 2 * ROWS, "ended": True, "rows_committed": 2 * ROWS}
    assert [{**writer, **row, "producer": "p0"} for writer in listed["writers"]] == listed[
        "writers"
    ]
    assert code == 0
    assert listed["stream"]["steps"] > 10
    only = command(tmp_path, "ls", "--writer", "w1", *store)[1]["writers"]
    assert [writer["name"] for writer in only] == ["w1"]
    code, found = command(tmp_path, "verify", *store)
    assert (code, found["rows_once"], found["faults"]) == (0, 4 * ROWS, [])


def test_a_file_that_is_not_the_one_that_was_read_is_named(tmp_path: Path, programs: Path) -> None:
    assert programs.exists()
    for name in ("w0", "w1"):
        write(tmp_path, name)
        inbox.open(tmp_path / "inbox", name).finish()
    produce(tmp_path)
    newest = sorted((tmp_path / "inbox" / "w1").glob("*.parquet"))[-1]
    newest.write_bytes(newest.read_bytes()[:-20] + bytes(20))
    program = [str(BINARIES / "batchweave"), "inbox", "verify", str(tmp_path / "inbox")]
    store = ["--store", f"file://{tmp_path}/stream"]
    done = subprocess.run([*program, *store], capture_output=True, text=True, check=False)
    assert done.returncode == 76
    assert f"/inbox/w1/{newest.name}: not readable as Parquet" in done.stderr


def test_tail_prints_files_that_appear(tmp_path: Path, programs: Path) -> None:
    assert programs.exists()
    write(tmp_path, "w0")
    program = [str(BINARIES / "batchweave"), "inbox", "tail", str(tmp_path / "inbox")]
    tail = subprocess.Popen(
        [*program, "--every", "20ms", "--files", "1"], stdout=subprocess.PIPE, text=True
    )
    assert tail.stdout is not None
    number = 0
    with inbox.open(tmp_path / "inbox", "w0") as writer:
        # The first look prints nothing, and nobody knows when it was.
        while tail.poll() is None:
            writer.put({"text": f"more {number}"})
            writer.flush()
            number += 1
    with tail.stdout as printed:
        assert printed.read().startswith("w0  file ")
    assert tail.returncode == 0
