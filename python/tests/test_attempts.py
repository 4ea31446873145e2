"""Attempts, their marks, and the steps that they pass over."""

from __future__ import annotations

import json
import logging
import struct
from pathlib import Path
from typing import Any

import pytest
from conftest import eventually
from fake_daemon import STREAM, FakeDaemon, Peer, tokens_of

import batchweave
from batchweave import _launch, errors

FIRST, SECOND = "1f" * 16, "2f" * 16
SLURM = {
    "SLURM_PROCID": "1",
    "SLURM_NTASKS": "4",
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
}


def inner(state: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(state["batchweave"])
    return found


def test_an_attempt_is_given_or_in_the_environment_or_drawn() -> None:
    named = {"BATCHWEAVE_ATTEMPT": "1F1F1F1F-1F1F-1F1F-1F1F-1F1F1F1F1F1F", **SLURM}
    assert _launch.attempt_of(SECOND, 4, 0, named) == SECOND
    assert _launch.attempt_of(None, 4, 0, named) == FIRST
    drawn = {_launch.attempt_of(None, 1, rank, {}) for rank in (0, None) for _ in range(3)}
    assert len(drawn) == 6
    assert all(len(each) == 32 and int(each, 16) for each in drawn)


@pytest.mark.parametrize(
    ("dp_size", "global_rank", "env"),
    [
        (2, 0, {}),
        (1, 0, {"RANK": "0", "WORLD_SIZE": "8"}),
        (1, 3, {}),
        (4, 0, {"RANK": "0", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "none", **SLURM}),
        (4, 0, {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}),
        (8, 0, SLURM),
    ],
)
def test_without_one_the_error_says_how(
    dp_size: int, global_rank: int, env: dict[str, str]
) -> None:
    with pytest.raises(errors.NoAttemptError) as caught:
        _launch.attempt_of(None, dp_size, global_rank, env)
    for way in ("batchweave.torch.attempt()", "batchweave.jax.attempt()", "BATCHWEAVE_ATTEMPT="):
        assert way in str(caught.value)
        assert way in (caught.value.remedy or "")


def test_torchruns_restarts_need_a_new_one_each() -> None:
    again = {"BATCHWEAVE_ATTEMPT": FIRST, "TORCHELASTIC_RUN_ID": "x"}
    assert _launch.attempt_of(None, 4, 0, {**again, "TORCHELASTIC_MAX_RESTARTS": "0"}) == FIRST
    for name in ("TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RESTART_COUNT"):
        with pytest.raises(errors.NoAttemptError, match="unset it"):
            _launch.attempt_of(None, 4, 0, {**again, name: "1"})


def test_a_slurm_step_is_an_attempt() -> None:
    ids = [
        _launch.attempt_of(None, 4, rank, {**SLURM, "SLURM_PROCID": str(rank), **more})
        for more in ({}, {"SLURM_STEP_ID": "1"}, {"SLURM_RESTART_COUNT": "1"})
        for rank in range(4)
    ]
    assert [ids.count(each) for each in ids] == [4] * 12
    assert len(set(ids)) == 3
    assert all(len(each) == 32 for each in ids)


def test_what_is_no_attempt_id_is_named(path: Path) -> None:
    for wrong in ("", "7", "x" * 32, "0" * 32, FIRST + "0"):
        with pytest.raises(errors.BadHelloError, match="32 random hexadecimal digits"):
            batchweave.connect(path, job="j", attempt=wrong)
    with pytest.raises(errors.BadHelloError, match="needs job="):
        batchweave.connect(path, attempt=FIRST)
    with pytest.raises(errors.NoAttemptError, match="2 ranks"):
        batchweave.connect(path, job="j", dp_rank=0, dp_size=2)


def test_an_attempt_goes_on_from_the_state_of_another(daemon: FakeDaemon, path: Path) -> None:
    daemon.attempt_number = 4
    with batchweave.connect(path, job="j", attempt=FIRST) as reader:
        first = reader.state_dict()
        assert inner(first) == {
            "format": 1,
            "stream_id": str(STREAM),
            "next_step": 0,
            "attempt": FIRST,
            "attempt_number": 4,
            "world": 1,
        }
        state = next(reader).state_dict()
    with batchweave.connect(path, job="j", attempt=FIRST, state=state):
        pass
    daemon.attempt_number = 5
    with batchweave.connect(path, job="j", state=state, dp_rank=0, dp_size=2, attempt=SECOND) as r:
        assert next(r).step == 1
        assert inner(r.state_dict())["attempt_number"] == 5
    with batchweave.connect(path, state=state):
        pass
    hellos = [
        tuple(peer.hello[key] for key in ("attempt", "parent", "mode")) for peer in daemon.peers
    ]
    parent = {"attempt": 4, "id": FIRST, "step": 1}
    assert hellos == [
        (FIRST, None, "join"),
        (FIRST, parent, "resume"),
        (SECOND, parent, "join"),
        (None, None, "join"),
    ]


def test_a_superseded_attempt_is_told_and_keeps_its_arrays(daemon: FakeDaemon, path: Path) -> None:
    def supersede(peer: Peer) -> bool:
        for older in daemon.peers:
            if older.running and older.hello["attempt"] != peer.hello["attempt"]:
                older.running = False
                older.send_error(9, "attempt_superseded", step=None)
        return False

    daemon.on_hello = supersede
    with batchweave.connect(path, job="j", attempt=FIRST) as old:
        kept = next(old)
        with batchweave.connect(path, job="j", attempt=SECOND) as new:
            assert next(new).step == 0
            with pytest.raises(errors.AttemptSupersededError, match="change it") as caught:
                for _ in old:
                    pass
            assert caught.value.remedy == "change it"
            with pytest.raises(errors.AttemptSupersededError):
                old.checkpoint(kept.state_dict())
            assert (kept["tokens"] == tokens_of(0, 0)).all()
            assert next(new).step == 1


@pytest.mark.parametrize(
    ("cause", "error", "remedy"),
    [
        (7, errors.AttemptNotOpenedError, "global rank 0"),
        (10, errors.JobNotOpenError, "batchweave job open"),
        (8, errors.NoDaemonError, "folding"),
    ],
)
def test_what_connect_waits_for_in_vain_is_named(
    path: Path, cause: int, error: type[Exception], remedy: str
) -> None:
    def wait(peer: Peer) -> bool:
        peer.send_waiting(0, cause, "folding the log")
        return True

    with FakeDaemon(path) as daemon:
        daemon.on_hello = wait
        with pytest.raises(error, match=remedy):
            batchweave.connect(path, job="j", connect_timeout=0.2)


REFUSALS = sorted(
    (code, cls)
    for code, cls in errors.BY_CODE.items()
    if issubclass(cls, errors.MarkRefusedError) and cls is not errors.MarkNotStoredError
)


@pytest.mark.parametrize(("code", "cls"), REFUSALS)
def test_a_refused_mark_is_raised_by_the_next_one_or_by_close(
    daemon: FakeDaemon, path: Path, code: int, cls: type[errors.MarkRefusedError]
) -> None:
    daemon.refuses = (code, cls.name)
    reader = batchweave.connect(path, job="j")
    first = next(reader)
    reader.checkpoint(first.state_dict())
    eventually(lambda: len(daemon.peers[0].checkpoints) == 1)
    # Reading continues, and receives the refusal meanwhile.
    assert [next(reader).step for _ in range(9)] == list(range(1, 10))
    with pytest.raises(cls, match=r"it is so \(step 1\); change it") as caught:
        reader.checkpoint(reader.state_dict())
    assert (caught.value.step, caught.value.remedy) == (1, "change it")
    with pytest.raises(cls, match="step 10"):
        reader.close()
    reader.close()
    assert [step for step, _ in daemon.peers[0].checkpoints] == [1, 10]


def test_a_mark_that_could_not_be_stored_stops_no_rank(
    daemon: FakeDaemon, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    daemon.refuses = (30, "mark_not_stored")
    caplog.set_level(logging.WARNING, "batchweave")
    with batchweave.connect(path, job="j") as reader:
        for batch in reader:
            reader.checkpoint(batch.state_dict())
            if batch.step == 5:
                break
    assert "not a restart point: it is so (step 1)" in caplog.text
    assert "not confirmed" not in caplog.text


def test_an_error_of_the_trainer_is_not_hidden_by_a_refused_mark(
    daemon: FakeDaemon, path: Path
) -> None:
    daemon.refuses = (28, "mark_in_future")

    def train() -> None:
        with batchweave.connect(path, job="j") as reader:
            reader.checkpoint(next(reader).state_dict())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()


def test_a_restored_state_is_no_new_mark(daemon: FakeDaemon, path: Path) -> None:
    with batchweave.connect(path, job="j", attempt=FIRST) as reader:
        state = next(reader).state_dict()
    with batchweave.connect(path, job="j", attempt=SECOND, state=state) as reader:
        with pytest.raises(errors.MarkOtherAttemptError, match="restart point already") as caught:
            reader.checkpoint(state)
        assert caught.value.step == 1
        assert next(reader).step == 1, "reading goes on"
    assert not daemon.peers[1].checkpoints


def test_an_attempt_does_not_move(daemon: FakeDaemon, path: Path) -> None:
    with batchweave.connect(path, job="j", attempt=FIRST) as reader:
        state = next(reader).state_dict()
        reader.load_state_dict(state)
        assert next(reader).step == 1
        with pytest.raises(errors.BadStateError, match=r"is at step 1, .* connect\(state"):
            reader.load_state_dict(state)
        assert next(reader).step == 2
    assert len(daemon.peers) == 1


def test_marks_that_wait_are_bounded(daemon: FakeDaemon, path: Path) -> None:
    daemon.marks = False
    with batchweave.connect(path, job="j") as reader:
        for batch in reader:
            reader.checkpoint(batch.state_dict())
            if batch.step == 99:
                break
        assert reader._marks.unconfirmed() == list(range(37, 101))
        reader._marks._waiting.clear()


def skip_4_to_8(peer: Peer) -> bool:
    """Acts as the daemon of an attempt that skips steps 4 to 8, in a stream of 10."""
    asked = peer.hello["next_step"]
    peer.send_welcome(next_step=9 if 4 <= asked < 9 else asked)
    peer.send_segment()
    peer.send_layout()
    for step in (*range(asked, 4), -1, *range(max(asked, 9), 10)):
        if step >= 0:
            peer.send_step(step)
        elif asked < 4:
            peer.send_welcome(next_step=9)
    peer.send(68, struct.pack("<Q", 10))
    return True


def test_ranks_have_one_state_wherever_they_learn_of_a_skip(path: Path) -> None:
    with FakeDaemon(path) as daemon:
        daemon.on_hello = skip_4_to_8
        with batchweave.connect(path, start=3) as early:
            batch = next(early)
            assert (batch.step, early.next_step) == (3, 4)
            state = batch.state_dict()
            assert inner(state)["next_step"] == 4
        # A rank that reconnects in the middle learns of it immediately.
        for asked in (4, 6, 8):
            middle = {"batchweave": json.dumps({**inner(state), "next_step": asked})}
            with batchweave.connect(path, state=middle) as late:
                assert late.next_step == 9
                assert inner(late.state_dict())["next_step"] == asked
                assert next(late).step == 9
                assert inner(late.state_dict())["next_step"] == 10
        with batchweave.connect(path, start=2) as reader:
            assert [batch.step for batch in reader] == [2, 3, 9]
            assert (reader.next_step, inner(reader.state_dict())["next_step"]) == (10, 10)


def test_a_reader_that_reconnects_in_a_skip_goes_on_after_it(path: Path) -> None:
    first = FakeDaemon(path)
    first.on_hello = skip_4_to_8
    with batchweave.connect(path, start=3, timeout=20) as reader:
        state = next(reader).state_dict()
        first.stop()
        with FakeDaemon(path) as second:
            second.on_hello = skip_4_to_8
            session = reader._session
            assert session is not None
            session.torn = True
            assert reader.state_dict() == state
            assert [batch.step for batch in reader] == [9]
            assert second.peers[0].hello["next_step"] == 4
