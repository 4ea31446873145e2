"""The messages of docs/socket.md: from bytes to plain values and back, without a socket.

A message that breaks that page is a `BadMessageError`.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batchweave._stages import Stage, of_message
from batchweave.errors import BadMessageError, BatchWeaveError, ProtocolVersionError, from_fault

MAGIC = b"BWSK"
PROTOCOL = 1
MESSAGE_BYTES_MAX = 1 << 16
FRAMES_MAX = 1024
LAYOUTS_MAX = 64
STATE_BYTES_MAX = 16 << 10
DETAIL_BYTES_MAX = 4 << 10
CREDITS_MIN, CREDITS_MAX = 2, 1024
STATES_MAX, REASON_BYTES_MAX = 512, 64

HELLO, RELEASE, CHECKPOINT, PROGRESS, BYE, DESCRIBE, REPORT = 1, 2, 3, 4, 5, 6, 7
WELCOME, SEGMENT, LAYOUT, BATCH, END_OF_STREAM, WAITING, ERROR = 64, 65, 66, 67, 68, 69, 70
RETIRE_SEGMENT, MARKED, MARK_REFUSED, STREAM_INFO, REPORTED, STAGE = 71, 72, 73, 74, 75, 76

CAUSES = {
    1: "producing",
    2: "fetching",
    3: "store_unavailable",
    4: "arena_full",
    5: "held_frames",
    6: "backpressure",
    7: "attempt_not_open",
    8: "daemon_starting",
    9: "daemon_restarting",
    10: "job_not_open",
}

_HEADER = struct.Struct("<4sHHII")
_WELCOME = struct.Struct("<Q16s16s16sQQQIIIIII")
_SEGMENT = struct.Struct("<IIQ")
_PAIR = struct.Struct("<II")
_BATCH = struct.Struct("<8sIIQIIII")
_SLICE = struct.Struct("<IIIIQQQ")
_STEP = struct.Struct("<Q")
_STEP_AND_TWO = struct.Struct("<QII")
_PROGRESS = struct.Struct("<QQII")
_STATES = struct.Struct("<QQII")
_UNKNOWN = (1 << 64) - 1
_FAULT_KEYS = {"code", "name", "message", "step", "key", "remedy"}

HEADER_BYTES = _HEADER.size
# Of a report without states, and of a state without a reason.
REPORT_BYTES, STATE_OF_REPORT_BYTES = HEADER_BYTES + _STEP_AND_TWO.size, _STATES.size
# The first bytes of every `batch` message of this protocol.
BATCH_BEGINS = struct.pack("<4sHH", MAGIC, PROTOCOL, BATCH)
_SINGLE = struct.Struct("<16sQ16sIIIIQQQ")
SINGLE_BYTES = _SINGLE.size
# Header of a `batch` message with one slice; and its counts, where that is the whole step.
SINGLE_HEADER = BATCH_BEGINS + struct.pack("<II", SINGLE_BYTES, 0)
SINGLE_COUNTS = struct.pack("<IIII", 0, 1, 1, 0)
# Header, step, counts, then a SliceRef; a C function, since it is called for every step.
single = _SINGLE.unpack_from
FEW = 32
# By the number of frames: the header of a `release`, and the C function that packs it with the
# next step, the count and the frames.
_RELEASES = [struct.Struct(f"<16sQQ{count}Q") for count in range(FEW + 1)]
RELEASES = [
    (_HEADER.pack(MAGIC, PROTOCOL, RELEASE, shape.size, 0), shape.pack) for shape in _RELEASES
]


@dataclass(frozen=True)
class Welcome:
    """The session's parameters and the stream's shape."""

    session: int
    instance: str
    stream_id: str
    attempt: str | None
    attempt_number: int | None
    next_step: int
    end_step: int | None
    slices: int
    seq_len: int
    rows_per_slice: int
    first_slice: int
    slice_count: int
    credits: int


SliceRef = tuple[int, int, int, int, int, int, int]
"""One slice: its index, segment, layout, a zero, its frame, offset and length."""
BatchPart = tuple[int, int, int, Iterable[SliceRef]]
"""Some or all slices of a step: the step, the first index here, the total number, the slices."""


def encode(kind: int, body: bytes = b"") -> bytes:
    """Returns one whole message."""
    length = HEADER_BYTES + len(body)
    if length > MESSAGE_BYTES_MAX:
        raise BadMessageError(f"a message of {length} bytes; at most {MESSAGE_BYTES_MAX} allowed")
    return _HEADER.pack(MAGIC, PROTOCOL, kind, length, 0) + body


def hello(fields: Mapping[str, Any]) -> bytes:
    """Returns the first message of a session."""
    return encode(HELLO, json.dumps({"protocol": PROTOCOL, **fields}).encode())


def release(next_step: int, frames: Sequence[int]) -> bytes:
    """Returns a release of frames whose arrays are gone."""
    count = len(frames)
    return encode(RELEASE, struct.pack(f"<QII{count}Q", next_step, count, 0, *frames))


def checkpoint(step: int, state: bytes) -> bytes:
    """Returns the mark of a durable checkpoint that restarts at `step`."""
    return encode(CHECKPOINT, _STEP_AND_TWO.pack(step, len(state), 0) + state)


def progress(next_step: int, waited_us: int, waiting: bool) -> bytes:
    """Returns a report of position and waits."""
    return encode(PROGRESS, _PROGRESS.pack(next_step, waited_us, waiting, 0))


def report(
    next_step: int,
    states: Sequence[tuple[int, int, str | None]],
    values: Sequence[bytes] = (),
) -> bytes:
    """Returns a report of ranges of steps: trained, or left out for a reason; and their losses."""
    parts = [_STEP_AND_TWO.pack(next_step, len(states), len(values))]
    for first, end, left_out in states:
        reason = (left_out or "").encode()
        parts.append(_STATES.pack(first, end, len(reason), 0) + reason)
    return encode(REPORT, b"".join([*parts, *values]))


def split(message: memoryview) -> tuple[int, memoryview]:
    """Checks a received message's header and returns its type and body."""
    if len(message) < HEADER_BYTES:
        raise _bad("header", f"{len(message)} bytes")
    magic, protocol, kind, length, reserved = _HEADER.unpack_from(message)
    if magic != MAGIC:
        raise _bad("header", f"begins with {magic!r}; check which program serves this socket")
    if protocol != PROTOCOL:
        raise ProtocolVersionError(
            f"the daemon speaks socket protocol {protocol}, this client {PROTOCOL}; "
            "install client and daemon of one release"
        )
    if length != len(message) or reserved:
        raise _bad("header", f"{len(message)} bytes, but it states {length}")
    return kind, message[HEADER_BYTES:]


