"""A reader when the daemon, the protocol or the process itself misbehaves."""

from __future__ import annotations

import gc
import itertools
import json
import os
import socket
import struct
import threading
import time
import uuid
from pathlib import Path

import pytest
from conftest import eventually
from fake_daemon import STREAM, FakeDaemon, Peer, tokens_of
from test_frames import read_only_mappings

import batchweave
from batchweave import _session, errors


def state_of(next_step: int, stream: str = str(STREAM)) -> dict[str, str]:
    fields = {"format": 1, "stream_id": stream, "next_step": next_step, "attempt": None, "world": 1}
    return {"batchweave": json.dumps(fields)}


def drain(reader: batchweave.Reader) -> None:
    for _ in reader:
        pass


def test_no_daemon_is_an_error_within_the_timeout(path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(errors.NoDaemonError, match=r"no such socket.*BATCHWEAVE_SOCKET"):
        batchweave.connect(path, connect_timeout=0.3)
    assert 0.3 <= time.monotonic() - began < 5


def test_a_socket_without_a_server_or_an_answer(path: Path) -> None:
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    dead.bind(str(path))
    with pytest.raises(errors.NoDaemonError, match="no daemon listens"):
        batchweave.connect(path, connect_timeout=0.1)
    dead.listen(1)
    with pytest.raises(errors.NoDaemonError, match="does not answer"):
        batchweave.connect(path, connect_timeout=0.1)
    dead.close()


def test_a_path_that_is_no_socket_of_ours(path: Path) -> None:
    other = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    other.bind(str(path))
    other.listen(1)
    with pytest.raises(errors.SystemRefusedError, match=str(path)):
        batchweave.connect(path, connect_timeout=5)
    other.close()


def test_a_daemon_that_starts_late_is_waited_for(path: Path) -> None:
    started: list[FakeDaemon] = []
    timer = threading.Timer(0.2, lambda: started.append(FakeDaemon(path, end=1)))
    timer.start()
    with batchweave.connect(path, connect_timeout=20) as reader:
        assert [batch.step for batch in reader] == [0]
    started[0].stop()


def test_a_late_step_is_an_error_with_the_daemons_cause(path: Path) -> None:
    def silent(peer: Peer) -> bool:
        peer.send_waiting(0, 8, "folding the log")
        peer.send_welcome()
        peer.send_waiting(0, 1, "the head is at step 0")
        return True

    with FakeDaemon(path) as daemon:
        daemon.on_hello = silent
        with batchweave.connect(path, timeout=2) as reader:
            with pytest.raises(errors.StepTimeoutError) as caught:
                next(reader)
            text = str(caught.value)
            assert "step 0 did not arrive" in text
            assert reader.cause == "producing: the head is at step 0"
            assert "producing: the head is at step 0; check that producers run" in text
            daemon.peers[0].send_segment()
            daemon.peers[0].send_layout()
            daemon.peers[0].send_step(0)
            assert next(reader).step == 0, "a timeout is not the end"
            assert reader.cause is None


def test_a_daemon_that_stays_away_is_an_error(path: Path) -> None:
    daemon = FakeDaemon(path)
    with batchweave.connect(path, timeout=2) as reader:
        daemon.stop()
        with pytest.raises(errors.DaemonGoneError, match=r"daemon_restarting.*before step \d"):
            drain(reader)
        stands_at = reader.next_step
        with FakeDaemon(path):
            assert next(reader).step == stands_at, "it may come back later"


def test_another_stream_after_the_restart_is_refused(path: Path) -> None:
    daemon = FakeDaemon(path)
    with batchweave.connect(path, timeout=5) as reader:
        next(reader)
        daemon.stop()
        with FakeDaemon(path) as other:
            other.stream = uuid.UUID(int=5)
            with pytest.raises(errors.OtherStreamError, match="serves 0000"):
                drain(reader)


def test_a_lost_message_is_asked_for_again(daemon: FakeDaemon, path: Path) -> None:
    with batchweave.connect(path, credits=4, timeout=20) as reader:
        kept = next(reader)
        session = reader._session
        assert session is not None
        eventually(lambda: len(daemon.peers[0].held) == 4)
        session._socket.recv(1 << 16)
        assert [next(reader).step for _ in range(4)] == [1, 2, 3, 4]
        old, new = daemon.peers
        assert new.hello["replaces"] == {"instance": daemon.instance.hex(), "session": 1}
        assert new.hello["mapped_bytes"] == 0, "segments of this daemon do not count"
        assert old.bye.wait(5)
        assert not old.gone.is_set(), "the old socket stays while a frame of it is held"
        assert (kept["tokens"] == tokens_of(0, 0)).all()
        del kept
        assert old.gone.wait(5)


def test_closing_keeps_the_socket_until_the_last_frame_is_gone(
    daemon: FakeDaemon, path: Path
) -> None:
    reader = batchweave.connect(path)
    kept = next(reader)["tokens"][:2]
    reader.close()
    reader.close()
    peer = daemon.peers[0]
    assert peer.bye.wait(5)
    assert peer.received == 1, "the last step is told, too"
    with pytest.raises(errors.ClosedError):
        next(reader)
    assert not peer.gone.is_set()
    assert (kept == tokens_of(0, 0)[:2]).all()
    del kept
    assert peer.gone.wait(5)


def test_a_reader_dropped_with_live_arrays_keeps_their_frames(
    daemon: FakeDaemon, path: Path
) -> None:
    reader = batchweave.connect(path)
    kept = next(reader)["tokens"]
    left = [reader]
    del reader
    with pytest.warns(ResourceWarning, match="not closed"):
        left.clear()
    peer = daemon.peers[0]
    assert peer.bye.wait(5)
    assert not peer.gone.is_set()
    assert (kept == tokens_of(0, 0)).all()
    del kept
    assert peer.gone.wait(5)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_is_detected_and_the_child_lets_go(daemon: FakeDaemon, path: Path) -> None:
    with batchweave.connect(path, timeout=5) as reader:
        batch = next(reader)
        session = reader._session
        assert session is not None
        descriptor = session._socket.fileno()
        child = os.fork()
        if child == 0:
            code = 0
            try:
                next(reader)
                code |= 1
            except errors.ForkedError:
                pass
            try:
                os.fstat(descriptor)
                code |= 2
            except OSError:
                pass
            code |= 4 if read_only_mappings() else 0
            del batch
            gc.collect()
            reader.close()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert (batch["tokens"] == tokens_of(0, 0)).all(), "the parent is untouched"
        assert [next(reader).step for _ in range(9)] == list(range(1, 10))
        assert len(daemon.peers) == 1


def test_checkpoints_are_told_and_told_again_after_a_restart(path: Path) -> None:
    first = FakeDaemon(path)
    first.marks = False
    with batchweave.connect(path, job="j", timeout=20) as reader:
        batch = next(reader)
        state = batch.state_dict()
        thread = threading.Thread(target=reader.checkpoint, args=(state,))
        thread.start()
        thread.join(5)
        eventually(lambda: first.peers[0].checkpoints == [(1, state["batchweave"])])
        first.stop()
        with FakeDaemon(path) as second:
            while not second.peers:
                next(reader)
            eventually(lambda: second.peers[0].checkpoints == [(1, state["batchweave"])])
            later = next(reader).state_dict()
            reader.checkpoint(later)
            reader.close()
            marked = [text for _, text in second.peers[0].checkpoints]
            assert marked == [state["batchweave"], later["batchweave"]]
            assert not reader._marks.unconfirmed(), "close waited for the confirmation"


def test_the_last_checkpoint_is_told_to_a_daemon_that_restarts(path: Path) -> None:
    first = FakeDaemon(path)
    first.marks = False
    reader = batchweave.connect(path, job="j")
    state = next(reader).state_dict()
    reader.checkpoint(state)
    first.stop()
    started: list[FakeDaemon] = []
    timer = threading.Timer(0.2, lambda: started.append(FakeDaemon(path)))
    timer.start()
    reader.close()
    with started[0] as second:
        assert second.peers[0].checkpoints == [(1, state["batchweave"])]
        assert not reader._marks.unconfirmed()
        assert second.peers[0].bye.wait(5)


def test_the_last_checkpoint_is_told_again_after_an_interrupt(path: Path) -> None:
    with FakeDaemon(path) as daemon:
        daemon.marks = False
        reader = batchweave.connect(path, job="j", timeout=20)
        state = next(reader).state_dict()
        reader.checkpoint(state)
        eventually(lambda: daemon.peers[0].checkpoints == [(1, state["batchweave"])])
        daemon.marks = True
        assert reader._session is not None
        reader._session.torn = True
        reader.close()
        assert daemon.peers[1].checkpoints == [(1, state["batchweave"])]
        assert not reader._marks.unconfirmed()


def test_a_step_counts_as_received_when_its_arrays_are_gone(daemon: FakeDaemon, path: Path) -> None:
    with batchweave.connect(path, credits=2) as reader:
        assert next(reader).step == 0
        # Producers may wait for this report, and the rank for them.
        eventually(lambda: daemon.peers[0].received == 1)
        assert next(reader).step == 1
        eventually(lambda: daemon.peers[0].received == 2)


def test_closing_overtakes_nothing_that_was_said(daemon: FakeDaemon, path: Path) -> None:
    for number in range(50):
        with batchweave.connect(path, credits=16) as reader:
            for batch in reader:
                if batch.step == 2:
                    break
            if number % 2:
                # Otherwise the socket closes with this array, right after close().
                del batch
        peer = daemon.peers[number]
        if number % 2 == 0:
            del batch
        assert peer.gone.wait(5)
        assert peer.bye.is_set()
        assert peer.received == 3


def test_checkpoint_refuses_what_is_not_its_own(daemon: FakeDaemon, path: Path) -> None:
    with batchweave.connect(path, job="j") as reader:
        with pytest.raises(errors.OtherStreamError):
            reader.checkpoint(state_of(1, "ffffffff-4455-6677-8899-aabbccddeeff"))
        with pytest.raises(errors.BadStateError):
            reader.checkpoint({"model": "x"})
    with batchweave.connect(path) as reader, pytest.raises(errors.BadHelloError, match="job"):
        reader.checkpoint(state_of(1))
    assert not daemon.peers[0].checkpoints


def test_a_loaded_state_moves_the_reader(daemon: FakeDaemon, path: Path) -> None:
    with batchweave.connect(path, timeout=5) as reader:
        assert reader.state_dict()["batchweave"].startswith('{"format":1')
        assert next(reader).step == 0
        reader.load_state_dict(state_of(40))
        assert next(reader).step == 40
        later = reader.state_dict()
        reader.load_state_dict(state_of(10))
        assert next(reader).step == 10
        reader.load_state_dict(later)
        assert next(reader).step == 41
        with pytest.raises(errors.OtherStreamError):
            reader.load_state_dict(state_of(1, "ffffffff-4455-6677-8899-aabbccddeeff"))
    with batchweave.connect(path, state=later, timeout=5) as reader:
        assert next(reader).step == 41
        assert daemon.peers[-1].hello["mode"] == "resume"


def test_a_quarantined_range_is_passed_over(path: Path) -> None:
    def start(peer: Peer) -> bool:
        peer.send_welcome(next_step=3)
        peer.send_segment()
        peer.send_layout()
        peer.send_step(3)
        peer.send_welcome(next_step=9)
        peer.send_step(9)
        peer.send(68, struct.pack("<Q", 10))
        return True

    with FakeDaemon(path) as daemon:
        daemon.on_hello = start
        with batchweave.connect(path, start=1, timeout=5) as reader:
            assert reader.next_step == 3
            assert [batch.step for batch in reader] == [3, 9]
            assert next(reader, None) is None
            assert '"next_step":10' in reader.state_dict()["batchweave"]


class Watched:
    """A poll object that records its time-outs, and finds nothing until it should."""

    def __init__(self, sleeps_until_found: int) -> None:
        self.asked: list[int] = []
        self._left = sleeps_until_found

    def poll(self, milliseconds: int) -> list[int]:
        self.asked.append(milliseconds)
        self._left -= 1
        return [1] if self._left <= 0 else []


def test_a_wait_is_awake_only_at_first_and_only_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    session = _session.Session(ours, 0)
    # Ten microseconds pass between two reads of the clock, however busy the machine is.
    monkeypatch.setattr("batchweave._session.time.monotonic", itertools.count(0.0, 10e-6).__next__)
    # A message that arrives at once is received by active polling.
    monkeypatch.setattr(session, "_readable", soon := Watched(3))
    session.wait(5.0, awake=True)
    assert soon.asked == [0, 0, 0]
    # Longer waits sleep: they do not keep a core busy.
    monkeypatch.setattr(session, "_readable", never := Watched(1 << 30))
    session.wait(5.0, awake=True)
    assert never.asked[-1] == 5000
    assert set(never.asked[:-1]) == {0}
    monkeypatch.setattr(session, "_readable", later := Watched(1 << 30))
    session.wait(5.0)
    assert later.asked == [5000]
    session.close()
    theirs.close()
