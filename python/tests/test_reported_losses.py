"""Losses in reports: what arrives, what is refused, and what is dropped when they are too many."""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import eventually
from fake_daemon import ROWS, SEQ_LEN, FakeDaemon, Peer, Values, _report
from test_reports import connect, sessions, taking
from test_whole import batch_of

import batchweave
from batchweave import _values, _wire, errors
from batchweave._label_groups import learned_tokens
from batchweave._reports import together
from batchweave._values import State

__all__ = ["taking"]

GOLDEN = Path(__file__).parents[2] / "tests" / "golden" / "socket-v1-values.txt"
TOKENS = ROWS * SEQ_LEN
NAN = float("nan")
Report = Callable[[batchweave.Reader, batchweave.Batch], None]


def reported(daemon: FakeDaemon, path: Path, report: Report, **more: Any) -> list[Values]:
    """Returns the losses that arrive when a loop reports one step."""
    with connect(path, **more) as reader:
        report(reader, next(reader))
    peer = sessions(daemon)[-1]
    assert peer.bye.wait(20)
    return peer.values


def arrays(count: int) -> tuple[Any, Any]:
    return np.arange(count) / 2, np.arange(count)


def test_a_record_is_encoded_as_on_the_page() -> None:
    sources = [(7, 2.0, 4.0), (3, 1.0, 2.0), (9, 5.0, 0.0), (1, NAN, 1.0)]
    details = _values.Details(np.array([0.5, 0.25]), np.array([1, 3]))
    found = _values.record(40, 3.5, 6.0, 2, _values.ROWS | _values.PART, sources, details)
    want = struct.pack("<QIIIIdd", 40, 2, 2, 5, 2, 3.5, 6.0)
    want += struct.pack("<IffIff", 3, 1, 2, 7, 2, 4) + struct.pack("<ffff", 0.5, 1, 0.25, 3)
    assert found == want
    message = _wire.report(41, [(38, 41, None)], [found])
    states = struct.pack("<QIIQQII", 41, 1, 1, 38, 41, 0, 0)
    assert message[16:] == states + want
    shorter = _values.without_details(want)
    assert shorter == struct.pack("<QIIIIdd", 40, 2, 0, 4 | 8, 2, 3.5, 6.0) + want[40:64]
    least = _values.without_sources(shorter)
    assert least == struct.pack("<QIIIIdd", 40, 0, 0, 4 | 8 | 16, 2, 3.5, 6.0)
    assert _values.without_details(least) == _values.without_sources(least) == least


def test_a_message_is_that_of_the_golden_file() -> None:
    (line,) = (line for line in GOLDEN.read_text().splitlines() if not line.startswith("#"))
    want = bytes.fromhex(line.split(" ")[2])
    body = want[16:]
    next_step, states, values = _report(body)
    records = []
    for one in values:
        sources = [(number, *pair) for number, pair in one.sources.items()]
        means = np.array(one.details, np.float64).reshape(-1, 2)
        details = _values.Details(means[:, 0], means[:, 1])
        totals = (one.sum, one.weight, one.nonfinite, one.kind)
        records.append(_values.record(one.step, *totals, sources, details))
    ranges = [(first, end, why or None) for first, end, why in states]
    assert _wire.report(next_step, ranges, records) == want
    assert [(one.step, one.kind) for one in values] == [(38, 0), (40, 22)]


def test_a_loss_arrives_with_its_weight(taking: FakeDaemon, path: Path) -> None:
    (found,) = reported(taking, path, lambda reader, batch: reader.report(batch, loss=1.5))
    assert found == Values(0, 0, 0, 1.5 * TOKENS, TOKENS, {}, [])
    (found,) = reported(taking, path, lambda r, _: r.report(0, loss=np.float32(0.5), tokens=8))
    assert found == Values(0, 0, 0, 4.0, 8.0, {}, [])


