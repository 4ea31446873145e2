"""Reports of trained steps: sent when the daemon takes them, before marks, again until stored."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import eventually
from fake_daemon import FakeDaemon, Peer

import batchweave
from batchweave import _wire, errors
from batchweave._reports import is_reason, ranges_of
from batchweave._values import State

GOLDEN = Path(__file__).parents[2] / "tests" / "golden" / "socket-v1-reports.txt"
REPORT, MARK, BYE = 7, 3, 5


@pytest.fixture
def taking(daemon: FakeDaemon) -> FakeDaemon:
    daemon.takes_reports = True
    daemon.on_describe = lambda peer: peer.send_info()
    return daemon


def connect(path: Path, **more: Any) -> batchweave.Reader:
    return batchweave.connect(path, job="t", timeout=20, connect_timeout=20, **more)


def sessions(daemon: FakeDaemon) -> list[Peer]:
    return [peer for peer in daemon.peers if peer.hello]


def states(peer: Peer) -> list[tuple[int, int, str]]:
    return [state for _, report in peer.reports for state in report]


def covered(peer: Peer) -> set[int]:
    return {step for first, end, _ in states(peer) for step in range(first, end)}


def reads_until_marked(reader: batchweave.Reader, peer: Peer) -> int:
    """Reads on until the daemon has a mark; returns the number of steps."""
    read, deadline = 0, time.monotonic() + 60
    while not peer.checkpoints and time.monotonic() < deadline:
        next(reader)
        read += 1
    assert peer.checkpoints
    return read


def test_messages_are_encoded_as_on_the_page() -> None:
    stored = dict(line.split(" ")[1:] for line in GOLDEN.read_text().splitlines()[1:])
    assert _wire.report(42, [(38, 41, None), (41, 42, "nan")]).hex() == stored["report"]
    kind, body = _wire.split(memoryview(bytes.fromhex(stored["reported"])))
    assert (kind, _wire.step("reported", body)) == (_wire.REPORTED, 3)


def test_consecutive_steps_are_one_range() -> None:
    given = [(1, None), (2, None), (4, None), (5, "nan"), (6, "nan"), (7, "inf"), (3, None)]
    want = [(1, 3, None), (4, 5, None), (5, 7, "nan"), (7, 8, "inf"), (3, 4, None)]
    assert ranges_of([State(*one) for one in given]) == want
    assert is_reason("nan")
    assert is_reason("x" * 64)
    assert not any(is_reason(text) for text in ("", "x" * 65, "ü" * 33, "a\nb", "\ud800"))


def test_states_precede_the_mark_and_others_wait_for_company(
    taking: FakeDaemon, path: Path
) -> None:
    with connect(path) as reader:
        for batch in reader:
            reader.report(batch, left_out="nan" if batch.step == 3 else None)
            if batch.step == 4:
                break
        reader.checkpoint(batch.state_dict())
        (peer,) = sessions(taking)
        read = reads_until_marked(reader, peer)
        assert peer.said[-1] == MARK
        assert set(peer.said[:-1]) == {REPORT}
        assert covered(peer) == {0, 1, 2, 3, 4}
        assert (3, 4, "nan") in states(peer)
        assert all(next_step <= 5 + read for next_step, _ in peer.reports)
        sent = len(peer.reports)
        for _ in range(10):
            reader.report(next(reader))
        time.sleep(0.05)
        assert len(peer.reports) == sent, "few steps wait for others, or for a second"
        for _ in range(100):
            reader.report(next(reader))
        eventually(lambda: len(peer.reports) > sent)
    eventually(lambda: covered(peer) == {0, 1, 2, 3, 4, *range(5 + read, 115 + read)})
    assert peer.said[-1] == BYE


def test_states_that_are_not_confirmed_are_repeated_in_a_new_session(
    taking: FakeDaemon, path: Path
) -> None:
    taking.confirms = False
    with connect(path) as reader:
        first, steps = sessions(taking)[0], 0
        while len(first.reports) < 3:
            reader.report(next(reader))
            steps += 1
        # The first report is stored; the others are not, of which the next is kept, too.
        first.send(75, (2).to_bytes(8, "little"))
        stored = {step for start, end, _ in first.reports[0][1] for step in range(start, end)}
        reader.report(next(reader))
        every = set(range(steps + 1))
        first.socket.shutdown(2)
        while len(sessions(taking)) == 1:
            next(reader)
        reader.checkpoint(reader.state_dict())
        second = sessions(taking)[-1]
        assert second is not first
        reads_until_marked(reader, second)
        assert covered(second) | stored == every
        # What came before the connection was lost may have been read or not.
        assert covered(second) in (every, every - stored)
        assert second.said[-1] == MARK


def test_an_older_daemon_gets_no_reports_and_its_run_goes_on(
    daemon: FakeDaemon, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), connect(path) as reader:
        for _ in range(200):
            reader.report(next(reader))
        reader.checkpoint(reader.state_dict())
        (peer,) = sessions(daemon)
        read = reads_until_marked(reader, peer)
        assert [step for step, _ in peer.checkpoints] == [200]
        assert next(reader).step == 200 + read
    assert peer.said == [MARK, BYE]
    assert caplog.text.count("takes no reports") == 1


def test_a_daemon_that_describes_but_takes_no_reports_gets_none(
    daemon: FakeDaemon, path: Path
) -> None:
    daemon.on_describe = lambda peer: peer.send_info()
    with connect(path) as reader:
        for _ in range(70):
            reader.report(next(reader))
    assert sessions(daemon)[0].said == [BYE]


def test_an_answer_of_another_run_is_not_believed(taking: FakeDaemon, path: Path) -> None:
    answers: list[Callable[[Peer], None]] = [
        lambda peer: peer.send_info(reports="ab" * 16),
        lambda peer: peer.send_waiting(0, 8, "opening"),
        lambda peer: peer.socket.shutdown(2),
        lambda peer: peer.send_raw(b"nonsense"),
    ]
    asked = len(answers)

    def answer(peer: Peer) -> None:
        (answers.pop(0) if answers else Peer.send_info)(peer)
        if len(answers) == asked - 2:
            peer.socket.shutdown(2)

    taking.on_describe = answer
    with connect(path) as reader:
        reader.report(next(reader))
        reader.checkpoint(reader.state_dict())
        assert sessions(taking)[0].said == []
        reads_until_marked(reader, sessions(taking)[0])
        assert sessions(taking)[0].said[:2] == [REPORT, MARK]


def test_marks_without_reports_ask_nothing(taking: FakeDaemon, path: Path) -> None:
    with connect(path) as reader:
        next(reader)
        reader.checkpoint(reader.state_dict())
    assert [peer.said for peer in taking.peers] == [[MARK, BYE]]


def test_wrong_reports_are_named(taking: FakeDaemon, path: Path) -> None:
    with connect(path) as reader:
        batch = next(reader)
        with pytest.raises(errors.BadReportError, match="the next one is 1"):
            reader.report(1)
        with pytest.raises(errors.BadReportError, match="was not read yet"):
            reader.report(-1)
        with pytest.raises(errors.BadReportError, match="one line of 1 to 64 bytes"):
            reader.report(batch, left_out="x" * 65)
        with connect(path, attempt="ab" * 16) as other:
            foreign = next(other)
        with pytest.raises(errors.BadReportError, match="was read in attempt abab"):
            reader.report(foreign)
        reader.report(0)
    with batchweave.connect(path, timeout=20) as reader:
        reader.report(next(reader))
    assert not sessions(taking)[-1].reports, "without a job nothing is kept"


def test_a_report_from_within_a_report_loses_nothing(taking: FakeDaemon, path: Path) -> None:
    """A signal handler that marks while a report is sent: its mark follows the states."""
    with connect(path) as reader:
        batches = [next(reader).step for _ in range(3)]
        session = reader._session
        assert session is not None
        post = session.post
        within: list[dict[str, str]] = []

        def interrupted(message: bytes) -> None:
            if not within:
                within.append(reader.state_dict())
                reader.report(2)
                reader.checkpoint(within[0])
            post(message)

        reader.report(batches[0])
        session.post = interrupted  # type: ignore[method-assign]
        deadline = time.monotonic() + 20
        while not within and time.monotonic() < deadline:
            reader.report(batches[1])
        (peer,) = sessions(taking)
        reads_until_marked(reader, peer)
        # The outer call's own report may follow: it repeats what the inner one has sent.
        before = peer.said.index(MARK)
        reported = [state for _, report in peer.reports[:before] for state in report]
        assert {step for first, end, _ in reported for step in range(first, end)} == {0, 1, 2}


def test_an_interrupt_at_any_line_loses_no_report(path: Path) -> None:
    program = [sys.executable, str(Path(__file__).with_name("interrupted_reports.py"))]
    run = subprocess.run([*program, str(path), "2"], stdout=subprocess.PIPE, timeout=600)
    lines, wrong = json.loads(run.stdout)
    assert wrong == []
    assert lines > 100
