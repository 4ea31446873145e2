"""Bad names, locations and folders: one clear error each, and nothing is changed."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from inbox_world import in_folder, read_as_producer

from batchweave import inbox
from batchweave.inbox._local import LocalFolder


def fill(folder: Path, name: str = "w", files: int = 3) -> Path:
    with inbox.open(folder, name) as writer:
        for number in range(files):
            writer.put({"text": str(number)}, state=number)
            writer.flush()
    return folder / name


def file_of(number: int) -> str:
    return f"{number:020}.parquet"


@pytest.mark.parametrize("name", ["", "A", "-a", ".a", "a b", "a/b", "ä", "a" * 64, None, "a\n"])
def test_a_name_is_that_of_a_producer(tmp_path: Path, name: Any) -> None:
    with pytest.raises(inbox.InboxArgumentError, match="is not a valid writer's name: 1 to 63"):
        inbox.open(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("location", "more", "why"),
    [
        ("ftp://host/x", {}, "is not the location of an inbox: s3://bucket/inbox"),
        ("s3://", {}, "is not the location of an inbox"),
        ("s3:///x", {}, "is not the location of an inbox"),
        ("s3://b/x?y=1", {}, "is not the location of an inbox"),
        ("s3://b/../x", {}, "is not the location of an inbox"),
        ("az://c@account.dfs.core.windows.net/x", {}, "is not the location of an inbox"),
        ("abfss://c/x", {}, "is not the location of an inbox"),
        ("file://host/x", {}, "is not a local folder: write file:///data/inbox"),
        ("", {}, "is empty"),
        (5, {}, "5 is not the location of an inbox"),
        ("/tmp/x", {"endpoint": "http://x"}, "endpoint= is for s3:// only"),
        ("gs://b/x", {"region": "x"}, "region= is for s3:// only"),
        ("/tmp/x", {"store": object()}, "give one of them"),
        ("/tmp/x", {"file_bytes": 0}, "file_bytes=0: give bytes from 1"),
        ("/tmp/x", {"file_bytes": 1.5}, "file_bytes=1.5"),
        ("/tmp/x", {"linger": -1}, "linger=-1: give seconds"),
        ("/tmp/x", {"deadline": float("inf")}, "deadline=inf"),
    ],
)
def test_a_wrong_argument_is_named(location: Any, more: dict[str, Any], why: str) -> None:
    with pytest.raises(inbox.InboxArgumentError) as refused:
        inbox.open(location, "w", **more)
    assert why in str(refused.value)


def test_an_argument_with_a_typing_error_has_the_nearest_one(tmp_path: Path) -> None:
    wrong: Any = {"lingr": 1}
    with pytest.raises(TypeError, match=r"no argument lingr=: did you mean linger=\?"):
        inbox.open(tmp_path, "w", **wrong)


def test_the_extra_is_named_where_a_package_is_missing(tmp_path: Path) -> None:
    script = """
import sys
sys.modules[sys.argv[1]] = None
from batchweave import inbox
try:
    inbox.open(sys.argv[2], "w")
except inbox.InboxExtraError as missing:
    print(missing)
