"""Named files of several sources and inboxes, without permission, and changed between starts."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from inbox_world import DEV_S3, DevS3
from named_files_world import (
    Objects,
    Sample,
    configure,
    images,
    lines,
    put,
    received,
    stored,
    write,
)
from real_daemons import BINARIES, MARKS, Daemons

from batchweave import inbox

pytestmark = [*MARKS, *DEV_S3]

SKIP = 'source.on_bad_document = "skip"\n'


def producer(
    folder: Path, *options: str, before: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    command = [str(BINARIES / "batchweave-producer"), "--config", str(folder / "producer.toml")]
    return subprocess.run(
        [*before, *command, *options],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "NO_COLOR": "1", **environment},
    )


def table(path: Path, numbers: range, **more: list[str]) -> None:
    rows = [{"bytes": None, "path": f"images/{number - numbers[0]}.png"} for number in numbers]
    names = [row["path"] for row in rows]
    columns = {"image": rows, "file_name": names, "number": list(numbers), **more}
    pq.write_table(pa.table(columns), path, row_group_size=7)


def several(folder: Path, *, shuffled: bool) -> list[Sample]:
    """Writes two sources, each with images beside it, and the settings. Returns all samples."""
    first = write(folder / "a", images(40, 11))
    names = [f"images/{number}.png" for number in range(40)]
    (folder / "a" / "metadata.json").write_text(lines(*names))
    second = write(folder / "b", images(60, 12))
    table(folder / "b" / "rows", range(100, 160))
    shuffle = 'shuffle = { seed = 1, window = "1MiB" }\n' if shuffled else ""
    more = f"""
mixture.unit = "documents"
[[sources]]
name = "lines"
paths = ["{folder}/a/metadata.json"]
format = "jsonl"
weight = 0.4
{shuffle}[[sources]]
name = "rows"
paths = ["{folder}/b/rows"]
format = "parquet"
weight = 0.6
{shuffle}"""
    configure(folder, "file_name", more)
    return first + [(data, number + 100, size) for data, number, size in second]


@pytest.mark.parametrize("shuffled", [False, True])
def test_each_of_several_sources_names_files_beside_its_own(
    daemons: Daemons, tmp_path: Path, shuffled: bool
) -> None:
    expected = several(tmp_path, shuffled=shuffled)
    assert daemons("producer").wait(600) == 0
    found = received(tmp_path)
    assert sorted(found, key=lambda sample: sample[1]) == expected
    assert ([number for _, number, _ in found] == sorted(n for _, n, _ in found)) is False


def test_several_sources_may_share_a_root(daemons: Daemons, tmp_path: Path) -> None:
    expected = several(tmp_path, shuffled=True)
    (tmp_path / "b" / "images").rename(tmp_path / "images")
    for number in range(40):
        data = tmp_path / "a" / "images" / f"{number}.png"
        data.rename(tmp_path / "images" / f"a{number}.png")
    names = [f"images/a{number}.png" for number in range(40)]
    (tmp_path / "a" / "metadata.json").write_text(lines(*names))
    text = (tmp_path / "producer.toml").read_text()
    text = text.replace("mixture.unit", f'source.root = "{tmp_path}"\nmixture.unit')
    (tmp_path / "producer.toml").write_text(text)
    assert daemons("producer").wait(600) == 0
    assert sorted(received(tmp_path), key=lambda sample: sample[1]) == expected


def test_a_check_reads_the_files_of_each_source(tmp_path: Path) -> None:
    several(tmp_path, shuffled=False)
    (tmp_path / "stream").mkdir()
    checked = producer(tmp_path, "--check")
    assert (checked.returncode, checked.stderr) == (0, ""), checked
    assert checked.stdout.count("its first document can be read") == 2, checked.stdout
    (tmp_path / "b" / "images" / "0.png").unlink()
    checked = producer(tmp_path, "--check")
    assert checked.returncode == 64, checked
    (fault,) = (line for line in checked.stderr.splitlines() if "images/0.png" in line)
    assert f"does not exist below {tmp_path}/b; add it" in fault, fault
    assert list((tmp_path / "stream").iterdir()) == []


def test_a_check_names_a_root_that_is_lost(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines("images/0.png"))
    (tmp_path / "stream").mkdir()
    more = f'source.paths = ["{tmp_path}/a.jsonl"]\nsource.root = "{tmp_path}/lost"\n'
    configure(tmp_path, "file_name", more)
    checked = producer(tmp_path, "--check")
    assert checked.returncode == 64, checked
    assert f"source.root: {tmp_path}/lost can't be used" in checked.stderr, checked


@pytest.mark.parametrize("root", [False, True])
def test_rows_of_an_inbox_name_files(tmp_path: Path, programs: Path, root: bool) -> None:
    assert programs.exists()
    given = images(60, 13)
    expected = write(tmp_path / "root" if root else tmp_path / "inbox" / "w", given)
    with inbox.open(tmp_path / "inbox", "w") as writer:
        for number in range(60):
            writer.put({"file_name": f"images/{number}.png", "number": number})
            if number % 25 == 0:
                writer.flush()
        writer.finish()
    (tmp_path / "stream").mkdir()
    more = f"""
