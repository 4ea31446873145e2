"""The ends of a writer: its end, resuming, errors, closing and forks."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inbox_world import ScriptedStore, in_folder, read_as_producer, writer_on

from batchweave import inbox


@pytest.fixture
def store(tmp_path: Path) -> ScriptedStore:
    return ScriptedStore(tmp_path / "w")


def rows_in(folder: Path) -> list[Any]:
    return [row["text"] for row in read_as_producer(in_folder(folder / "w"))]


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


@pytest.mark.parametrize(
    "faults", [["conflict"], ["failed", "conflict"], ["conflict"] * 3, ["lost"]]
)
def test_an_end_that_was_not_put_is_put_again(tmp_path: Path, faults: list[str]) -> None:
    store = ScriptedStore(tmp_path / "w")
    with writer_on(store) as writer:
        writer.put({"text": "a"})
        writer.flush()
        store.faults = list(faults)
        writer.finish()
    assert store.faults == []
    assert (tmp_path / "w" / "end").exists()


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
    def fails() -> inbox.Writer:
        with inbox.open(tmp_path, "w") as writer:
            made.append(writer)
            writer.put({"text": "a"})
            raise ZeroDivisionError

    made: list[inbox.Writer] = []
    with pytest.raises(ZeroDivisionError):
        fails()
    (writer,) = made
    assert rows_in(tmp_path) == ["a"]
    for call in (writer.flush, lambda: writer.put({"text": "b"})):
        with pytest.raises(inbox.WriterClosedError, match="is closed"):
            call()
    writer.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
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


FORKS = """
import os, sys
from batchweave import inbox
writer = inbox.open(sys.argv[1], "w", linger=0.01)
writer.put({"text": "a"})
child = os.fork()
if child == 0:
    sys.exit(5)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
writer.close()
"""


def test_a_forked_child_that_exits_leaves_its_parents_writer_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKS, str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert (said.stdout, said.stderr) == ("", "")
    assert rows_in(tmp_path) == ["a"]


UNCLOSED = """
import sys
from batchweave import inbox
writer = inbox.open(sys.argv[1], "w", linger=60)
writer.put({"text": "a"})
if sys.argv[2] == "drop":
    del writer
    print("dropped")
"""


@pytest.mark.parametrize("how", ["exit", "drop"])
def test_a_writer_that_is_never_closed_warns_and_ends(tmp_path: Path, how: str) -> None:
    command = [sys.executable, "-c", UNCLOSED, str(tmp_path), how]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert "inbox writer w was not closed: 1 rows are not known to be durable" in said.stderr


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
