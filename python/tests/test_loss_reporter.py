"""Reports of losses that stay on a device: here one that computes when the test lets it."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_daemon import ROWS, SEQ_LEN, FakeDaemon
from loss_device import reporter
from test_label_groups import rows_batch
from test_reports import MARK, connect, covered, reads_until_marked, sessions, taking
from test_whole import batch_of

import batchweave
from batchweave import _ending, _loss_reporter, errors
from batchweave._loss_reporter import Copy
from batchweave.batch import Batch

__all__ = ["taking"]

TOKENS = ROWS * SEQ_LEN


def loss_of(step: int) -> Any:
    return np.full((ROWS, SEQ_LEN), float(step))


def of(reader: batchweave.Reader, step: int, batch: Batch) -> Batch:
    """The batch as one that this reader returned."""
    return Batch(step, batch.slices, reader._origin)


def test_steps_are_reported_together_after_some_steps(taking: FakeDaemon, path: Path) -> None:
    with connect(path) as reader:
        report = reporter(reader, every=5)
        for batch in reader:
            report(batch, loss_of(batch.step))
            if batch.step == 12:
                break
        assert report.device.copied == [5, 5]
        assert len(report._waiting) == 3
        reader.checkpoint(reader.state_dict())
        assert report.device.copied == [5, 5, 3]
        (peer,) = sessions(taking)
        reads_until_marked(reader, peer)
        assert peer.said[-1] == MARK
        assert covered(peer) == set(range(13))
        report(next(reader), loss_of(0))
    assert peer.bye.wait(20)
    sums = {one.step: (one.sum, one.weight) for one in peer.values}
    assert [sums[step] for step in range(13)] == [(step * TOKENS, TOKENS) for step in range(13)]
    assert len(peer.values) == 14, "those after the mark are reported at the end"


def test_no_step_waits_for_the_device_and_a_mark_waits_a_while(
    taking: FakeDaemon,
    path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_ending, "_LOSSES_SECONDS", 0.05)
    with caplog.at_level(logging.WARNING), connect(path) as reader:
        report = reporter(reader, every=2)
        report.device.computes = False
        for batch in reader:
            report(batch, loss_of(1))
            if batch.step == 5:
                break
        assert len(report._waiting) == 6
        # A device that is as slow as this is waited for by the mark, and it is in time.
        timer = threading.Timer(0.01, lambda: setattr(report.device, "computes", True))
        monkeypatch.setattr(_ending, "_LOSSES_SECONDS", 60)
        timer.start()
        reader.checkpoint(reader.state_dict())
        assert not report._waiting
        timer.join()
        monkeypatch.setattr(_ending, "_LOSSES_SECONDS", 0.05)
        report.device.computes = False
        for _ in range(3):
            report(next(reader), loss_of(1))
        reader.checkpoint(reader.state_dict())
        assert not report._waiting
        assert reader.dropped_losses == (0, 0, 3)
        assert caplog.text.count("the device has not computed them in 0.05 s") == 1
    (peer,) = sessions(taking)
    assert peer.bye.wait(20)
    assert covered(peer) == set(range(9)), "states are reported without losses"
    assert {one.step for one in peer.values} == set(range(6))


def test_a_device_that_never_computes_lets_few_steps_wait(
    taking: FakeDaemon, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_loss_reporter, "_FLUSH_SECONDS", 0.001)
    monkeypatch.setattr(_ending, "_LOSSES_SECONDS", 0.001)
    assert taking.takes_reports
    with connect(path) as reader:
        report = reporter(reader, every=2)
        report.device.computes = False
        for batch in reader:
            report(batch, loss_of(1))
            assert len(report._waiting) <= 8
            if batch.step == 40:
                break


def test_a_device_that_fails_loses_losses_and_no_state(
    taking: FakeDaemon, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), connect(path) as reader:
        report = reporter(reader, every=1)
        report.device.fails = RuntimeError("CUDA error: out of order")
        for _ in range(3):
            report(next(reader), loss_of(1))
        # Weights that are negative are known only when they were copied.
        report.device.fails = None
        report(next(reader), loss_of(1), np.full((ROWS, SEQ_LEN), -1.0))
        assert reader.dropped_losses == (0, 0, 4)
    assert "step 0: RuntimeError: CUDA error: out of order" in caplog.text
    (peer,) = sessions(taking)
    assert peer.bye.wait(20)
    assert (covered(peer), peer.values) == ({0, 1, 2, 3}, [])


def test_sources_and_details_are_reported(taking: FakeDaemon, path: Path) -> None:
    batch = rows_batch(4)
    mask = np.concatenate([piece["loss_mask"][:, 1:] for piece in batch.slices])
    ids = np.concatenate([piece["source_ids"][:, 1:] for piece in batch.slices])
    losses = np.random.default_rng(1).random(mask.shape)
    losses[0, 3] = losses[2, 4] = np.nan
    counts = mask * np.isfinite(losses)
    good = np.nan_to_num(losses) * counts
    for detail in ("row", "document"):
        with connect(path) as reader:
            next(reader)
            report = reporter(reader, every=1, detail=detail, part=True)
            report(of(reader, 0, batch), losses)
        peer = sessions(taking)[-1]
        assert peer.bye.wait(20)
        (found,) = peer.values
        assert found.kind == (1 if detail == "row" else 2) | 4
        assert found.nonfinite == (mask * np.isnan(losses)).sum() > 0
        assert found.sum == pytest.approx(good.sum())
        assert found.weight == counts.sum()
        assert set(found.sources) == set(ids[counts > 0])
        for source, (total, weight) in found.sources.items():
            assert total == pytest.approx(good[ids == source].sum())
            assert weight == counts[ids == source].sum()
        assert sum(m * w for m, w in found.details) == pytest.approx(good.sum(), rel=1e-5)
        if detail == "row":
            assert [w for _, w in found.details] == counts.sum(1).tolist()


def test_weights_replace_the_mask(taking: FakeDaemon, path: Path) -> None:
    weights = np.zeros((ROWS, SEQ_LEN))
    weights[1] = 0.5
    with connect(path) as reader:
        report = reporter(reader)
        batch = next(reader)
        report(batch, loss_of(3), weights)
        with pytest.raises(ValueError, match="step 0: 5 weights for 60 losses"):
            report(batch, loss_of(3), weights[0, :5])
        with pytest.raises(ValueError, match="losses of 5 labels, the batch has 60"):
            report(batch, loss_of(3)[0, :5])
    peer = sessions(taking)[-1]
    assert peer.bye.wait(20)
    assert [(one.sum, one.weight) for one in peer.values] == [(3 * SEQ_LEN / 2, SEQ_LEN / 2)]


def test_sources_and_details_beyond_the_bounds_are_said_once_and_counted(
    taking: FakeDaemon, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ids = np.arange(602, dtype=np.uint16).reshape(2, 301)
    wide = batch_of({"tokens": np.zeros((2, 301), np.uint16), "source_ids": ids})
    with caplog.at_level(logging.WARNING), connect(path) as reader:
        report = reporter(reader, every=1)
        for step in range(3):
            next(reader)
            report(of(reader, step, wide), np.ones(600))
        assert reader.dropped_losses == (0, 3, 0)
    assert caplog.text.count("losses of steps are left out") == 1
    assert "step 0 has more than 256 sources" in caplog.text
    peer = sessions(taking)[-1]
    assert peer.bye.wait(20)
    assert [(one.kind, one.sum, one.sources) for one in peer.values] == [(16, 600, {})] * 3


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"every": 0}, "every=0: give a number of steps from 1 to 1024"),
    ({"detail": "token"}, 'give "row", "document" or None'),
]


def test_wrong_arguments_are_named(taking: FakeDaemon, path: Path) -> None:
    assert taking.takes_reports
    with connect(path) as reader:
        for given, text in WRONG:
            with pytest.raises(ValueError, match=text):
                reporter(reader, **given)
        with pytest.raises(errors.BadMeshError, match="rank 4 of 2"):
            reporter(reader, part=(4, 2, "zigzag"))
        foreign = batch_of({"tokens": np.zeros((2, 5), np.uint16)})
        report = reporter(reader)
        with pytest.raises(errors.BadReportError, match="was not read yet"):
            report(foreign, np.zeros(8))
    with pytest.raises(errors.ClosedError):
        report(foreign, np.zeros(8))
    more = {"dp_rank": 0, "dp_size": 2, "split_rows": 2, "attempt": "ab" * 16}
    with connect(path, **more) as reader, pytest.raises(ValueError, match='give detail="row"'):
        reporter(reader, detail="document")


def test_a_reporter_keeps_no_reader(taking: FakeDaemon, path: Path) -> None:
    assert taking.takes_reports
    reader = connect(path)
    report = reporter(reader)
    batch = next(reader)
    reader.close()
    gc.disable()
    try:
        del reader
        with pytest.raises(errors.ClosedError, match="is gone"):
            report(batch, loss_of(1))
    finally:
        gc.enable()


def test_a_mark_from_within_a_report_has_all_steps_before_it(
    taking: FakeDaemon, path: Path
) -> None:
    """A signal handler that marks while losses are copied."""
    with connect(path) as reader:
        report = reporter(reader, every=2)
        copies = report._copies
        within: list[int] = []

        def interrupted(sums: Sequence[Any]) -> Sequence[Copy]:
            if not within:
                within.append(len(sums))
                reader.checkpoint(reader.state_dict())
            return copies(sums)

        report._copies = interrupted  # type: ignore[method-assign]
        for _ in range(2):
            report(next(reader), loss_of(1))
        assert within == [2]
        (peer,) = sessions(taking)
        reads_until_marked(reader, peer)
        before = peer.said.index(MARK)
        reported = {s for _, r in peer.reports[:before] for a, b, _ in r for s in range(a, b)}
        assert reported == {0, 1}


def test_without_a_job_nothing_is_kept(taking: FakeDaemon, path: Path) -> None:
    assert taking.takes_reports
    with batchweave.connect(path, timeout=20) as reader:
        report = reporter(reader)
        report(next(reader), loss_of(1))
        assert not report._waiting
