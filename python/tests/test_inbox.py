"""A writer of an inbox on a store with scripted faults: acknowledgements, fencing, resuming."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import eventually
from inbox_world import Held, ScriptedStore, in_folder, read_as_producer, writer_on

from batchweave import inbox
from batchweave.inbox import _drive
from batchweave.inbox._drive import Backoff


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_drive, "BACKOFF", Backoff(0.001, 0.01, 3.0))


@pytest.fixture
def store(tmp_path: Path) -> ScriptedStore:
    return ScriptedStore(tmp_path / "w")


def rows_in(folder: Path) -> list[Any]:
    return [row["text"] for row in read_as_producer(in_folder(folder / "w"))]


def test_rows_state_and_metadata_become_durable_together(tmp_path: Path) -> None:
    with inbox.open(tmp_path, "w", linger=60) as writer:
        assert (writer.next_row, writer.durable_rows, writer.state) == (0, 0, None)
        writer.put({"text": "a"}, state={"at": [1]})
        writer.put({"text": "b"})
        assert (writer.next_row, writer.durable_rows, writer.state) == (2, 0, None)
        assert not (tmp_path / "w").exists(), "a file before flush, linger and file_bytes"
        writer.flush()
        assert (writer.durable_rows, writer.state, writer.state_row) == (2, {"at": [1]}, 1)
        writer.flush()
        writer.put({"text": "c"})
        assert "2 of 3 rows durable" in repr(writer)
    first, second = in_folder(tmp_path / "w")
    instance = first.metadata["instance"]
    assert first.metadata == {
        "writer": "w",
        "number": "0",
        "first_row": "0",
        "rows": "2",
        "instance": instance,
        "state": '{"at":[1]}',
        "state_row": "1",
    }
    assert second.metadata["state"] == '{"at":[1]}', "a state stays until there is a newer one"
    assert (second.metadata["first_row"], second.metadata["instance"]) == ("2", instance)
    with inbox.open(tmp_path, "w") as writer:
        assert (writer.next_row, writer.state, writer.state_row) == (3, {"at": [1]}, 1)


def test_linger_uploads_without_flush(tmp_path: Path) -> None:
    with inbox.open(tmp_path, "w", linger=0.01) as writer:
        for number in range(3):
            writer.put({"text": "a"})
            eventually(lambda number=number: writer.durable_rows == number + 1, 60)


def test_put_waits_while_two_files_wait(store: ScriptedStore) -> None:
    held = Held(store)
    with writer_on(store) as writer:
        row = {"text": "x" * 600_000}
        writer.put(row)
        writer.put(row)  # the first row is a file, and is uploaded
        assert held.reached.wait(60)
        writer.put(row)  # the second row waits
        fourth = threading.Thread(target=writer.put, args=(row,))
        fourth.start()
        fourth.join(0.2)
        assert fourth.is_alive()
        assert writer.next_row == 3
        held.release()
        fourth.join(60)
    assert len(read_as_producer(in_folder(Path(store.place)))) == 4


@pytest.mark.parametrize("faults", [["lost"], ["failed"], ["conflict"], ["lost", "lost"]])
@pytest.mark.parametrize("probes", [False, True])
def test_an_unknown_outcome_is_resolved(
    store: ScriptedStore, tmp_path: Path, faults: list[str], probes: bool
) -> None:
    store.faults = list(faults)
    store.list_faults = 1
    with writer_on(store, probes=probes) as writer:
        for text in ("a", "b"):
            writer.put({"text": text})
            writer.flush()
    assert store.faults == []
    assert rows_in(tmp_path) == ["a", "b"]


def test_a_second_instance_fences_the_first(store: ScriptedStore, tmp_path: Path) -> None:
    with writer_on(store, "a" * 16) as first:
        first.put({"text": "a"})
        first.flush()
        with writer_on(store, "b" * 16) as second:
            assert second.next_row == 1
            second.put({"text": "b"})
            second.flush()
        first.put({"text": "lost"})
        with pytest.raises(inbox.WriterFencedError, match="bbbbbbbb") as fenced:
            first.flush()
        assert "run one process per writer's name" in str(fenced.value)
        assert first.durable_rows == 1
        for call in (lambda: first.put({"text": "x"}), first.flush, first.finish, first.close):
            with pytest.raises(inbox.WriterFencedError):
                call()
    assert rows_in(tmp_path) == ["a", "b"]
    assert store.puts[-1].startswith(f"{1:020}"), "it never tries the next number"


def test_an_instance_that_slept_before_its_put_is_fenced_by_the_list(
    store: ScriptedStore, tmp_path: Path
) -> None:
    first = writer_on(store, "a" * 16)
    held = Held(store)
    first.put({"text": "slept"})
    failed: list[BaseException] = []

    def flush() -> None:
        try:
            first.flush()
        except inbox.InboxError as failure:
            failed.append(failure)

    flushing = threading.Thread(target=flush)
    flushing.start()
    assert held.reached.wait(60)
    other = ScriptedStore(tmp_path / "w")
    with writer_on(other, "b" * 16) as second:
        for text in ("b", "c"):
            second.put({"text": text})
            second.flush()
    # Producers have read file 0 and deleted it.
    (tmp_path / "w" / f"{0:020}.parquet").unlink()
    held.release()
    flushing.join(60)
    assert [type(failure) for failure in failed] == [inbox.WriterFencedError]
    assert first.durable_rows == 0
    assert (tmp_path / "w" / f"{0:020}.parquet").exists(), "its PUT succeeded"
    with pytest.raises(inbox.WriterFencedError):
        first.close()


def test_every_file_is_acknowledged_by_a_list_behind_its_put(store: ScriptedStore) -> None:
    with writer_on(store) as writer:
        before = store.lists
        store.list_faults = 10**6
        writer.put({"text": "a"})
        flushing = threading.Thread(target=writer.flush)
        flushing.start()
        eventually(lambda: store.lists > before + 2, 60)
        assert (Path(store.place) / f"{0:020}.parquet").exists()
        assert writer.durable_rows == 0
        store.list_faults = 0
        flushing.join(60)
        assert writer.durable_rows == 1


def test_a_store_that_does_not_answer_is_named_and_flush_goes_on(
    store: ScriptedStore, tmp_path: Path
) -> None:
    writer = writer_on(store, deadline=0.0)
    store.faults = ["failed"] * 3
    writer.put({"text": "a"})
    for _ in range(3):
        with pytest.raises(inbox.StoreNotAnsweringError, match=r"no answer \(test\)") as failed:
            writer.flush()
    assert "flush() tries again" in str(failed.value)
    with pytest.raises(inbox.StoreNotAnsweringError):
        writer.put({"text": "b"})
    assert writer.next_row == 1
    writer.flush()
    writer.put({"text": "b"})
    writer.close()
    assert rows_in(tmp_path) == ["a", "b"]


def test_a_store_that_replaces_objects_is_refused(store: ScriptedStore) -> None:
    store.replaces = True
    writer = writer_on(store, probes=True)
    writer.put({"text": "a"})
    with pytest.raises(inbox.StoreRefusedError, match="replaces existing objects"):
        writer.flush()
    assert writer.durable_rows == 0
    with pytest.raises(inbox.StoreRefusedError):
        writer.close()


def test_the_end_is_final(store: ScriptedStore, tmp_path: Path) -> None:
    with inbox.open(tmp_path, "w") as slow, writer_on(store) as writer:
        writer.put({"text": "a"})
        store.faults = ["ok", "lost"]
        writer.finish()
        assert writer.ended
        end = json.loads((tmp_path / "w" / "end").read_text())
        assert (end["files"], end["rows"]) == (1, 1)
        writer.finish()
        slow.put({"text": "b"})
        with pytest.raises(inbox.WriterFencedError):
            slow.flush()
        with pytest.raises(inbox.WriterFencedError):
            slow.close()
    with inbox.open(tmp_path, "w") as again:
        assert again.ended
        assert again.next_row == 1
        with pytest.raises(inbox.WriterEndedError, match="write more rows under another name"):
            again.put({"text": "b"})
        again.finish()
    assert rows_in(tmp_path) == ["a"]


def test_a_replaced_writer_does_not_end_its_successor(tmp_path: Path) -> None:
    first = inbox.open(tmp_path, "w")
    with inbox.open(tmp_path, "w") as second:
        second.put({"text": "a"})
        second.flush()
        with pytest.raises(inbox.WriterFencedError):
            first.finish()
        assert not (tmp_path / "w" / "end").exists()


def make_rows(state: Any) -> Iterator[tuple[dict[str, str], Any]]:
    """Yields ten rows, with a state after every third."""
    for number in range((state or {"next": 0})["next"], 10):
        yield {"text": str(number)}, {"next": number + 1} if number % 3 == 2 else None


@pytest.mark.parametrize("durable", range(11))
def test_resume_writes_what_is_not_there(tmp_path: Path, durable: int) -> None:
    with inbox.open(tmp_path, "w") as writer:
        for row, state in list(make_rows(None))[:durable]:
            writer.put(row, state)
    with inbox.open(tmp_path, "w") as writer:
        assert writer.resume(make_rows) == 10 - durable
        assert writer.durable_rows == 10
    assert rows_in(tmp_path) == [str(number) for number in range(10)]


def test_resume_refuses_a_source_that_makes_fewer_rows(tmp_path: Path) -> None:
    with inbox.open(tmp_path, "w") as writer:
        writer.resume(lambda _: [{"text": "a"}, {"text": "b"}])
        with pytest.raises(inbox.InboxArgumentError, match="once per open"):
            writer.resume(make_rows)
    with inbox.open(tmp_path, "w") as writer, pytest.raises(inbox.BadRowError, match="up to 1"):
        writer.resume(lambda _: [{"text": "a"}])
    assert rows_in(tmp_path) == ["a", "b"]


@pytest.mark.parametrize(
    ("state", "why"),
    [({1, 2}, "no form in JSON"), ("x" * 4095, "4,097 bytes"), (float("nan"), "no form in JSON")],
)
def test_a_bad_state_is_refused(tmp_path: Path, state: Any, why: str) -> None:
    with inbox.open(tmp_path, "w") as writer:
        with pytest.raises(inbox.BadRowError, match=why):
            writer.put({"text": "a"}, state)
        assert writer.next_row == 0
        writer.put({"text": "a"}, "ä" * 2047)


def test_an_error_in_the_body_keeps_the_rows_and_is_not_hidden(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), inbox.open(tmp_path, "w") as writer:
        writer.put({"text": "a"})
        raise ZeroDivisionError
    assert rows_in(tmp_path) == ["a"]
    for call in (writer.flush, lambda: writer.put({"text": "b"})):
        with pytest.raises(inbox.WriterClosedError, match="is closed"):
            call()
    writer.close()


def test_a_forked_child_does_not_write_as_its_parent(tmp_path: Path) -> None:
    with inbox.open(tmp_path, "w") as writer:
        writer.put({"text": "a"})
        said, tell = multiprocessing.Pipe(duplex=False)
        if (child := os.fork()) == 0:
            try:
                writer.put({"text": "b"})
            except inbox.WriterClosedError as refused:
                tell.send(str(refused))
            writer.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert "inherited the writer w by a fork" in said.recv()
    assert rows_in(tmp_path) == ["a"]


def test_several_threads_may_put(tmp_path: Path) -> None:
    with inbox.open(tmp_path, "w", file_bytes=2000, linger=0.001) as writer:

        def put(place: int) -> None:
            for number in range(100):
                writer.put({"text": f"{place} {number:30}"})

        threads = [threading.Thread(target=put, args=(place,)) for place in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    rows = rows_in(tmp_path)
    assert sorted(rows) == sorted(f"{place} {n:30}" for place in range(4) for n in range(100))
    for place in range(4):
        mine = [row for row in rows if row.startswith(f"{place} ")]
        assert mine == sorted(mine)