def welcome(body: memoryview) -> Welcome:
    """Decodes a `welcome`."""
    fields = _exact("welcome", _WELCOME, body)
    session, instance, stream, attempt, number, next_step, end, *shape = fields
    found = Welcome(
        session,
        instance.hex(),
        str(uuid.UUID(bytes=stream)),
        attempt.hex() if any(attempt) else None,
        None if number == _UNKNOWN else number,
        next_step,
        None if end == _UNKNOWN else end,
        *shape,
    )
    if found.slice_count < 1 or found.first_slice + found.slice_count > found.slices:
        raise _bad("welcome", f"{found.slice_count} slices from {found.first_slice} on")
    return found


def segment(body: memoryview) -> tuple[int, int]:
    """Decodes a `segment`: its id and size."""
    number, reserved, size = _exact("segment", _SEGMENT, body)
    _zero("segment", reserved)
    return number, size


def layout(body: memoryview) -> tuple[int, bytes]:
    """Decodes a `layout`: its id and its JSON."""
    if len(body) < _PAIR.size:
        raise _bad("layout", f"{len(body)} bytes")
    number, reserved = _PAIR.unpack_from(body)
    _zero("layout", reserved)
    if number >= LAYOUTS_MAX:
        raise _bad("layout", f"id {number}; ids are below {LAYOUTS_MAX}")
    return number, bytes(body[_PAIR.size :])


