"""The lag of a writer: `put` waits for the answers of a fake program."""

from __future__ import annotations

import functools
import gc
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import eventually
from inbox_world import in_folder, read_as_producer
from test_inbox_lag_steps import report

from batchweave import inbox
from batchweave.errors import NoProgramError
from batchweave.inbox import InboxArgumentError, LagUnknownError, WriterClosedError, _lag
from batchweave.inbox._lag import Times


class Program:
    """A fake `batchweave`: prints what the test has said, and notes its arguments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        path = folder / "batchweave"
        path.write_text(
            f"#!{sys.executable} -IS\n"
            "import json, os, sys\n"
            f"folder = {str(folder)!r}\n"
            "said = {'arguments': sys.argv[1:], 'region': os.environ.get('AWS_REGION')}\n"
            "print(json.dumps(said), file=open(folder + '/calls', 'a'))\n"
            "text = open(folder + '/says').read()\n"
            "sys.exit(text) if text.startswith('error') else print(text)\n"
        )
        path.chmod(0o755)
        self.says(report())

    def says(self, what: Any) -> None:
        text = what if isinstance(what, str) else json.dumps(what)
        (self.folder / "new").write_text(text)
        (self.folder / "new").rename(self.folder / "says")

    def calls(self) -> list[dict[str, Any]]:
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def answers(self, what: Any) -> None:
        """Lets the program say something, and waits until a later call has begun and ended."""
        self.says(what)
        before = len(self.calls())
        eventually(lambda: len(self.calls()) >= before + 2, 60)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    monkeypatch.setattr(_lag, "TIMES", Times(0.01, 60.0, 0.0))
    monkeypatch.setenv("BATCHWEAVE_BIN_DIR", str(tmp_path / "bin"))
    return Program(tmp_path / "bin")


def open_writer(folder: Path, **more: Any) -> inbox.Writer:
    given = {"stream": folder / "stream", "linger": 60, "rows_per_step": 2, **more}
    return inbox.open(folder / "inbox", "w", **given)


class Putting:
    """Rows that a thread puts, one after another."""

    def __init__(self, writer: inbox.Writer, rows: int) -> None:
        self.failure: Exception | None = None
        self._writer, self._rows = writer, rows
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            for number in range(self._rows):
                self._writer.put({"n": number})
        except Exception as failure:
            self.failure = failure

    def end(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()


def test_the_program_is_asked_for_this_writer(tmp_path: Path, program: Program) -> None:
    program.says(report(10, 7, 4))
    with open_writer(tmp_path, max_lag_steps=9) as writer:
        assert program.calls() == [], "a poll before the lag is asked for"
        assert writer.lag == 3
    call = program.calls()[0]
    assert call["arguments"] == [
        "inbox", "ls", str(tmp_path / "inbox"), "--writer", "w", "--json",
        f"--store=file://{tmp_path}/stream",
    ]  # fmt: skip


def test_put_waits_at_the_bound_and_no_earlier(tmp_path: Path, program: Program) -> None:
    with open_writer(tmp_path, max_lag_steps=2) as writer:
        putting = Putting(writer, 12)
        # Rows of steps 0, 1 and 2 may wait: the row put next is trained after at most two.
        eventually(lambda: writer.next_row == 6, 60)
        program.answers(report(0, 0, None))
        assert writer.next_row == 6
        program.answers(report(6, 3, 0))
        assert writer.next_row == 6, "three steps wait, in the inbox or in the stream"
        program.answers(report(6, 3, 1))
        eventually(lambda: writer.next_row == 8, 60)
        program.answers(report(6, 3, 1))
        assert writer.next_row == 8
        program.says(report(8, 4, 4))
        putting.end()
        assert (putting.failure, writer.next_row) == (None, 12)


def test_steps_wait_as_rows_do(tmp_path: Path, program: Program) -> None:
    shape = {"rows_per_step": None, "slices": 2, "rows_per_slice": 1}
    with open_writer(tmp_path, max_lag_steps=0, **shape) as writer:
        writer.put_step([[{"n": 0}], [{"n": 1}]])
        waiting = threading.Thread(target=writer.put_step, args=([[{"n": 2}], [{"n": 3}]],))
        waiting.start()
        program.answers(report(2, 1, 0))
        assert writer.next_row == 2
        program.says(report(2, 1, 1))
        waiting.join(60)
        assert writer.next_row == 4


def test_wait_for_lag_puts_nothing(tmp_path: Path, program: Program) -> None:
    program.says(report(0, 1, 0))
    with open_writer(tmp_path, max_lag_steps=0) as writer:
        waiting = threading.Thread(target=writer.wait_for_lag)
        waiting.start()
        program.answers(report(0, 1, 0))
        assert waiting.is_alive()
        program.says(report(0, 1, 1))
        waiting.join(60)
        assert not waiting.is_alive()
        assert writer.next_row == 0


def test_wait_for_lag_ends_with_its_timeout(tmp_path: Path, program: Program) -> None:
    program.says(report(0, 1, 0))
    with open_writer(tmp_path, max_lag_steps=0) as writer:
        assert not writer.wait_for_lag(timeout=0.01)
        putting = Putting(writer, 1)
        program.answers(report(0, 1, 0))
        assert not writer.wait_for_lag(timeout=0.01), "the turn is the put's"
        assert writer.next_row == 0
        program.says(report(0, 1, 1))
        putting.end()
        program.says(report(1, 1, 1))
        assert writer.wait_for_lag(timeout=60)
        for wrong in (-1, float("nan"), float("inf")):
            with pytest.raises(InboxArgumentError, match="number of seconds"):
                writer.wait_for_lag(timeout=wrong)


def test_threads_do_not_pass_the_bound_together(tmp_path: Path, program: Program) -> None:
    with open_writer(tmp_path, max_lag_steps=0) as writer:
        all_of_them = [Putting(writer, 1) for _ in range(8)]
        eventually(lambda: writer.next_row == 2, 60)
        for rows in (2, 4, 6):
            program.answers(report(rows, rows // 2, rows // 2 - 1))
            assert writer.next_row == rows
            program.says(report(rows, rows // 2, rows // 2))
            eventually(functools.partial(_has_put, writer, rows + 2), 60)
        for putting in all_of_them:
            putting.end()


def _has_put(writer: inbox.Writer, rows: int) -> bool:
    return writer.next_row == rows


def test_an_unknown_lag_is_an_error_after_the_deadline(
    tmp_path: Path, program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    program.says("error: the store does not answer (test)")
    with open_writer(tmp_path, max_lag_steps=2, deadline=0.2) as writer:
        with pytest.raises(LagUnknownError, match=r"unknown .* does not answer \(test\).*not put"):
            writer.put({"n": 0})
        with pytest.raises(LagUnknownError):
            _ = writer.lag
        assert writer.next_row == 0
        program.says(report())
        eventually(lambda: _puts(writer), 60)
    assert [row["n"] for row in read_as_producer(in_folder(tmp_path / "inbox" / "w"))] == [0]
    warned = [each for each in caplog.messages if "cannot read its lag" in each]
    assert len(warned) == 1, "one warning for one trouble"


def _puts(writer: inbox.Writer) -> bool:
    try:
        writer.put({"n": 0})
    except LagUnknownError:
        return False
    return True


@pytest.mark.parametrize("said", ["{}", "not JSON", "[1"])
def test_an_answer_of_another_form_leaves_the_lag_unknown(
    said: str, tmp_path: Path, program: Program
) -> None:
    program.says(said)
    with (
        open_writer(tmp_path, deadline=0.2) as writer,
        pytest.raises(LagUnknownError, match=r"another form|Expecting"),
    ):
        _ = writer.lag


def test_an_old_answer_is_not_used(
    tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_lag, "TIMES", Times(0.01, 0.05, 0.0))
    with open_writer(tmp_path, deadline=0.0) as writer:
        assert writer.lag == 0
        program.says("error: no store (test)")
        eventually(lambda: not _is_known(writer), 60)


def test_a_held_put_waits_without_a_deadline_and_says_so(
    tmp_path: Path, program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "batchweave")
    program.says(report(0, 5, None))
    with open_writer(tmp_path, max_lag_steps=4, deadline=0.0) as writer:
        putting = Putting(writer, 1)
        eventually(lambda: any("no job is open" in each for each in caplog.messages), 60)
        assert putting.failure is None
        program.says(report(0, 5, 1))
        putting.end()
        assert putting.failure is None
    assert any("trained 5 steps from now" in each for each in caplog.messages)


def _is_known(writer: inbox.Writer) -> bool:
    try:
        return writer.lag >= 0
    except LagUnknownError:
        return False


def test_polls_stop_without_requests(tmp_path: Path, program: Program) -> None:
    with open_writer(tmp_path) as writer:
        assert writer.lag == 0
        # Before the answer arrived, at most two more polls were requested.
        time.sleep(0.5)
        assert 1 <= len(program.calls()) <= 3


def test_a_closed_writer_waits_no_more(tmp_path: Path, program: Program) -> None:
    program.says(report(0, 9, 0))
    writer = open_writer(tmp_path, max_lag_steps=2)
    putting = Putting(writer, 1)
    eventually(lambda: len(program.calls()) > 1, 60)
    writer.close()
    putting.end()
    assert isinstance(putting.failure, WriterClosedError)
    eventually(lambda: not _threads(), 60)


def test_a_forgotten_writer_polls_no_more(tmp_path: Path, program: Program) -> None:
    program.says(report(0, 1, 0))
    writer = open_writer(tmp_path)
    assert writer.lag == 1
    assert _threads()
    del writer
    gc.collect()
    eventually(lambda: not _threads(), 60)


def _threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("inbox lag")]


def test_a_fenced_writer_does_not_wait_for_training(tmp_path: Path, program: Program) -> None:
    program.says(report(0, 9, 9))
    writer = open_writer(tmp_path, max_lag_steps=0)
    with inbox.open(tmp_path / "inbox", "w") as other:
        other.put({"n": 0})
    writer.put({"n": 1})
    writer.put({"n": 2})
    with pytest.raises(inbox.WriterFencedError):
        writer.flush()
    putting = Putting(writer, 1)
    putting.end()
    assert isinstance(putting.failure, inbox.WriterFencedError)
    with pytest.raises(inbox.WriterFencedError):
        writer.close()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"stream": None, "max_lag_steps": 2}, "without the stream"),
        ({"rows_per_step": None}, "rows_per_step=None: give a number"),
        ({"rows_per_step": 0}, "rows_per_step=0"),
        ({"writers": 0}, "writers=0"),
        ({"max_lag_steps": -1}, "max_lag_steps=-1"),
        ({"max_lag_steps": 1.5}, r"max_lag_steps=1\.5"),
        ({"stream": ""}, "give the root of the stream"),
        ({"stream": 3}, "give the root of the stream"),
    ],
)
def test_arguments_that_do_not_fit_are_errors(
    more: dict[str, Any], why: str, tmp_path: Path, program: Program
) -> None:
    assert os.access(program.folder / "batchweave", os.X_OK)
    with pytest.raises(InboxArgumentError, match=why):
        open_writer(tmp_path, **more)


def test_the_lag_needs_the_stream(tmp_path: Path, program: Program) -> None:
    with open_writer(tmp_path, stream=None) as writer:
        with pytest.raises(InboxArgumentError, match="stream="):
            _ = writer.lag
        with pytest.raises(InboxArgumentError, match="max_lag_steps="):
            writer.wait_for_lag()
    program.says(report())
    with open_writer(tmp_path) as writer, pytest.raises(InboxArgumentError, match="max_lag_steps="):
        writer.wait_for_lag()


def test_a_missing_program_is_found_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHWEAVE_BIN_DIR", str(tmp_path / "none"))
    with pytest.raises(NoProgramError, match="the program batchweave is not in"):
        open_writer(tmp_path, max_lag_steps=2)


def test_keys_of_the_writer_reach_the_program(tmp_path: Path, program: Program) -> None:
    s3 = {"region": "eu-here-1", "endpoint": None}
    lag = _lag.lag_of("s3://b/inbox", "w", "s3://b/stream", s3, 2, 1, None, 60.0)
    assert lag is not None
    assert lag.read(0) == 0
    lag.stop()
    call = program.calls()[0]
    assert call["region"] == "eu-here-1"
    assert call["arguments"][2:] == [
        "s3://b/inbox",
        "--writer",
        "w",
        "--json",
        "--store=s3://b/stream",
    ]
    assert _lag._place("file:///a%20b/c") == "/a b/c"
    assert tmp_path.exists()
