"""The fast path for a step of one slice gives the same results as the general one."""

from __future__ import annotations

import itertools
import json
import mmap
import socket
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from batchweave import _wire
from batchweave._layout import Layout
from batchweave._session import Session
from batchweave.batch import Batch
from batchweave.errors import BadMessageError

LENGTH = 128
QUICK = Layout(LENGTH, (("tokens", np.dtype("<u2"), (4, 16), 0),))
# As one whose frames are too large to be a record.
SLOW = Layout(LENGTH, (("bytes", np.dtype("u1"), (LENGTH,), 0),))
object.__setattr__(SLOW, "record", np.dtype("u1"))
object.__setattr__(SLOW, "quick", False)
# magic and type, length, zero, step, first, of, count, reserved; then the slice.
SHAPE = struct.Struct("<8sIIQIIIIIIIIQQQ")
GOOD = (_wire.BATCH_BEGINS, SHAPE.size, 0, 7, 0, 1, 1, 0, 3, 0, 0, 0, 99, 64, LENGTH)


@pytest.fixture
def session() -> Iterator[tuple[Session, socket.socket]]:
    """A session and the socket of its daemon."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    session = Session(ours, 0)
    session._segments[0] = mmap.mmap(-1, 4096)
    session._layouts.update({0: QUICK, 1: SLOW})
    yield session, theirs
    theirs.close()
    session.close()


def outcome(session: Session, daemon: socket.socket, fields: tuple[Any, ...]) -> str:
    """Returns the outcome of a message."""
    daemon.send(SHAPE.pack(*fields))
    try:
        found = session.receive()
    except BadMessageError as error:
        return str(error)
    if not isinstance(found, Batch):
        return repr(found)
    (piece,) = found.slices
    held = [(h.frame, h.step, h.index, h.size) for h in session.held_now()]
    shapes = {name: array.shape for name, array in piece.items()}
    return f"{found.step} {piece.index} {shapes} {held}"


def outcomes(session: Session, daemon: socket.socket) -> list[str]:
    """Returns the outcomes of the valid message and of all that differ by one or two fields."""
    values = (0, 1, 2, 63, 64, 4096 - LENGTH, 4096)
    places = range(1, len(GOOD))
    found = [outcome(session, daemon, GOOD)]
    for where in itertools.chain(((a,) for a in places), itertools.combinations(places, 2)):
        for value in values:
            fields = list(GOOD)
            for place in where:
                fields[place] = value
            found.append(outcome(session, daemon, tuple(fields)))
            session._partial, session._partial_step = [], -1
    return found


def test_what_comes_is_judged_the_same(
    session: tuple[Session, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = outcomes(*session)
    monkeypatch.setattr(Session, "_single", lambda *_: None)
    assert short == outcomes(*session)
    assert short[0] == "7 3 {'tokens': (4, 16)} [(99, 7, 3, 128)]"
    for part in ("breaks protocol", "has not sent", "multiples of 64", "bytes"):
        assert any(part in text for text in short), part


def test_it_is_released_when_its_last_array_is_gone(session: tuple[Session, socket.socket]) -> None:
    ours, daemon = session
    daemon.send(SHAPE.pack(*GOOD))
    batch = ours.receive()
    assert isinstance(batch, Batch)
    tokens = batch["tokens"][1:]
    del batch
    daemon.setblocking(False)
    with pytest.raises(BlockingIOError):
        daemon.recv(100)
    del tokens
    assert daemon.recv(100) == _wire.release(0, [99])
    assert not ours.held


def test_a_step_of_one_slice_does_not_end_another_that_has_begun(
    session: tuple[Session, socket.socket],
) -> None:
    ours, daemon = session
    for part, text in [((*GOOD[:5], 2, *GOOD[6:]), "None"), (GOOD, "7 3")]:
        assert outcome(ours, daemon, part).startswith(text)
    late = (*GOOD[:4], 1, 2, *GOOD[6:])
    assert "after 0 slices of step -1" in outcome(ours, daemon, late)


def taken(session: Session, daemon: socket.socket, frames: list[int]) -> list[Batch]:
    """Returns a batch of each of these frames."""
    found = []
    for frame in frames:
        daemon.send(SHAPE.pack(*GOOD[:12], frame, *GOOD[13:]))
        batch = session.receive()
        assert isinstance(batch, Batch)
        found.append(batch)
    return found


def released(daemon: socket.socket) -> list[bytes]:
    """Returns the messages that the daemon has been sent."""
    daemon.setblocking(False)
    found = []
    try:
        while True:
            found.append(daemon.recv(1 << 16))
    except BlockingIOError:
        return found


@pytest.mark.parametrize("together", [1, 2, 32, 33])
def test_the_message_of_few_releases_is_that_of_any(
    session: tuple[Session, socket.socket], monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    ours, daemon = session
    ours.next_step, ours.together = (1 << 53) - 1, together
    groups = [[n, *range(9, 9 + together - 1)] for n in (0, 7, (1 << 64) - 1)]
    found = []
    for _ in range(2):
        for frames in groups:
            batches = taken(ours, daemon, frames)
            while batches:
                batches.pop(0)
        found.append(released(daemon))
        assert not ours.held
        monkeypatch.setattr(Session, "release_few", lambda _: False)
    assert found == [[_wire.release(ours.next_step, frames) for frames in groups]] * 2


def laid_out(session: Session, length: int, credits: int) -> None:
    """Gives the session a layout whose frames have `length` bytes, as the daemon does."""
    session.credits, session._layouts = credits, {}
    text = json.dumps({"length": length, "arrays": []})
    session._take(_wire.LAYOUT, memoryview(struct.pack("<II", 5, 0) + text.encode()), [])
    session._layouts[0] = QUICK


def test_small_frames_share_a_release(session: tuple[Session, socket.socket]) -> None:
    ours, daemon = session
    laid_out(ours, LENGTH, credits=8)
    batches = taken(ours, daemon, [1, 2, 3, 4, 5])
    for _ in range(3):
        batches.pop(0)
    assert released(daemon) == []
    assert ours.quiet(), "the next step needs no message before it"
    batches.pop(0)
    assert released(daemon) == [_wire.release(0, [1, 2, 3, 4])]
    batches.pop(0)
    assert released(daemon) == []
    ours.wait(0.001)
    assert released(daemon) == [_wire.release(0, [5])], "who waits releases all"
    batches = taken(ours, daemon, [6, 7])
    batches.pop(0)
    assert ours.receive() is None
    assert not ours.quiet(), "nothing waits"
    batches.pop(0)
    assert released(daemon) == [_wire.release(0, [6, 7])]
    batches = taken(ours, daemon, [8])
    assert ours.receive() is None
    batches.pop(0)
    assert released(daemon) == [_wire.release(0, [8])]
    assert not ours.held


@pytest.mark.parametrize(
    ("length", "credits", "together"),
    [
        (LENGTH, 2, 1),
        (LENGTH, 4, 2),
        (LENGTH, 64, 32),
        (128 << 10, 64, 8),
        (512 << 10, 64, 2),
        (600 << 10, 64, 1),
        (1 << 30, 64, 1),
        (0, 8, 4),
    ],
)
def test_frames_that_share_a_release_are_few_and_small(
    session: tuple[Session, socket.socket], length: int, credits: int, together: int
) -> None:
    ours, daemon = session
    laid_out(ours, length, credits)
    assert ours.together == together
    batches = taken(ours, daemon, list(range(together)))
    while batches:
        assert released(daemon) == []
        batches.pop(0)
    assert released(daemon) == [_wire.release(0, list(range(together)))]


def test_a_session_that_ends_releases_what_waits(session: tuple[Session, socket.socket]) -> None:
    ours, daemon = session
    laid_out(ours, LENGTH, credits=8)
    batches = taken(ours, daemon, [1, 2, 3])
    batches.pop(0)
    ours.park(9)
    assert _wire.release(9, [1]) in released(daemon)
    batches.pop(0)
    assert released(daemon) == [_wire.release(9, [2])]


def test_a_release_waits_while_the_socket_is_full(session: tuple[Session, socket.socket]) -> None:
    ours, daemon = session
    batches = taken(ours, daemon, [1, 2, 3])
    progress = _wire.progress(0, 0, False)
    while ours._send(progress):
        pass
    batches.pop(0)
    assert list(ours.held) == [1, 2, 3]
    assert set(released(daemon)) == {progress}
    batches.pop(0)
    assert released(daemon) == [_wire.release(0, [1, 2])]
    assert list(ours.held) == [3]
    assert ours.quiet()


def test_nothing_is_sent_before_older_messages(session: tuple[Session, socket.socket]) -> None:
    ours, daemon = session
    batches = taken(ours, daemon, [1])
    ours._outbox.append(b"older")
    batches.pop(0)
    assert released(daemon) == [b"older", _wire.release(0, [1])]


def test_a_release_to_a_lost_daemon_is_dropped(session: tuple[Session, socket.socket]) -> None:
    ours, daemon = session
    batches = taken(ours, daemon, [1, 2])
    daemon.close()
    batches.clear()
    assert ours.lost
    assert not ours.held
    assert not ours.torn


def test_an_interrupt_during_a_release_tears_the_session(
    session: tuple[Session, socket.socket],
) -> None:
    ours, daemon = session
    batches = taken(ours, daemon, [1])

    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    ours._send_now = interrupted
    batches.clear()
    assert ours.torn
    assert [type(error) for error in ours.interrupts] == [KeyboardInterrupt]