def batch(buffer: bytearray, size: int) -> BatchPart:
    """Decodes the `batch` message in `buffer`, which begins with BATCH_BEGINS."""
    if size < _BATCH.size:
        raise _bad("batch", f"{size} bytes")
    _, length, zero, step, first, of, count, reserved = _BATCH.unpack_from(buffer)
    if length != size or zero or reserved:
        raise _bad("batch", f"{size} bytes, but it states {length}, or a reserved field is set")
    listed = size - _BATCH.size
    if not 1 <= count <= FRAMES_MAX or listed != count * _SLICE.size or first + count > of:
        raise _bad("batch", f"{count} slices from {first} on of {of} in {listed} bytes")
    if count == 1:
        return step, first, of, (_SLICE.unpack_from(buffer, _BATCH.size),)
    return step, first, of, _SLICE.iter_unpack(memoryview(buffer)[_BATCH.size : size])


def stage(body: memoryview) -> Stage | None:
    """Decodes a `stage`: that of the batches behind it; None for the shape of stream.json."""
    try:
        return of_message(body)
    except (ValueError, RecursionError, KeyError, TypeError) as reason:
        raise _bad("stage", str(reason)) from None


def step(name: str, body: memoryview) -> int:
    """Decodes a body that is one number: `end_of_stream`, `marked`, `reported`."""
    (found,) = _exact(name, _STEP, body)
    return int(found)


def waiting(body: memoryview) -> tuple[int, str]:
    """Decodes a `waiting`: the step, and the cause with its details."""
    if len(body) < _STEP_AND_TWO.size:
        raise _bad("waiting", f"{len(body)} bytes")
    late, cause, count = _STEP_AND_TWO.unpack_from(body)
    text = bytes(body[_STEP_AND_TWO.size :])
    if len(text) != count or count > DETAIL_BYTES_MAX or cause not in CAUSES:
        raise _bad("waiting", f"cause {cause} with {len(text)} of {count} bytes")
    detail = text.decode(errors="replace")
    return late, f"{CAUSES[cause]}: {detail}" if detail else CAUSES[cause]


def retired(body: memoryview) -> int:
    """Decodes a `retire_segment`."""
    number, reserved = _exact("retire_segment", _PAIR, body)
    _zero("retire_segment", reserved)
    return int(number)


def error(body: memoryview) -> BatchWeaveError:
    """Decodes an `error` and returns the exception to raise."""
    try:
        fault = json.loads(bytes(body))
    except (ValueError, RecursionError) as reason:
        raise _bad("error", str(reason)) from None
    if not isinstance(fault, dict) or not _is_fault(fault):
        raise _bad("error", repr(bytes(body[:120])))
    return from_fault(fault)


def _is_fault(fault: dict[str, Any]) -> bool:
    kinds = {key: type(value) for key, value in fault.items()}
    none = type(None)
    return (
        set(kinds) == _FAULT_KEYS
        and kinds["code"] is int
        and kinds["step"] in (int, none)
        and kinds["name"] is kinds["message"] is str
        and kinds["key"] in (str, none)
        and kinds["remedy"] in (str, none)
    )


def mark_refused(body: memoryview) -> BatchWeaveError:
    """Decodes a `mark_refused` and returns the reason, with the mark's step."""
    reason = error(body)
    if reason.step is None:
        raise _bad("mark_refused", "it names no step")
    return reason


def _exact(name: str, shape: struct.Struct, body: memoryview) -> tuple[Any, ...]:
    if len(body) != shape.size:
        raise _bad(name, f"{len(body)} bytes, not {shape.size}")
    return shape.unpack(body)


def _zero(name: str, reserved: int) -> None:
    if reserved:
        raise _bad(name, f"a reserved field holds {reserved}")


def _bad(name: str, reason: str) -> BadMessageError:
    return BadMessageError(
        f"the daemon sent a {name} message that breaks protocol {PROTOCOL}: {reason}; "
        "install client and daemon of one release"
    )