"""
    for missing, location in (("pyarrow", str(tmp_path)), ("obstore.store", "s3://b/x")):
        command = [sys.executable, "-c", script, missing, location]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert 'pip install "batchweave[inbox]"' in said, said
        assert missing.partition(".")[0] in said


def test_the_package_imports_neither_package_of_the_extra_by_itself() -> None:
    script = "import sys, batchweave.inbox as i; print({'pyarrow', 'obstore'} & {*sys.modules})"
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert said.stdout == "set()\n"


def test_a_missing_file_is_named_and_may_be_allowed(tmp_path: Path) -> None:
    folder = fill(tmp_path, files=4)
    (folder / file_of(1)).rename(tmp_path / "kept")
    with pytest.raises(inbox.InboxDamagedError) as damaged:
        inbox.open(tmp_path, "w")
    assert damaged.value.key == file_of(1)
    assert "restore the file" in str(damaged.value)
    with inbox.open(tmp_path, "w", allow_gaps=True) as writer:
        assert writer.next_row == 4
    (tmp_path / "kept").rename(folder / file_of(1))
    with inbox.open(tmp_path, "w") as writer:
        assert writer.next_row == 4


def test_files_that_producers_deleted_are_not_missed(tmp_path: Path) -> None:
    folder = fill(tmp_path, files=4)
    for number in range(3):
        (folder / file_of(number)).unlink()
    with inbox.open(tmp_path, "w") as writer:
        assert (writer.next_row, writer.state) == (4, 3)
        writer.put({"text": "4"})
    assert sorted(path.name for path in folder.iterdir()) == [file_of(3), file_of(4)]


def test_a_restored_backup_is_found_by_the_rows_that_the_caller_knows(tmp_path: Path) -> None:
    folder = fill(tmp_path)
    (folder / file_of(2)).unlink()
    with pytest.raises(inbox.InboxRewoundError, match="holds 2 rows of this writer, and 3 were"):
        inbox.open(tmp_path, "w", at_least=3)
    inbox.open(tmp_path, "w", at_least=2).close()


def test_a_newest_file_that_vanishes_is_an_error(tmp_path: Path) -> None:
    folder = fill(tmp_path, files=1)

    def vanish(self: Any, name: str, count: int) -> None:
        del self, name, count

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalFolder, "tail", vanish)
        with pytest.raises(inbox.InboxDamagedError, match=f"misses {file_of(0)}"):
            inbox.open(tmp_path, "w")
    assert (folder / file_of(0)).exists()


def metadata_of(**change: str | None) -> dict[str, str]:
    whole = {
        "writer": "w",
        "number": "0",
        "first_row": "0",
        "rows": "1",
        "instance": "a" * 16,
        "state": "null",
        "state_row": "0",
    }
    changed = {name: value for name, value in {**whole, **change}.items() if value is not None}
    return {f"batchweave.{name}": value for name, value in changed.items()}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"writer": "other"}, "it belongs to the writer 'other'"),
        ({"number": "7"}, "it was written as file 7"),
        ({"rows": "2"}, "it has 1 rows, its metadata 2"),
        ({"first_row": "-1"}, "batchweave.first_row is '-1', expected a number"),
        ({"first_row": None}, "its metadata lacks batchweave.first_row"),
        ({"state": "{"}, "batchweave.state is not JSON"),
    ],
)
def test_a_file_of_another_inbox_is_named(
    tmp_path: Path, change: dict[str, str | None], why: str
) -> None:
    (tmp_path / "w").mkdir()
    path = tmp_path / "w" / file_of(0)
    table = pa.table({"text": ["a"]})
    with pq.ParquetWriter(path, table.schema) as to:
        to.write_table(table)
        to.add_key_value_metadata(metadata_of(**change))
    before = path.read_bytes()
    with pytest.raises(inbox.InboxDamagedError) as damaged:
        inbox.open(tmp_path, "w")
    assert why in str(damaged.value)
    assert "take away the foreign file" in str(damaged.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("data", [b"", b"PAR1", b"x" * 100, b"x" * 92 + b"\xff\xff\xff\x7fPAR1"])
def test_a_file_that_is_not_parquet_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / file_of(0)).write_bytes(data)
    with pytest.raises(inbox.InboxDamagedError, match="it is not a Parquet file"):
        inbox.open(tmp_path, "w")


def test_a_footer_longer_than_the_first_read_is_read(tmp_path: Path) -> None:
    row = {f"column_{number:0200}": number for number in range(400)}
    with inbox.open(tmp_path, "w") as writer:
        writer.put(row)
    assert (tmp_path / "w" / file_of(0)).stat().st_size > 64 * 1024
    with inbox.open(tmp_path, "w") as writer:
        assert writer.next_row == 1


def test_a_file_system_that_is_full_is_named_and_flush_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = inbox.open(tmp_path, "w", linger=60)
    writer.put({"text": "a"})

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        for _ in range(2):
            with pytest.raises(inbox.StoreRefusedError, match="No space left on device; make room"):
                writer.flush()
        assert list((tmp_path / "w").iterdir()) == [], "half a file"
        assert writer.durable_rows == 0
    writer.close()
    assert read_as_producer(in_folder(tmp_path / "w")) == [{"text": "a"}]


LIMITED = """
import resource, signal, sys
from batchweave import inbox
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
writer = inbox.open(sys.argv[1], "w")
import random
writer.put({"text": random.Random(1).randbytes(100_000).hex()})
try:
    writer.flush()
except inbox.StoreRefusedError as refused:
    print(refused)
"""


def test_a_real_limit_on_file_sizes_leaves_no_half_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIMITED, str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "File too large; make room" in said.stdout, said
    assert "1 rows are not known to be durable" in said.stderr
    assert list((tmp_path / "w").iterdir()) == []


def test_a_path_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "w").write_text("a file")
    with pytest.raises(inbox.StoreRefusedError, match="Not a directory; choose a folder"):
        inbox.open(tmp_path, "w")


def test_temporary_files_of_killed_writers_are_removed_and_no_others(tmp_path: Path) -> None:
    folder = fill(tmp_path)
    (folder / ".new-killed").write_bytes(b"half")
    (folder / ".new-living").write_bytes(b"half")
    (folder / "other").write_bytes(b"")
    with (folder / ".new-living").open() as living:
        fcntl.flock(living, fcntl.LOCK_EX)
        inbox.open(tmp_path, "w").close()
        left = {path.name for path in folder.iterdir()}
    assert left == {".new-living", "other", *map(file_of, range(3))}


def test_a_copied_inbox_goes_on_elsewhere(tmp_path: Path) -> None:
    fill(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with inbox.open(tmp_path / "b", "w") as writer:
        assert (writer.next_row, writer.state) == (3, 2)
