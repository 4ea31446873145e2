"""Errors that the daemon reports, and its invalid messages, are named errors."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from conftest import eventually
from fake_daemon import LAYOUT, FakeDaemon, Peer, Segment, encode, tokens_of

import batchweave
from batchweave import errors


@pytest.mark.parametrize("code", sorted(errors.BY_CODE))
def test_each_error_of_the_daemon_has_its_class(path: Path, code: int) -> None:
    cls = errors.BY_CODE[code]

    def refuse(peer: Peer) -> bool:
        peer.send_error(code, cls.name, step=7, key="data/x")
        return True

    with FakeDaemon(path) as daemon:
        daemon.on_hello = refuse
        with pytest.raises(cls, match=r"it is so \(step 7\) \(data/x\); change it") as caught:
            batchweave.connect(path)
        assert (caught.value.step, caught.value.key) == (7, "data/x")


def test_an_error_in_the_middle_comes_after_the_batches_before_it_and_stays(path: Path) -> None:
    def fail(peer: Peer) -> bool:
        peer.send_welcome()
        peer.send_segment()
        peer.send_layout()
        peer.send_step(0)
        peer.send_error(4711, "of_the_future")
        return True

    with FakeDaemon(path) as daemon:
        daemon.on_hello = fail
        with batchweave.connect(path) as reader:
            batch = next(reader)
            for _ in range(2):
                with pytest.raises(errors.UnknownError, match="of_the_future: it is so"):
                    next(reader)
            assert (batch["tokens"] == tokens_of(0, 0)).all()


def head(kind: int, body: bytes, **change: Any) -> bytes:
    fields = {"magic": b"BWSK", "version": 1, "kind": kind, "length": 16 + len(body), "zero": 0}
    fields.update(change)
    return struct.pack("<4sHHII", *fields.values()) + body


def slice_ref(**change: int) -> bytes:
    names = ("slice", "segment", "layout", "zero", "frame", "offset", "length")
    fields = dict.fromkeys(names, 0) | {"frame": 1, "length": 256} | change
    return struct.pack("<QIIIIIIIIQQQ", 0, 0, 1, 1, 0, *fields.values())


ARRAY = {"name": "tokens", "dtype": "U16", "shape": [4, 16], "offset": 0}


def layout_of(arrays: list[Any]) -> bytes:
    return bytes(8) + json.dumps({"length": 256, "arrays": arrays}).encode()


def layout_with(**change: Any) -> bytes:
    return layout_of([{**ARRAY, **change}])


GARBAGE: dict[str, bytes] = {
    "short": b"BWSK\x01",
    "magic": head(67, b"", magic=b"HTTP"),
    "length": head(67, b"", length=99),
    "reserved": head(67, b"", zero=1),
    "type": head(99, b""),
    "a client's type": head(1, b"{}"),
    "batch cut": head(67, bytes(9)),
    "batch count": head(67, struct.pack("<QIIII", 0, 0, 1, 2, 0) + bytes(40)),
    "batch empty": head(67, struct.pack("<QIIII", 0, 0, 1, 0, 0)),
    "batch beyond of": head(67, struct.pack("<QIIII", 0, 1, 1, 1, 0) + bytes(40)),
    "batch part missing": head(67, struct.pack("<QIIII", 0, 1, 2, 1, 0) + slice_ref()[24:]),
    "batch reserved": head(67, slice_ref(zero=1)),
    "segment unknown": head(67, slice_ref(segment=5)),
    "layout unknown": head(67, slice_ref(layout=5)),
    "offset odd": head(67, slice_ref(offset=32)),
    "outside the segment": head(67, slice_ref(offset=1 << 20)),
    "length unlike the layout's": head(67, slice_ref(length=64)),
    "segment without file": head(65, struct.pack("<IIQ", 1, 0, 4096)),
    "layout id": head(66, struct.pack("<II", 64, 0) + json.dumps(LAYOUT).encode()),
    "layout no json": head(66, bytes(8) + b"{"),
    "layout keys": head(66, bytes(8) + b'{"length": 1, "arrays": [], "more": 1}'),
    "layout dtype": head(66, layout_with(dtype="F8")),
    "layout outside": head(66, layout_with(offset=240)),
    "layout overflow": head(66, layout_with(shape=[1 << 62, 1 << 62])),
    "layout negative": head(66, layout_with(shape=[-1])),
    "layout unaligned": head(66, layout_with(offset=1)),
    "layout names": head(66, layout_of([{**ARRAY, "offset": at} for at in (0, 128)])),
    "waiting cause": head(69, struct.pack("<QII", 0, 77, 0)),
    "waiting text": head(69, struct.pack("<QII", 0, 1, 5) + b"abc"),
    "error no json": head(70, b"nope"),
    "error keys": head(70, b"{}"),
    "welcome short": head(64, bytes(3)),
    "end long": head(68, bytes(9)),
    "retire long": head(71, bytes(9)),
    "mark refused nowhere": head(
        73,
        b'{"code":28,"name":"mark_in_future","message":"","step":null,"key":null,"remedy":""}',
    ),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_is_a_named_error(path: Path, what: str) -> None:
    def answer(peer: Peer) -> bool:
        peer.send_welcome()
        peer.send_segment()
        peer.send_layout()
        peer.send_raw(GARBAGE[what])
        return True

    with FakeDaemon(path) as daemon:
        daemon.on_hello = answer
        with (
            batchweave.connect(path, timeout=5) as reader,
            pytest.raises(errors.BadMessageError),
        ):
            next(reader)
        eventually(daemon.peers[0].gone.is_set)


def test_another_protocol_is_named(path: Path) -> None:
    with FakeDaemon(path) as daemon:
        daemon.on_hello = lambda peer: peer.answer(head(64, bytes(96), version=2))
        with pytest.raises(errors.ProtocolVersionError, match="protocol 2, this client 1"):
            batchweave.connect(path)


@pytest.mark.parametrize("seals", [0, 0x01 | 0x02 | 0x04, 0x01 | 0x10])
def test_a_segment_without_all_seals_is_refused(path: Path, seals: int) -> None:
    def answer(peer: Peer) -> bool:
        peer.send_welcome()
        peer.send(65, struct.pack("<IIQ", 0, 0, loose.size), [loose.descriptor])
        return True

    loose = Segment(4, seals)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with FakeDaemon(path) as daemon:
        daemon.on_hello = answer
        with (
            batchweave.connect(path, timeout=5) as reader,
            pytest.raises(errors.BadMessageError, match="lacks seals"),
        ):
            next(reader)
    assert len(list(Path("/proc/self/fd").iterdir())) == before, "the descriptor was closed"
    loose.close()


def test_a_daemon_that_sends_wrong_steps_is_given_up(path: Path) -> None:
    def wrong(peer: Peer) -> bool:
        peer.send_welcome()
        peer.send_segment()
        peer.send_layout()
        peer.send_step(5)
        return True

    with FakeDaemon(path) as daemon:
        daemon.on_hello = wrong
        with (
            batchweave.connect(path, timeout=20) as reader,
            pytest.raises(errors.BadMessageError, match="sends another step than 0"),
        ):
            next(reader)


def test_a_message_longer_than_allowed_is_named(path: Path) -> None:
    with FakeDaemon(path) as daemon:
        daemon.on_hello = lambda peer: peer.answer(encode(69, bytes(1 << 16)))
        with pytest.raises(errors.BadMessageError, match="cut short"):
            batchweave.connect(path)
