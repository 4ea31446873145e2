"""Peek, seek, limit and length; a reader in another process."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import struct
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import eventually
from fake_daemon import FakeDaemon, Peer, tokens_of

import batchweave
from batchweave import errors


def steps(reader: batchweave.Reader) -> list[int]:
    return [batch.step for batch in reader]


def test_peek_shows_the_next_batch_and_takes_nothing(path: Path) -> None:
    daemon = FakeDaemon(path, end=3)
    with batchweave.connect(path) as reader:
        ahead = reader.peek()
        assert (ahead.step, reader.next_step) == (0, 0)
        assert reader.peek() is ahead
        assert next(reader) is ahead
        assert reader.next_step == 1
        # Peeking over a daemon's restart neither doubles nor loses a step.
        assert reader.peek().step == 1
        daemon.stop()
        with FakeDaemon(path, end=3):
            assert steps(reader) == [1, 2]
            with pytest.raises(StopIteration):
                reader.peek()


def test_seek_goes_anywhere_and_a_job_stays(path: Path) -> None:
    with FakeDaemon(path, end=50):
        with batchweave.connect(path) as reader:
            next(reader)
            reader.peek()
            reader.seek(40)
            assert (reader.next_step, reader.peek().step) == (40, 40)
            reader.seek(7)
            assert (next(reader)["tokens"] == tokens_of(7, 0)).all()
            assert len(steps(reader)) == 42
            reader.seek(49)
            assert steps(reader) == [49], "the end was not final"
            with pytest.raises(errors.BadHelloError, match="from 0 on"):
                reader.seek(-1)
        with batchweave.connect(path, job="j") as reader:
            with pytest.raises(errors.BadStateError, match=r"seek\(3\).*an attempt cannot move"):
                reader.seek(3)
            reader.seek(0)
            assert next(reader).step == 0


def test_a_limit_ends_all_ranks_at_one_step(path: Path) -> None:
    def passes_over(peer: Peer) -> bool:
        peer.welcome_and_start()
        return True

    with FakeDaemon(path) as daemon:
        daemon.on_hello = passes_over
        with batchweave.connect(path, start=5, limit=4) as reader:
            assert len(reader) == 4
            next(reader)
            assert len(reader) == 4, "the whole, not the rest"
            assert steps(reader) == [6, 7, 8]
            assert len(reader) == 4
            assert next(reader, None) is None
            # A second evaluation evaluates; so does one from another step, or from where it is.
            for first in (5, 2, 6):
                reader.seek(first)
                assert reader.first_step == first
                assert steps(reader) == [first, first + 1, first + 2, first + 3]
                assert len(reader) == 4
            state = reader.state_dict()
            reader.seek(0)
            next(reader)
            reader.load_state_dict(state)
            assert steps(reader) == [10, 11, 12, 13]
        with batchweave.connect(path, job="j", limit=3) as reader:
            next(reader)
            reader.seek(1)
            assert steps(reader) == [1, 2], "a job's reader stays, and so does its limit"
        with batchweave.connect(path, limit=0) as reader:
            assert steps(reader) == []
        with pytest.raises(errors.BadHelloError, match="limit=-1"):
            batchweave.connect(path, limit=-1)


def test_the_length_is_known_when_the_stream_is_sealed(path: Path) -> None:
    def sealed(peer: Peer) -> bool:
        peer.welcome_and_start(end_step=20)
        return True

    with FakeDaemon(path, end=20) as daemon:
        with batchweave.connect(path, credits=32) as reader:
            assert reader, "no length is asked for"
            with pytest.raises(TypeError, match="batchweave seal"):
                len(reader)
            # It asks for the length and continues without it.
            assert len(list(reader)) == 20
        daemon.on_hello = sealed
        with batchweave.connect(path) as reader:
            next(reader)
            assert len(reader) == 20
            state = reader.state_dict()
            assert len(steps(reader)) == 19
            assert len(reader) == 20
            reader.seek(8)
            assert len(reader) == len(steps(reader)) == 12
        # A schedule that is made from the length is the same after a restart.
        with batchweave.connect(path, job="j", state=state) as reader:
            assert (reader.next_step, len(reader)) == (1, 20)
        with batchweave.connect(path, limit=30) as reader:
            assert len(reader) == 20
        with batchweave.connect(path, start=15, limit=30) as reader:
            assert len(reader) == len(steps(reader)) == 5


def test_waiting_leaves_the_interpreter_to_other_threads(path: Path) -> None:
    def silent(peer: Peer) -> bool:
        peer.send_welcome()
        return True

    counted = 0
    over = threading.Event()

    def count() -> None:
        nonlocal counted
        while not over.is_set():
            counted += 1
            time.sleep(0)

    with FakeDaemon(path) as daemon:
        daemon.on_hello = silent
        with batchweave.connect(path, timeout=0.5) as reader:
            thread = threading.Thread(target=count)
            thread.start()
            with pytest.raises(errors.StepTimeoutError):
                next(reader)
            over.set()
            thread.join()
    assert counted > 20


def test_a_pickled_reader_connects_again_where_it_stood(path: Path) -> None:
    with FakeDaemon(path, end=9) as daemon:
        with batchweave.connect(path, limit=8) as reader:
            next(reader)
            next(reader)
            text = pickle.dumps(reader)
            state = reader.state_dict()
        assert len(daemon.peers) == 1
        with pickle.loads(text) as again:
            assert len(daemon.peers) == 1, "it connects when it is used"
            assert again.next_step == 2
            assert len(again) == 8
            assert again.state_dict() == state
            assert steps(again) == [2, 3, 4, 5, 6, 7]
        hello = daemon.peers[1].hello
        assert (hello["mode"], hello["next_step"]) == ("resume", 2)


def _read_in_child(reader: batchweave.Reader, answer: Any) -> None:
    with reader:
        answer.send([(batch.step, int(batch["tokens"][0, 0])) for batch in reader])


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_reader_may_be_sent_to_a_spawned_process(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with FakeDaemon(path, end=4), batchweave.connect(path) as reader:
        next(reader)
        child = context.Process(target=_read_in_child, args=(reader, theirs))
        child.start()
        assert ours.poll(60)
        assert ours.recv() == [(k, int(tokens_of(k, 0)[0, 0])) for k in range(1, 4)]
        child.join(60)
        assert child.exitcode == 0


def test_a_forked_child_is_told_what_to_do(daemon: FakeDaemon, path: Path) -> None:
    with batchweave.connect(path) as reader:
        next(reader)
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                reader.peek()
            except errors.ForkedError as error:
                os.write(theirs, str(error).encode())
            finally:
                os._exit(0)
        os.close(theirs)
        said = os.read(ours, 4096).decode()
        os.close(ours)
        os.waitpid(child, 0)
        assert "connect in the child, or start it by 'spawn'" in said
        assert next(reader).step == 1
    assert daemon.peers


def test_the_frames_of_a_step_are_released_by_one_message(path: Path) -> None:
    messages: list[int] = []
    with FakeDaemon(path, slices=8) as daemon, batchweave.connect(path, credits=2) as reader:
        peer = daemon.peers[0]
        taken = peer._take

        def note(kind: int, body: bytes) -> None:
            if kind == 2:
                messages.append(struct.unpack_from("<QII", body)[1])
            taken(kind, body)

        peer._take = note  # type: ignore[method-assign]
        batch = next(reader)
        early = batch.slices.pop(3)
        del early
        kept = batch.slices[5]["tokens"]
        del batch
        assert np.array(kept).any()
        time.sleep(0.05)
        assert messages == [], "they go together"
        del kept
        eventually(lambda: messages == [8])
        # The next call sends the releases that the step's last frame delayed.
        batch = next(reader)
        batch.slices.pop(0)
        next(reader)
        eventually(lambda: messages == [8, 1] or sum(messages) >= 9)
