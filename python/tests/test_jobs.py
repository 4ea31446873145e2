"""Jobs of engines without an engine: attempts, the list of files, lost answers, taken names."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from engine_world import in_folder, job_rows
from inbox_world import ScriptedStore

from batchweave import inbox
from batchweave.inbox import _drive
from batchweave.inbox._drive import Backoff
from batchweave.inbox._local import LocalFolder
from batchweave.inbox._store import Store
from batchweave.ray import _job
from batchweave.ray._job import File, Written, check_free, check_store, commit, write_task
from batchweave.ray._rows import rows_of


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_drive, "BACKOFF", Backoff(0.001, 0.01, 3.0))


def attempt(folder: Store, task: int, rows: Iterable[Any], file_bytes: int = 1 << 20) -> Written:
    made = ({"text": f"{row}"} for row in rows)
    return write_task(folder, "j", task, made, file_bytes=file_bytes, deadline=5)


def done(folder: Store, tasks: list[Written]) -> None:
    rows = sum(file.rows for task in tasks for file in task.files)
    commit(folder, "j", tasks, rows, 5)


def texts(folder: Path) -> list[str]:
    return [row["text"] for row in job_rows(in_folder(folder))]


def test_rows_come_in_the_order_of_tasks(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "j")
    tasks = [attempt(folder, task, range(task * 10, task * 10 + 3)) for task in (2, 0, 1)]
    done(folder, tasks)
    assert texts(tmp_path / "j") == ["0", "1", "2", "10", "11", "12", "20", "21", "22"]


def test_a_large_task_has_several_files_in_order(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "j")
    made = attempt(folder, 0, range(1000), file_bytes=2000)
    assert len(made.files) >= 10
    done(folder, [made])
    assert texts(tmp_path / "j") == [str(row) for row in range(1000)]


def test_two_attempts_of_a_task_do_not_mix(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "j")
    lost, won = attempt(folder, 0, "abc"), attempt(folder, 0, "xyz")
    late = attempt(folder, 0, "def")
    done(folder, [won])
    assert texts(tmp_path / "j") == ["x", "y", "z"]
    assert {file.name for each in (lost, late) for file in each.files} < set(
        in_folder(tmp_path / "j")
    )


def test_tasks_without_rows_have_no_files(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "j")
    done(folder, [attempt(folder, 0, []), attempt(folder, 1, "a"), attempt(folder, 2, [])])
    assert texts(tmp_path / "j") == ["a"]


def test_the_list_is_byte_for_byte_as_documented() -> None:
    files = [File("part-000000-00112233aabbccdd.parquet", 3)]
    assert _job.encode_commit(files) == (
        b'{"format":1,"files":[{"name":"part-000000-00112233aabbccdd.parquet","rows":3}]}\n'
    )
    assert _job.encode_commit([]) == b'{"format":1,"files":[]}\n'


@pytest.mark.parametrize("faults", [["lost"], ["failed"], ["conflict"], ["failed", "lost"]])
def test_a_lost_answer_of_the_list_is_resolved(tmp_path: Path, faults: list[str]) -> None:
    store = ScriptedStore(tmp_path / "j")
    made = attempt(store, 0, "ab")
    store.faults = list(faults)
    done(store, [made])
    assert store.faults == []
    assert texts(tmp_path / "j") == ["a", "b"]


@pytest.mark.parametrize("fault", ["lost", "failed", "conflict"])
def test_a_lost_answer_of_a_file_is_resolved(tmp_path: Path, fault: str) -> None:
    store = ScriptedStore(tmp_path / "j")
    store.faults = [fault]
    done(store, [attempt(store, 0, "ab")])
    assert texts(tmp_path / "j") == ["a", "b"]
    assert len(in_folder(tmp_path / "j")) == 2


def test_of_two_jobs_that_end_together_one_is_refused(tmp_path: Path) -> None:
    store = ScriptedStore(tmp_path / "j")
    mine, other = attempt(store, 0, "ab"), attempt(store, 0, "xy")
    # The other one commits between the last look of this one and its PUT, whose answer is lost.
    store.before_put = lambda: done(LocalFolder(tmp_path / "j"), [other])
    with pytest.raises(inbox.NameTakenError, match=r"has a commit\.json: a job of the name j"):
        done(store, [mine])
    assert texts(tmp_path / "j") == ["x", "y"]


def test_a_store_that_does_not_answer_ends_the_job_without_rows(tmp_path: Path) -> None:
    store = ScriptedStore(tmp_path / "j")
    made = attempt(store, 0, "ab")
    store.faults = ["failed"] * 1000
    with pytest.raises(inbox.StoreNotAnsweringError, match="then run the job again"):
        commit(store, "j", [made], 2, 0.05)
    assert "commit.json" not in in_folder(tmp_path / "j")


def test_a_store_that_replaces_is_refused_at_the_start(tmp_path: Path) -> None:
    store = ScriptedStore(tmp_path / "j")
    check_store(store, 5)
    store.replaces = True
    with pytest.raises(inbox.StoreRefusedError, match="replaces existing objects"):
        check_store(store, 5)


def test_names_of_jobs_and_writers_exclude_one_another(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "j")
    check_free(folder, "j", 5)
    assert not (tmp_path / "j").exists()
    attempt(folder, 0, "orphan")
    check_free(folder, "j", 5)
    done(folder, [attempt(folder, 0, "a")])
    with pytest.raises(inbox.NameTakenError, match="which are kept; nothing was added"):
        check_free(folder, "j", 5)
    with inbox.open(tmp_path, "j") as writer:
        with pytest.raises(inbox.WriterEndedError):
            writer.put({"text": "b"})
        assert writer.ended
    with inbox.open(tmp_path, "w") as writer:
        writer.put({"text": "a"})
    with pytest.raises(inbox.NameTakenError, match="has 1 numbered files: w is the name of a wri"):
        check_free(LocalFolder(tmp_path / "w"), "w", 5)
    with inbox.open(tmp_path, "e") as writer:
        writer.finish()
    with pytest.raises(inbox.NameTakenError, match="has the object end"):
        check_free(LocalFolder(tmp_path / "e"), "e", 5)


def test_a_writer_that_begins_meanwhile_keeps_its_rows(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "j")
    made = attempt(folder, 0, "a")
    with inbox.open(tmp_path, "j") as writer:
        writer.put({"text": "w"})
    with pytest.raises(inbox.NameTakenError):
        done(folder, [made])
    assert "commit.json" not in in_folder(tmp_path / "j")


def test_files_with_other_columns_are_both_named(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "j")
    tasks = [
        write_task(folder, "j", task, [{"text": "a", "n": n}], file_bytes=1000, deadline=5)
        for task, n in ((0, 1), (1, 2), (2, 0.5))
    ]
    with pytest.raises(inbox.BadRowError) as bad:
        done(folder, tasks)
    said = f"'n' is int64 in {tasks[0].files[0].name} and double in {tasks[2].files[0].name}"
    assert said in str(bad.value)
    with pytest.raises(inbox.BadRowError, match=r"'n' is int64 in .* and absent in"):
        done(folder, [tasks[0], attempt(folder, 1, "a")])
    assert "commit.json" not in in_folder(tmp_path / "j")


def test_another_count_than_the_engines_is_not_committed(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "j")
    with pytest.raises(inbox.InboxError, match="have 2 rows, and the engine has counted 3"):
        commit(folder, "j", [attempt(folder, 0, "ab")], 3, 5)
    assert "commit.json" not in in_folder(tmp_path / "j")


def test_too_many_files_are_not_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = LocalFolder(tmp_path / "j")
    monkeypatch.setattr(_job, "FILES_MAX", 2)
    tasks = [attempt(folder, task, "a") for task in range(3)]
    with pytest.raises(inbox.InboxArgumentError, match=r"has written 3 files into .*, at most 2"):
        done(folder, tasks)
    done(folder, tasks[:2])


def test_a_folder_that_tasks_do_not_share_is_named(tmp_path: Path) -> None:
    elsewhere = attempt(LocalFolder(tmp_path / "node" / "j"), 0, "ab")
    with pytest.raises(inbox.InboxArgumentError, match="on the driver lacks part-000000-"):
        done(LocalFolder(tmp_path / "driver" / "j"), [elsewhere])


def test_a_row_of_an_attempt_that_is_refused_stores_no_list(tmp_path: Path) -> None:
    with pytest.raises(inbox.RowTooLargeError):
        attempt(LocalFolder(tmp_path / "j"), 0, ["a", "x" * 5000], file_bytes=1000)
    assert not any("commit" in name for name in in_folder(tmp_path / "j"))


def test_rows_of_arrow_lose_fields_that_others_have() -> None:
    rows = [
        {"messages": [{"role": "user", "content": None}], "tools": []},
        {"messages": [{"role": "assistant", "call": {"x": 1}}], "tools": [{"name": "f"}]},
        {"messages": [], "tools": []},
    ]
    found = list(rows_of(pa.Table.from_pylist(rows)))
    assert [row["messages"] for row in found] == [
        [{"role": "user", "content": None}],
        [{"role": "assistant", "content": None, "call": {"x": 1}}],
        "[]",
    ]
    assert [row["tools"] for row in found] == ["[]", [{"name": "f"}], "[]"]


@pytest.mark.parametrize("items", [[1], [0.5], [True]])
def test_an_empty_list_has_the_type_of_its_column(tmp_path: Path, items: list[Any]) -> None:
    columns = []
    for values in ([[], items], [items, []]):
        rows = rows_of(pa.table({"v": values}))
        folder = LocalFolder(tmp_path / "j")
        columns.append(write_task(folder, "j", 0, rows, file_bytes=1000, deadline=5).columns)
    assert columns[0] == columns[1]
    rows = rows_of(pa.table({"v": [[], []]}))
    with pytest.raises(inbox.BadRowError, match="its type is not known"):
        write_task(LocalFolder(tmp_path / "j"), "j", 0, rows, file_bytes=1000, deadline=5)


def test_the_list_has_the_files_of_all_tasks_in_json(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "j")
    done(folder, [attempt(folder, 11, "ab"), attempt(folder, 2, "c")])
    listed = json.loads((tmp_path / "j" / "commit.json").read_text())["files"]
    assert [(file["name"][:12], file["rows"]) for file in listed] == [
        ("part-000002-", 1),
        ("part-000011-", 2),
    ]