def test_sources_rows_and_documents_arrive(taking: FakeDaemon, path: Path) -> None:
    sources = {300: (2.0, 4.0), 2: (1.0, 3.0)}
    (found,) = reported(taking, path, lambda r, b: r.report(b, sources=sources))
    assert found == Values(0, 0, 0, 3.0, 7.0, {2: (1.0, 3.0), 300: (2.0, 4.0)}, [])
    rows = arrays(ROWS)
    (found,) = reported(taking, path, lambda r, b: r.report(b, rows=rows))
    total = float((rows[0] * rows[1]).sum())
    assert found == Values(0, 1, 0, total, 6.0, {}, list(zip(*rows, strict=True)))
    (found,) = reported(
        taking, path, lambda r, b: r.report(b, loss=2, tokens=3, documents=arrays(9), part=True)
    )
    assert (found.kind, found.sum, found.weight, len(found.details)) == (2 | 4, 6.0, 3.0, 9)


def test_losses_that_are_not_finite_are_counted_beside_the_sums(
    taking: FakeDaemon, path: Path
) -> None:
    for bad in (NAN, float("inf"), -float("inf")):
        (found,) = reported(taking, path, lambda r, b, bad=bad: r.report(b, loss=bad))  # type: ignore[misc]
        assert found == Values(0, 0, TOKENS, 0.0, 0.0, {}, [])
    sources = {1: (NAN, 4.0), 2: (1e300, 3.0), 5: (3.0, 2.0)}
    (found,) = reported(taking, path, lambda r, b: r.report(b, sources=sources))
    assert (found.nonfinite, found.sources) == (4, {5: (3.0, 2.0)})
    rows = ([1.0, NAN, 2.0, 3.0], [1, 5, 1, 1])
    (found,) = reported(taking, path, lambda r, b: r.report(b, rows=rows))
    assert (found.nonfinite, found.sum, found.weight) == (5, 6.0, 3.0)
    assert found.details == [(1, 1), (0, 0), (2, 1), (3, 1)]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "many sources": ({"sources": dict.fromkeys(range(10_000), (1, 1))}, "10000 sources"),
    "large source": ({"sources": {65_536: (1, 1)}}, "source 65536; sources are numbers from 0"),
    "source in part": ({"sources": {1.5: (1, 1)}}, "source 1.5"),
    "one number": ({"sources": {1: 1.0}}, r"source 1 has 1\.0; give \{number: \(sum of losses"),
    "three numbers": ({"sources": {1: (1, 2, 3)}}, r"source 1 has \(1, 2, 3\); give"),
    "weight of a source": ({"sources": {1: (1, -2)}}, "the weight -2.0"),
    "many rows": ({"rows": arrays(20_000)}, "losses of 20000 rows; a step has at most 7168"),
    "other rows": ({"rows": arrays(ROWS + 1)}, "losses of 5 rows; the batch of this rank has 4"),
    "many documents": ({"documents": arrays(7169)}, "losses of 7169 documents"),
    "two lengths": ({"rows": (np.zeros(4), np.zeros(3))}, r"shapes \[4\] and \[3\]"),
    "no arrays": ({"rows": 4}, "two arrays of numbers"),
    "weight of a row": ({"rows": (np.zeros(4), [1, 1, NAN, 1])}, "the weight nan"),
    "both": ({"rows": arrays(4), "documents": arrays(4)}, "both rows= and documents="),
    "tokens alone": ({"tokens": 4}, "tokens= without loss="),
    "negative tokens": ({"loss": 1, "tokens": -1}, "tokens=-1"),
    "infinite tokens": ({"loss": 1, "tokens": float("inf")}, "tokens=inf"),
    "too many tokens": ({"loss": 0, "tokens": 1e300}, "the weight of a step's tokens is 1e"),
    "many losses": ({"loss": np.zeros(3)}, r"an array of shape \[3\]"),
    "text": ({"loss": "low"}, "loss= is str"),
    "left out": ({"loss": 1, "left_out": "nan"}, "left out with losses"),
    "part alone": ({"part": True}, "part= alone"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_losses_are_one_error_that_names_them(
    taking: FakeDaemon, path: Path, case: str
) -> None:
    given, text = WRONG[case]
    with connect(path) as reader:
        batch = next(reader)
        with pytest.raises(ValueError, match=text) as found:
            reader.report(batch, **given)
        assert isinstance(found.value, errors.BadReportError)
        assert found.value.step == 0
        assert not reader._reports.waiting()
    assert not sessions(taking)[0].reports


def test_a_number_of_tokens_is_asked_for_where_none_is_known(
    path: Path, daemon: FakeDaemon
) -> None:
    assert daemon.path == path
    with connect(path) as reader:
        next(reader)
        with pytest.raises(ValueError, match="a step's number has no number of tokens"):
            reader.report(0, loss=1.0)
    sample = batch_of({"image": np.zeros(6, np.uint8), "image.offsets": np.array([0, 2, 6])})
    assert learned_tokens(sample) is None


def test_only_learned_labels_weigh() -> None:
    tokens = np.zeros((2, 5), np.uint16)
    mask = np.array([[1, 0, 1, 1, 0], [1, 1, 1, 0, 0]], np.uint8)
    segments = np.array([[1, 1, 2, 2, 0], [1, 1, 1, 1, 1]], np.int32)
    assert learned_tokens(batch_of({"tokens": tokens}, {"tokens": tokens})) == 16
    assert learned_tokens(batch_of({"tokens": tokens, "loss_mask": mask})) == 4
    assert learned_tokens(batch_of({"tokens": tokens, "segment_ids": segments})) == 6


def test_ranks_with_a_part_of_the_rows_give_theirs_a_place(taking: FakeDaemon, path: Path) -> None:
    found, rows = [], ([1.0, 2.0], [3, 4])
    for rank in (0, 1):
        more = {"dp_rank": rank, "dp_size": 2, "split_rows": 2, "attempt": "ab" * 16}
        (values,) = reported(taking, path, lambda r, b: r.report(b, rows=rows), **more)
        found.append(values.details)
        assert values.kind == 1 | 4
    assert found == [[(1, 3), (2, 4), (0, 0), (0, 0)], [(0, 0), (0, 0), (1, 3), (2, 4)]]
    more = {"dp_rank": 0, "dp_size": 2, "split_rows": 2, "attempt": "ab" * 16}
    with connect(path, **more) as reader:
        batch = next(reader)
        with pytest.raises(ValueError, match="give rows= instead"):
            reader.report(batch, documents=arrays(2))


def test_losses_are_repeated_with_their_states_in_a_new_session(
    taking: FakeDaemon, path: Path
) -> None:
    taking.confirms = False
    with connect(path) as reader:
        for batch in reader:
            reader.report(batch, loss=float(batch.step), tokens=1)
            if batch.step == 9:
                break
        first = sessions(taking)[0]
        reader.checkpoint(reader.state_dict())
        eventually(lambda: _sent_now(reader) and len(first.values) == 10)
        first.socket.shutdown(2)
        while len(sessions(taking)) == 1:
            next(reader)
        second = sessions(taking)[-1]
        reader.checkpoint(reader.state_dict())
        eventually(lambda: _sent_now(reader) and len(second.values) == 10)
    assert second.values == first.values == [Values(n, 0, 0, n, 1, {}, []) for n in range(10)]


def test_messages_stay_within_their_bounds() -> None:
    details = _values.Details(np.ones(7168), np.ones(7168))
    large = _values.record(3, 1, 1, 0, 2, (), details)
    queue: list[State] = [State(n % 7, None, large) for n in range(5)]
    assert [len(together(queue[at:])) for at in range(5)] == [1] * 5
    small = _values.record(3, 1, 1, 0, 0)
    states = [State(n, "x" * 64) for n in range(200)] + [
        State(300 + n, None, small) for n in range(900)
    ]
    sent = []
    while states:
        some = together(states)
        states = states[len(some) :]
        sent.append(len(some))
    assert max(sent) == _wire.STATES_MAX
    assert sum(sent) == 1100
    twice = [State(4, None, small), State(4, None), State(4, None, small), State(5, None)]
    assert len(together(twice)) == 2


def test_a_step_that_is_reported_twice_ends_no_session(taking: FakeDaemon, path: Path) -> None:
    def twice(reader: batchweave.Reader, batch: batchweave.Batch) -> None:
        for loss in (1, 2):
            reader.report(batch, loss=loss, tokens=1)

    assert [one.sum for one in reported(taking, path, twice)] == [1, 2]


def test_what_is_not_confirmed_takes_a_mebibyte_and_states_are_kept(
    taking: FakeDaemon, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    taking.confirms = False
    sources = dict.fromkeys(range(256), (1.0, 1.0))
    steps = 500
    with caplog.at_level(logging.WARNING), connect(path) as reader:
        for batch in reader:
            documents = (np.ones(1000), np.ones(1000)) if batch.step < 20 else None
            reader.report(batch, documents=documents, sources=sources, loss=1.0)
            kept = reader._reports._sent.copy()
            held = [state for states in kept for state in states]
            queued = [one for one in reader._reports._queue.copy() if isinstance(one, State)]
            # Once each: they may be on their way from one to the other.
            every = {state.step: state for state in [*held, *queued]}
            assert sum(len(s.values or b"") for s in every.values()) <= 1 << 20
            assert set(every) == set(range(batch.step + 1))
            if batch.step == steps - 1:
                break
        dropped = reader.dropped_losses
        assert dropped.details == 20
        assert 100 < dropped.sources < steps
        assert dropped.values == 0
        assert every[0].values is not None
        assert struct.unpack_from("<QIIII", every[0].values) == (0, 0, 0, 8 | 16, 0)
        assert struct.unpack_from("<QIIII", every[steps - 1].values or b"") == (499, 256, 0, 0, 0)
        assert caplog.text.count("losses of steps are left out") == 1
    assert sessions(taking)[0].bye.wait(20)
    covered = {s for a, b, _ in _states(sessions(taking)[0]) for s in range(a, b)}
    assert covered == set(range(steps))


def _states(peer: Peer) -> list[tuple[int, int, str]]:
    return [state for _, report in peer.reports for state in report]


def test_whole_losses_are_dropped_last() -> None:
    kept = _values.Kept()
    states = [State(n, None, _values.record(n, 1, 1, 0, 0)) for n in range(30_000)]
    assert kept.fit(states)
    lost = [state.step for state in states if state.values is None]
    assert lost == list(range(len(lost)))
    assert kept.values == len(lost)
    assert 40 * (30_000 - len(lost)) <= _values.BYTES_MAX
    assert (kept.details, kept.sources) == (0, 0)
    assert not kept.fit(states)


def test_large_losses_are_sent_before_many_steps_wait(taking: FakeDaemon, path: Path) -> None:
    taking.confirms = False
    with connect(path) as reader:
        batch = next(reader)
        reader.report(batch, loss=1)
        eventually(lambda: _sent_now(reader))
        for _ in range(4):
            reader.report(batch, loss=1, tokens=1, documents=arrays(5000))
        assert len(reader._reports._queue) < 4


def test_a_full_socket_keeps_no_copies_of_losses(taking: FakeDaemon, path: Path) -> None:
    taking.confirms = False
    with connect(path) as reader:
        batch = next(reader)
        reader.report(batch, loss=1)
        session = reader._session
        assert session is not None
        eventually(lambda: _sent_now(reader))
        send = session._send
        session._send = lambda message: not message  # type: ignore[method-assign]
        for _ in range(300):
            reader.report(batch, loss=1, tokens=1, documents=arrays(1000))
        assert len(session._outbox) <= 1
        assert reader.dropped_losses.details > 0
        session._send = send  # type: ignore[method-assign]
        deadline = time.monotonic() + 60
        while reader._reports.waiting() and time.monotonic() < deadline:
            reader._reports.send(session)
        eventually(lambda: session.flush() and len(sessions(taking)[0].values) == 301)


def _sent_now(reader: batchweave.Reader) -> bool:
    session = reader._session
    assert session is not None
    reader._reports.send(session)
    return not reader._reports.waiting()