source.paths = ["{tmp_path}/inbox"]
source.inbox = true
source.follow_every = "50ms"
inbox = {{ writers = ["w"], delete = "committed" }}
"""
    configure(tmp_path, "file_name", more + (f'source.root = "{tmp_path}/root"\n' if root else ""))
    ended = producer(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert received(tmp_path) == expected


def without_permissions() -> tuple[str, ...]:
    """Returns what to run a program with so that modes of files hold for it, also as root."""
    if os.geteuid() != 0:
        return ()
    return ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


@pytest.mark.parametrize("folder", [False, True])
def test_a_file_without_permission_stops_the_producer(tmp_path: Path, folder: bool) -> None:
    write(tmp_path, images(3, 14))
    (tmp_path / "a.jsonl").write_text(lines("images/0.png", "images/1.png"))
    (tmp_path / "stream").mkdir()
    configure(tmp_path, "file_name", f'source.paths = ["{tmp_path}/a.jsonl"]\n' + SKIP)
    closed = tmp_path / "images"
    closed = closed if folder else closed / "1.png"
    mode = closed.stat().st_mode
    closed.chmod(0)
    ended = producer(tmp_path, before=without_permissions())
    closed.chmod(mode)
    assert ended.returncode == 65, ended.stderr
    assert "images/" in ended.stderr, ended.stderr
    assert "Permission denied" in ended.stderr, ended.stderr
    assert "bad document" not in ended.stderr
    ended = producer(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert [number for _, number, _ in received(tmp_path)] == [0, 1]


@pytest.fixture
def start() -> Iterator[Callable[..., DevS3]]:
    started: list[DevS3] = []

    def start(*arguments: str) -> DevS3:
        started.append(DevS3(*arguments))
        return started[-1]

    yield start
    for server in started:
        server.end()


def test_an_object_without_permission_stops_the_producer(
    tmp_path: Path, start: Callable[..., DevS3]
) -> None:
    bucket = "arn:aws:s3:::batchweave"
    allowed = [f"{bucket}/set/a.jsonl", f"{bucket}/set/images/0.png"]
    policy = [
        {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": bucket},
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": allowed},
    ]
    text = json.dumps({"Version": "2012-10-17", "Statement": policy})
    (tmp_path / "policy.json").write_text(text)
    server = start("--policy", f"limited={tmp_path / 'policy.json'}")
    objects = Objects(server)
    put(objects, "set/images", images(2, 15))
    objects.put("set/a.jsonl", lines("images/0.png", "images/1.png").encode())
    (tmp_path / "stream").mkdir()
    more = 'source.paths = ["s3://batchweave/set/a.jsonl"]\n'
    configure(tmp_path, "file_name", more + SKIP)
    environment = {**server.environment, "AWS_ACCESS_KEY_ID": "limited"}
    checked = producer(tmp_path, "--check", **environment)
    assert checked.returncode == 0, checked.stderr
    ended = producer(tmp_path, **environment)
    assert ended.returncode not in (0, 65), ended.stderr
    assert "set/images/1.png" in ended.stderr, ended.stderr
    assert "s3:GetObject" in ended.stderr, ended.stderr
    assert "bad document" not in ended.stderr
    ended = producer(tmp_path, **server.environment)
    assert ended.returncode == 0, ended.stderr
    assert [number for _, number, _ in received(tmp_path)] == [0, 1]


def test_another_root_or_path_is_refused_at_a_restart(tmp_path: Path) -> None:
    expected = write(tmp_path / "train", images(100, 16))
    last = tmp_path / "train" / "images" / "99.png"
    hidden = last.rename(tmp_path / "hidden")
    names = [f"images/{number}.png" for number in range(100)]
    (tmp_path / "train" / "metadata.jsonl").write_text(lines(*names))
    (tmp_path / "stream").mkdir()
    more = f'source.paths = ["{tmp_path}/train/metadata.jsonl"]\n'
    configure(tmp_path, "file_name", more)
    ended = producer(tmp_path)
    assert ended.returncode == 65, ended.stderr
    committed = stored(tmp_path)
    hidden.rename(last)
    right = (tmp_path / "producer.toml").read_text()
    root = f'source.root = "{tmp_path}/train"\n'
    for wrong, why in [
        (right + root, f'source.root: was null, is "{tmp_path}/train"'),
        (
            right.replace('dtype = "U8", path = true', 'dtype = "U8"'),
            'packing.arrays: was ["file file_name","number","file file_name"], is ["file_name",',
        ),
    ]:
        (tmp_path / "producer.toml").write_text(wrong)
        ended = producer(tmp_path)
        assert ended.returncode not in (0, 65), ended.stderr
        assert why in ended.stderr, ended.stderr
        assert stored(tmp_path) == committed
    (tmp_path / "producer.toml").write_text(right)
    ended = producer(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert received(tmp_path) == expected
