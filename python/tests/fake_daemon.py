"""A consumer daemon for tests, written from docs/socket.md and sharing no code with the client.

It reuses a frame's memory the moment it is released and fills it with 0xFF, so a release that comes
too early shows as wrong tokens.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import mmap
import os
import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

STREAM = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
ROWS, SEQ_LEN = 4, 15
SHAPE = (ROWS, SEQ_LEN + 1)
FRAME_BYTES = 256
SLOT_BYTES = 256
SEALS = 0x01 | 0x02 | 0x04 | 0x10
LAYOUT = {
    "length": FRAME_BYTES,
    "arrays": [
        {"name": "tokens", "dtype": "U16", "shape": list(SHAPE), "offset": 0},
        {"name": "scores", "dtype": "BF16", "shape": [ROWS], "offset": 128},
        {"name": "segments", "dtype": "U32", "shape": [ROWS, 4], "offset": 192},
    ],
}

Tokens = npt.NDArray[np.uint16]


def tokens_of(step: int, number: int) -> Tokens:
    """Returns the contents of slice `number` of a step."""
    first = (step * 7919 + number * 104729) % 65521
    return ((first + np.arange(ROWS * (SEQ_LEN + 1))) % 65521).astype(np.uint16).reshape(SHAPE)


def encode(kind: int, body: bytes = b"") -> bytes:
    return struct.pack("<4sHHII", b"BWSK", 1, kind, 16 + len(body), 0) + body


class Segment:
    """A sealed memfd, writable here and read-only for clients."""

    def __init__(self, slots: int, seals: int = SEALS) -> None:
        self.size = slots * SLOT_BYTES
        writable = os.memfd_create("fake-arena", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        os.ftruncate(writable, self.size)
        self.map = mmap.mmap(writable, self.size)
        self.descriptor = os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC)
        fcntl.fcntl(writable, fcntl.F_ADD_SEALS, seals)
        os.close(writable)

    def close(self) -> None:
        os.close(self.descriptor)
        self.map.close()


class Values(NamedTuple):
    """The losses of a step."""

    step: int
    kind: int
    nonfinite: int
    sum: float
    weight: float
    sources: dict[int, tuple[float, float]]
    details: list[tuple[float, float]]


def _values(body: bytes, at: int) -> tuple[Values, int]:
    step, sources, details, kind, bad, total, weight = struct.unpack_from("<QIIIIdd", body, at)
    assert sources <= 256
    assert details <= 7168
    at += 40
    pairs = list(struct.iter_unpack("<Iff", body[at : at + 12 * sources]))
    at += 12 * sources
    rest = list(struct.iter_unpack("<ff", body[at : at + 8 * details]))
    assert [one[0] for one in pairs] == sorted({one[0] for one in pairs})
    assert all(one[0] < 65_536 for one in pairs)
    numbers = [total, weight, *(x for one in pairs for x in one[1:]), *(x for d in rest for x in d)]
    assert np.isfinite(numbers).all()
    assert min(weight, *(one[-1] for one in [*pairs, *rest, (0.0,)])) >= 0
    found = {number: (one, two) for number, one, two in pairs}
    return Values(step, kind, bad, total, weight, found, rest), at + 8 * details


def _report(body: bytes) -> tuple[int, list[tuple[int, int, str]], list[Values]]:
    assert len(body) + 16 <= 65_536
    next_step, count, valued = struct.unpack_from("<QII", body)
    assert 1 <= count <= 512
    assert valued <= 512
    at, states = 16, []
    for _ in range(count):
        first, end, size, reserved = struct.unpack_from("<QQII", body, at)
        assert first < end
        assert reserved == 0
        states.append((first, end, body[at + 24 : at + 24 + size].decode()))
        at += 24 + size
    values: list[Values] = []
    for _ in range(valued):
        one, at = _values(body, at)
        assert any(a <= one.step < b for a, b, why in states if not why)
        assert one.step not in [other.step for other in values]
        values.append(one)
    assert at == len(body)
    return next_step, states, values


class Peer:
    """One connected client."""

    def __init__(self, daemon: FakeDaemon, connected: socket.socket, session: int) -> None:
        self.daemon, self.socket, self.session = daemon, connected, session
        self.hello: dict[str, Any] = {}
        self.held: dict[int, tuple[int, int]] = {}
        self.released: list[int] = []
        self.checkpoints: list[tuple[int, str]] = []
        self.progress: list[tuple[int, int, int]] = []
        self.reports: list[tuple[int, list[tuple[int, int, str]]]] = []
        self.values: list[Values] = []
        """The losses of all reports."""
        self.said: list[int] = []
        """The types of all messages after the hello but releases and progress."""
        self.bye = threading.Event()
        self.gone = threading.Event()
        self.next_step = self.received = 0
        self.running = False
        self._pushing = threading.RLock()

    def send(self, kind: int, body: bytes = b"", descriptors: list[int] | None = None) -> None:
        self.send_raw(encode(kind, body), descriptors)

    def send_raw(self, message: bytes, descriptors: list[int] | None = None) -> None:
        files = array.array("i", descriptors or [])
        extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)] if files else []
        self.socket.sendmsg([message], extra)

    def answer(self, message: bytes) -> bool:
        """Returns an `on_hello` that answers with only this message."""
        self.send_raw(message)
        return True

    def send_welcome(self, **change: Any) -> None:
        d, attempt = self.daemon, self.hello["attempt"]
        fields = {
            "session": self.session,
            "instance": d.instance,
            "stream": d.stream.bytes,
            "attempt": bytes.fromhex(attempt) if attempt else bytes(16),
            "attempt_number": d.attempt_number if attempt else (1 << 64) - 1,
            "next_step": self.hello["next_step"],
            "end_step": (1 << 64) - 1,
            "slices": d.slices * self.hello["dp_size"],
            "seq_len": SEQ_LEN,
            "rows_per_slice": ROWS,
            "first_slice": d.slices * self.hello["dp_rank"],
            "slice_count": d.slices,
            "credits": self.hello["credits"],
        }
        fields.update(change)
        self.next_step = fields["next_step"]
        self.send(64, struct.pack("<Q16s16s16sQQQIIIIII", *fields.values()))

    def send_segment(self, number: int = 0) -> None:
        segment = self.daemon.segment
        self.send(65, struct.pack("<IIQ", number, 0, segment.size), [segment.descriptor])

    def send_layout(self, layout: Any = LAYOUT, number: int = 0) -> None:
        self.send(66, struct.pack("<II", number, 0) + json.dumps(layout).encode())

    def send_error(self, code: int, name: str, **more: Any) -> None:
        fault = {"code": code, "name": name, "message": "it is so", "step": None, "key": None}
        self.send(70, json.dumps({**fault, "remedy": "change it", **more}).encode())

    def refuse_mark(self, code: int, name: str, step: int | None) -> None:
        fault = {"code": code, "name": name, "message": "it is so", "step": step, "key": None}
        self.send(73, json.dumps({**fault, "remedy": "change it"}).encode())

    def send_waiting(self, step: int, cause: int, detail: str = "") -> None:
        text = detail.encode()
        self.send(69, struct.pack("<QII", step, cause, len(text)) + text)

    def send_info(self, files: list[int] | None = None, **change: Any) -> None:
        """Sends a description of a stream of bytes, with other values of the tokenizer's keys."""
        tokenizer = {
            "name": "bytes",
            "fingerprint": "5c" * 32,
            "builtin": "bytes",
            "vocabulary": 257,
            "file_bytes": None,
            "missing": None,
        }
        reports = change.pop("reports", self.daemon.instance.hex())
        info = {
            "stream": change.pop("stream", str(self.daemon.stream)),
            "slices": self.daemon.slices,
            "seq_len": SEQ_LEN,
            "rows_per_slice": ROWS,
            "tokenizer": {**tokenizer, **change},
            "later": "a client passes over keys that it does not know",
        }
        if self.daemon.takes_reports:
            info["reports"] = reports
        self.send(74, json.dumps(info).encode(), files)

    def send_step(self, step: int, parts: int = 1) -> None:
        count = self.daemon.slices
        first = self.hello["dp_rank"] * count
        refs = [self._fill(step, first + i) for i in range(count)]
        for part in range(parts):
            some = refs[part * count // parts : (part + 1) * count // parts]
            head = struct.pack("<QIIII", step, part * count // parts, count, len(some), 0)
            self.send(67, head + b"".join(some))

    def _fill(self, step: int, number: int) -> bytes:
        d = self.daemon
        with d.lock:
            slot, frame = d.free.pop(0), d.next_frame
            d.next_frame += 1
        at = slot * SLOT_BYTES
        data = bytearray(FRAME_BYTES)
        tokens = tokens_of(step, number).tobytes()
        data[: len(tokens)] = tokens
        d.segment.map[at : at + FRAME_BYTES] = bytes(data)
        self.held[frame] = (slot, step)
        return struct.pack("<IIIIQQQ", number, 0, 0, 0, frame, at, FRAME_BYTES)

    def run(self) -> None:
        try:
            while message := self.socket.recv(1 << 16):
                _, _, kind, length, _ = struct.unpack_from("<4sHHII", message)
                assert length == len(message)
                self._take(kind, message[16:])
        except OSError:
            pass
        # A killed daemon changes nothing more.
        for frame in [] if self.daemon.stopping else list(self.held):
            self._free(frame)
        self.socket.close()
        self.gone.set()

    def _take(self, kind: int, body: bytes) -> None:
        if kind not in (1, 2, 4):
            self.said.append(kind)
        if kind == 1:
            self.hello = json.loads(body)
            if not self.daemon.on_hello(self):
                self.welcome_and_start()
        elif kind == 2:
            step, count, reserved = struct.unpack_from("<QII", body)
            assert reserved == 0
            self.received = step
            for frame in struct.unpack_from(f"<{count}Q", body, 16):
                self.released.append(frame)
                self._free(frame)
            self.push()
        elif kind == 3:
            step, count, _ = struct.unpack_from("<QII", body)
            self.checkpoints.append((step, body[16 : 16 + count].decode()))
            if self.daemon.refuses:
                self.refuse_mark(*self.daemon.refuses, step)
            elif self.daemon.marks:
                # Storing a mark takes a moment.
                time.sleep(self.daemon.marks_after)
                self.send(72, struct.pack("<Q", step))
        elif kind == 4:
            self.progress.append(struct.unpack("<QQII", body)[:3])
        elif kind == 5:
            self.running = False
            self.bye.set()
        elif kind == 6:
            assert not body
            self.daemon.on_describe(self)
        elif kind == 7 and self.daemon.takes_reports:
            next_step, states, values = _report(body)
            self.values += values
            self.reports.append((next_step, states))
            if self.daemon.confirms:
                self.send(75, struct.pack("<Q", len(self.reports)))
        else:
            raise AssertionError(f"message type {kind}")

    def _free(self, frame: int) -> None:
        slot, _ = self.held.pop(frame)
        at = slot * SLOT_BYTES
        self.daemon.segment.map[at : at + SLOT_BYTES] = b"\xff" * SLOT_BYTES
        with self.daemon.lock:
            self.daemon.free.append(slot)

    def welcome_and_start(self, **change: Any) -> None:
        self.send_welcome(**change)
        self.send_segment()
        self.send_layout()
        self.running = True
        self.push()

    def push(self) -> None:
        """Sends what the client may have; tests call it, too, beside the daemon's own thread."""
        with self._pushing:
            self._push()

    def _push(self) -> None:
        d = self.daemon
        while self.running:
            if d.end is not None and self.next_step >= d.end:
                self.running = False
                self.send(68, struct.pack("<Q", d.end))
                return
            if d.ready is not None and self.next_step >= d.ready:
                return
            if len({step for _, step in self.held.values()}) >= self._credits():
                return
            self.send_step(self.next_step)
            self.next_step += 1

    def _credits(self) -> int:
        return int(self.hello["credits"])


class FakeDaemon:
    """Listens on `path` and sends every client all steps, `slices` slices of each."""

    def __init__(self, path: Path, *, end: int | None = None, slices: int = 1, slots: int = 64):
        self.path, self.end, self.slices = path, end, slices
        self.ready: int | None = None
        self.marks_after = 0.0
        self.stream, self.instance = STREAM, os.urandom(16)
        self.marks, self.stopping, self.attempt_number = True, False, 0
        self.takes_reports, self.confirms = False, True
        self.refuses: tuple[int, str] | None = None
        self.on_hello: Callable[[Peer], bool] = lambda _: False
        self.on_describe: Callable[[Peer], None] = lambda peer: peer.send_error(2, "bad_message")
        self.segment = Segment(slots)
        self.free = list(range(slots))
        self.next_frame = 1
        self.lock = threading.Lock()
        self.peers: list[Peer] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path.unlink(missing_ok=True)
        self._listener.bind(str(path))
        self._listener.listen(16)
        self._spawn(self._accept)

    def _spawn(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            peer = Peer(self, connected, len(self.peers) + 1)
            self.peers.append(peer)
            self._spawn(peer.run)

    def stop(self) -> None:
        """Stops as if killed by SIGKILL: all sockets close; clients keep their mappings."""
        self.stopping = True
        for each in [self._listener, *(peer.socket for peer in self.peers)]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()
        for each in [self._listener, *(peer.socket for peer in self.peers)]:
            each.close()
        self.segment.close()

    def __enter__(self) -> FakeDaemon:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
