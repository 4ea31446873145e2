"""Files that fields and columns of the documents name: ranks receive their bytes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from inbox_world import DEV_S3, DevS3
from named_files_world import Objects, configure, images, lines, put, received, stored, write
from real_daemons import BINARIES, MARKS, Daemons

pytestmark = [*MARKS, *DEV_S3]


def test_lines_name_files_of_their_folder(daemons: Daemons, tmp_path: Path) -> None:
    expected = write(tmp_path / "train", images(700, 1))
    names = [f"images/{number}.png" for number in range(700)]
    # As others write the same file.
    names[3], names[4] = "./images/3.png", str(tmp_path / "train" / "images" / "4.png")
    (tmp_path / "train" / "metadata.jsonl").write_text(lines(*names))
    configure(tmp_path, "file_name", f'source.paths = ["{tmp_path}/train/*.jsonl"]')
    assert daemons("producer").wait(600) == 0
    assert received(tmp_path) == expected


def test_structs_of_parquet_name_files_below_the_root(daemons: Daemons, tmp_path: Path) -> None:
    expected = write(tmp_path / "root", images(50, 2))
    rows = [{"bytes": None, "path": f"images/{number}.png"} for number in range(50)]
    table = pa.table({"image": rows, "number": range(50)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    more = f'source.paths = ["{tmp_path}/a.parquet"]\nsource.root = "{tmp_path}/root"'
    configure(tmp_path, "image.path", more)
    assert daemons("producer").wait(600) == 0
    assert received(tmp_path) == expected


def test_files_that_cannot_be_used_are_bad_documents(
    daemons: Daemons, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (data, size), *_ = images(1, 3)
    root = tmp_path / "root"
    write(root, [(data, size)])
    (tmp_path / "secret").write_bytes(data)
    (root / "link").symlink_to("../secret")
    (root / "large").write_bytes(bytes(10_001))
    (root / "half").write_bytes(data + bytes(6_000 - len(data)))
    os.mkfifo(root / "fifo")
    bad = {
        "../secret": "is a path outside the allowed root",
        "images/../../secret": "is a path outside the allowed root",
        str(tmp_path / "secret"): "is a path outside the allowed root",
        "s3://bucket/images/0.png": "is a path outside the allowed root",
        "link": "is a path outside the allowed root",
        "images": "is not a regular file",
        "fifo": "is not a regular file",
        "images/1.png": "does not exist below",
        "large": "makes the document larger than 10000 bytes",
        "": "can't be read: the path is empty",
    }
    values = ["half", *bad, None, 7, "images/0.png"]
    (root / "metadata.jsonl").write_text(lines(*values))
    more = (
        f'source.paths = ["{root}/metadata.jsonl"]\nsource.max_document_bytes = "10000B"\n'
        'source.on_bad_document = "skip"\n'
    )
    configure(tmp_path, "file_name", more)
    assert daemons("producer").wait(600) == 0
    log = capfd.readouterr().err
    for path, why in bad.items():
        assert f"file {json.dumps(path)} {why}" in log.replace('\\"', '"'), (path, log)
    assert "is null, not the path of a file" in log
    assert "is not the path of a file, which is text" in log
    last = len(values) - 1
    # One file for two arrays counts once: "half" is more than half of the bound.
    assert received(tmp_path) == [
        (data + bytes(6_000 - len(data)), 0, size),
        (data, last, size),
    ]


def test_a_file_that_cannot_be_read_stops_the_producer(
    daemons: Daemons, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "metadata.jsonl").write_text(lines("images/0.png"))
    more = f'source.paths = ["{tmp_path}/metadata.jsonl"]\nsource.on_bad_document = "skip"\n'
    configure(tmp_path, "file_name", more + f'source.root = "{tmp_path}/lost"\n')
    assert daemons("producer").wait(600) == 65
    assert f"source.root: {tmp_path}/lost can't be used" in capfd.readouterr().err
    assert not (tmp_path / "stream").exists() or not any((tmp_path / "stream").rglob("*.tgb"))


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., DevS3]]:
    started: list[DevS3] = []

    def start(*arguments: str) -> DevS3:
        started.append(DevS3(*arguments))
        for name, value in started[-1].environment.items():
            monkeypatch.setenv(name, value)
        return started[-1]

    yield start
    for server in started:
        server.end()


def test_lines_of_objects_name_objects_beside_them(
    daemons: Daemons, tmp_path: Path, start: Callable[..., DevS3]
) -> None:
    objects = Objects(start())
    expected = put(objects, "set/train/images", images(300, 4))
    names = [f"images/{number}.png" for number in range(300)]
    names[1] = "s3://batchweave/set/train/images/1.png"
    objects.put("set/train/metadata.jsonl", lines(*names).encode())
    # Outside of the folder, missing, and no key.
    objects.put("set/train/more.jsonl", lines("../secret", "images/lost.png", "ä b").encode())
    more = 'source.paths = ["s3://batchweave/set/train/*.jsonl"]\nsource.on_bad_document = "skip"'
    configure(tmp_path, "file_name", more)
    assert daemons("producer").wait(600) == 0
    assert received(tmp_path) == expected


def test_local_lines_name_objects_of_a_server_that_fails_at_times(
    daemons: Daemons, tmp_path: Path, start: Callable[..., DevS3]
) -> None:
    objects = Objects(start("--faults", "get.error=0.1,get.reset=0.1", "--seed", "5"))
    given = images(120, 5)
    expected = put(objects, "big/images", given)
    rows = [{"bytes": None, "path": f"images/{number}.png"} for number in range(120)]
    pq.write_table(pa.table({"image": rows, "number": range(120)}), tmp_path / "a.parquet")
    more = f'source.paths = ["{tmp_path}/a.parquet"]\nsource.root = "s3://batchweave/big"\n'
    configure(tmp_path, "image.path", more)
    assert daemons("producer").wait(600) == 0
    assert received(tmp_path) == expected


def test_a_server_that_is_gone_makes_no_bad_documents(
    tmp_path: Path, start: Callable[..., DevS3]
) -> None:
    server = start()
    put(Objects(server), "images", images(1, 6))
    (tmp_path / "a.jsonl").write_text(lines("images/0.png"))
    more = (
        f'source.paths = ["{tmp_path}/a.jsonl"]\nsource.root = "s3://batchweave"\n'
        'source.on_bad_document = "skip"\n'
    )
    configure(tmp_path, "file_name", more)
    server.process.kill()
    server.process.wait()
    command = [str(BINARIES / "batchweave-producer"), "--config", str(tmp_path / "producer.toml")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode not in (0, 65), ended.stderr
    assert "bad document" not in ended.stderr
    assert not any((tmp_path / "stream").rglob("*.tgb"))


def test_a_producer_that_is_killed_makes_the_same_batches(daemons: Daemons, tmp_path: Path) -> None:
    chance = random.Random(7)
    expected = write(tmp_path / "train", images(400, 7))
    names = [f"images/{number}.png" for number in range(400)]
    (tmp_path / "train" / "metadata.jsonl").write_text(lines(*names))
    more = f'source.paths = ["{tmp_path}/train/metadata.jsonl"]\ncommit.max_batches = 1\n'
    configure(tmp_path, "file_name", more + 'packing.object_bytes = "1B"\n')
    for _ in range(3):
        producer = daemons("producer")
        wanted = chance.randrange(2, 20) + stored(tmp_path)
        while stored(tmp_path) < wanted and producer.poll() is None:
            time.sleep(0.01)
        producer.send_signal(signal.SIGKILL)
        producer.wait(60)
    assert daemons("producer").wait(600) == 0
    assert received(tmp_path) == expected
