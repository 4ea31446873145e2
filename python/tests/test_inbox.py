"""A writer of an inbox on a store with scripted faults: acknowledgements, fencing, resuming."""

from __future__ import annotations

import threading
from collections.abc import Callable
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
        "takeovers": f'[[0,"{instance}"]]',
    }
    assert second.metadata["state"] == '{"at":[1]}', "a state stays until there is a newer one"
    assert (second.metadata["first_row"], second.metadata["instance"]) == ("2", instance)
    with inbox.open(tmp_path, "w") as writer:
        assert (writer.next_row, writer.state, writer.state_row) == (3, {"at": [1]}, 1)


def test_linger_uploads_without_flush(tmp_path: Path) -> None:
    with inbox.open(tmp_path, "w", linger=0.01) as writer:
        for _ in range(3):
            writer.put({"text": "a"})
            eventually(lambda: writer.durable_rows == writer.next_row, 60)


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
        calls: list[Callable[[], None]] = [first.flush, first.finish, first.close]
        for call in (lambda: first.put({"text": "x"}), *calls):
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
