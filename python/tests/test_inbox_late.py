"""A PUT of a replaced writer that arrives late, and folders that another process did not sync."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest
from inbox_world import in_folder

from batchweave import inbox
from batchweave.inbox._local import LocalFolder
from batchweave.inbox._store import file_name


def late_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Leaves an inbox in which the PUT of file 1 came after a successor's files were deleted."""
    folder = place / "w"
    old = inbox.open(place, "w", linger=60)
    old.put({"text": "old 0"})
    old.flush()
    old.put({"text": "old 1"})
    real = LocalFolder.create

    def sleeps(self: LocalFolder, name: str, data: bytes) -> None:
        monkeypatch.setattr(LocalFolder, "create", real)
        with inbox.open(place, "w") as new:
            for number in range(3):
                new.put({"text": f"new {number}"})
                new.flush()
        for number in range(3):
            (folder / file_name(number)).unlink()
        self.create(name, data)

    monkeypatch.setattr(LocalFolder, "create", sleeps)
    with pytest.raises(inbox.WriterFencedError):
        old.flush()
    assert old.durable_rows == 1
    with pytest.raises(inbox.WriterFencedError):
        old.close()
    assert sorted(each.name for each in folder.iterdir()) == [file_name(1), file_name(3)]
    return folder


def test_a_file_that_came_late_is_deleted_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = late_file(tmp_path, monkeypatch)
    with caplog.at_level(logging.WARNING, "batchweave"), inbox.open(tmp_path, "w") as writer:
        assert writer.next_row == 4
        writer.put({"text": "third"})
    assert [file.number for file in in_folder(folder)] == [3, 4]
    assert f"{file_name(1)} in {folder} was stored late" in caplog.text
    assert "none of its rows was reported as durable" in caplog.text


def test_a_late_file_that_may_not_be_deleted_stops_no_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = late_file(tmp_path, monkeypatch)

    def refused(self: LocalFolder, name: str) -> None:
        del self
        raise inbox.StoreRefusedError(f"cannot delete {name}: denied (test)")

    with monkeypatch.context() as patch:
        patch.setattr(LocalFolder, "delete", refused)
        with inbox.open(tmp_path, "w") as writer:
            writer.put({"text": "third"})
    assert [file.number for file in in_folder(folder)] == [1, 3, 4]
    assert "delete it by hand" in caplog.text
    # The chain of instances is in the newer files, too.
    inbox.open(tmp_path, "w").close()
    assert [file.number for file in in_folder(folder)] == [3, 4]


def test_a_file_of_an_earlier_release_names_no_instances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late_file(tmp_path, monkeypatch)
    monkeypatch.setattr("batchweave.inbox._files._takeovers", lambda _: ())
    with pytest.raises(inbox.InboxDamagedError, match=f"misses {file_name(2)}"):
        inbox.open(tmp_path, "w")


class Syncs:
    """Notes the folders that are synced, and fails some."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.folders: list[Path] = []
        self.fail: set[Path] = set()
        real = os.fsync

        def fsync(opened: int) -> None:
            path = Path(f"/proc/self/fd/{opened}").readlink()
            if path in self.fail:
                raise OSError(errno.EIO, "Input/output error")
            real(opened)
            if path.is_dir():
                self.folders.append(path)

        patch.setattr(os, "fsync", fsync)


def test_folders_of_another_process_are_synced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another process made them, and was killed before it synced them.
    (tmp_path / "a/box/w").mkdir(parents=True)
    syncs = Syncs(monkeypatch)
    with inbox.open(tmp_path / "a/box", "w") as writer:
        for number in range(2):
            writer.put({"text": str(number)})
            writer.flush()
    above = [tmp_path, tmp_path / "a", tmp_path / "a/box"]
    assert [syncs.folders.count(folder) for folder in above] == [1, 1, 1]
    assert syncs.folders.index(above[2]) < syncs.folders.index(tmp_path / "a/box/w")


def test_a_file_whose_folder_could_not_be_synced_counts_after_another_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs(monkeypatch)
    writer = inbox.open(tmp_path, "w", linger=60, deadline=0)
    writer.put({"text": "a"})
    folder = tmp_path / "w"
    syncs.fail = {folder}
    for _ in range(2):
        with pytest.raises(inbox.StoreNotAnsweringError, match="Input/output error"):
            writer.flush()
        assert (writer.durable_rows, len(in_folder(folder))) == (0, 1)
    syncs.fail.clear()
    syncs.folders.clear()
    writer.close()
    assert writer.durable_rows == 1
    assert folder in syncs.folders


def test_rows_of_a_killed_predecessor_are_synced_before_they_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with inbox.open(tmp_path, "w") as writer:
        writer.put({"text": "a"})
    syncs = Syncs(monkeypatch)
    with inbox.open(tmp_path, "w") as writer:
        assert writer.durable_rows == 1
    assert {tmp_path, tmp_path / "w"} <= {*syncs.folders}
