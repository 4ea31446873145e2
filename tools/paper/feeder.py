"""The other side of `paper.handover`: a process that hands frames over as a consumer daemon does.

It fills its arena once and then only sends and counts, so what is measured is the hand-over and the
client. It speaks docs/socket.md to one rank at a time, says in each frame when it was sent, and
takes reports.

    python -m paper.feeder SOCKET SLICES SLICE_BYTES CREDITS DELAY_US

With a delay it keeps one step in flight, and sends the next one that long after the last was
released: then `next()` waits for it.
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
import sys
import threading
import time
from collections import deque
from typing import Any

_SEALS = 0x01 | 0x02 | 0x04 | 0x10
_BATCH = struct.Struct("<4sHHIIQIIII")
_SLICE = struct.Struct("<IIIIQQQ")
_RELEASE = struct.Struct("<QII")
_HEADER_BYTES = 16
_DESCRIBE, _INSTANCE = b"\x06", b"i" * 16
_STAMP = struct.Struct("<Q")
# The stamp occupies the frame's first 64 bytes alone.
STAMP_BYTES = 64


def layout(slice_bytes: int) -> dict[str, Any]:
    """Returns three arrays of a packed slice: tokens of 16 bits, their segments, a stamp."""
    tokens = (slice_bytes - STAMP_BYTES) // 4
    return {
        "length": slice_bytes,
        "arrays": [
            {"name": "stamp", "dtype": "U64", "shape": [1], "offset": 0},
            {"name": "tokens", "dtype": "U16", "shape": [1, tokens], "offset": STAMP_BYTES},
            {
                "name": "segment_ids",
                "dtype": "U16",
                "shape": [1, tokens],
                "offset": STAMP_BYTES + 2 * tokens,
            },
        ],
    }


class Feeder:
    """One arena with space for `credits` steps, served to each connection."""

    def __init__(self, slices: int, slice_bytes: int, credits: int, delay_us: float) -> None:
        self.slices, self.slice_bytes, self.credits = slices, slice_bytes, credits
        self.delay = delay_us / 1e6
        self.size = credits * slices * slice_bytes
        writable = os.memfd_create("bench", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        os.posix_fallocate(writable, 0, self.size)
        self.map = mmap.mmap(writable, self.size)
        for at in range(0, self.size, 1 << 20):
            self.map[at : at + 8] = b"\x01" * 8
        self.descriptor = os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC)
        fcntl.fcntl(writable, fcntl.F_ADD_SEALS, _SEALS)

    def serve(self, connected: socket.socket) -> None:
        """Until the rank closes."""
        first = connected.recv(1 << 16)
        if first[6:7] == _DESCRIBE:
            info = {"reports": _INSTANCE.hex(), "file_bytes": None}
            connected.send(_message(74, json.dumps(info).encode()))
            connected.recv(1)
            return
        self._reports = 0
        self._greet(connected, json.loads(first[_HEADER_BYTES:]))
        free = deque(range(self.credits))
        taken: dict[int, list[int]] = {}
        step = frame = 0
        in_flight = 1 if self.delay else self.credits
        while True:
            while free and len(taken) < in_flight:
                place = free.popleft()
                taken[place] = [self.slices]
                connected.send(self._step(step, frame, place))
                step, frame = step + 1, frame + self.slices
            released = self._released(connected)
            if released is None:
                return
            for each in released:
                place = each // self.slices % self.credits
                taken[place][0] -= 1
                if not taken[place][0]:
                    del taken[place]
                    free.append(place)
            if self.delay and released:
                until = time.perf_counter() + self.delay
                while time.perf_counter() < until:
                    pass

    def _greet(self, connected: socket.socket, hello: dict[str, Any]) -> None:
        none = (1 << 64) - 1
        shape = (self.slices, 1, 1, 0, self.slices, hello["credits"])
        welcome = struct.pack(
            "<Q16s16s16sQQQIIIIII", 1, _INSTANCE, b"s" * 16, bytes(16), none, 0, none, *shape
        )
        connected.send(_message(64, welcome))
        files = array.array("i", [self.descriptor])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)]
        connected.sendmsg([_message(65, struct.pack("<IIQ", 0, 0, self.size))], rights)
        text = json.dumps(layout(self.slice_bytes)).encode()
        connected.send(_message(66, struct.pack("<II", 0, 0) + text))

    def _step(self, step: int, frame: int, place: int) -> bytes:
        at, length = place * self.slices * self.slice_bytes, self.slice_bytes
        refs = [
            _SLICE.pack(i, 0, 0, 0, frame + i, at + i * length, length) for i in range(self.slices)
        ]
        size, count = _BATCH.size + len(refs) * _SLICE.size, self.slices
        head = _BATCH.pack(b"BWSK", 1, 67, size, 0, step, 0, count, count, 0)
        message = head + b"".join(refs)
        _STAMP.pack_into(self.map, at, time.monotonic_ns())
        return message

    def _released(self, connected: socket.socket) -> list[int] | None:
        message = connected.recv(1 << 16)
        if not message or message[6] == 5:
            return None
        if message[6] == 7:
            self._reports += 1
            connected.send(_message(75, struct.pack("<Q", self._reports)))
        if message[6] != 2:
            return []
        _, count, _ = _RELEASE.unpack_from(message, _HEADER_BYTES)
        at = _HEADER_BYTES + _RELEASE.size
        return list(struct.unpack_from(f"<{count}Q", message, at))


def _message(kind: int, body: bytes) -> bytes:
    return struct.pack("<4sHHII", b"BWSK", 1, kind, _HEADER_BYTES + len(body), 0) + body


def serve(rank: socket.socket) -> None:
    """Serves a connection until it ends."""
    with rank, contextlib.suppress(OSError):
        made.serve(rank)


if __name__ == "__main__":
    made = Feeder(*map(int, sys.argv[2:]))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(sys.argv[1])
    listener.listen(2)
    while True:
        rank, _ = listener.accept()
        threading.Thread(target=serve, args=(rank,), daemon=True).start()
