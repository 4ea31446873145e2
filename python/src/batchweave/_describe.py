"""Asks the daemon for the stream and its tokenizer, on a connection of its own.

The tokenizer's file comes in sealed memory. It is copied, and compared with the fingerprint of the
stream, before anything else reads it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import select
import socket
import time
from dataclasses import dataclass
from typing import Any

from batchweave import _arena, _wire
from batchweave._connect import connected
from batchweave._stages import Stage, of_fields
from batchweave.errors import BadMessageError, NoDaemonError, NoTokenizerError

FILE_BYTES_MAX = 64 << 20
_ANCILLARY_BYTES = socket.CMSG_SPACE(16 * 4)
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class Described:
    """The stream's tokenizer, as the daemon describes it."""

    stream_id: str
    name: str
    fingerprint: str
    builtin: str | None
    """The vocabulary that needs no file."""
    vocabulary: int | None
    missing: str | None
    """The reason, when the file is missing."""
    file: bytes | None
    """The tokenizer.json that made the tokens, or the content of the vocabulary `builtin`."""
    stages: tuple[Stage, ...] = ()
    """The stages that the log has, those to come included."""


def describe(path: str, timeout: float) -> Described:
    """Returns the daemon's description; raises NoTokenizerError if it is older than this client."""
    deadline, cause = time.monotonic() + timeout, "the deadline was already over"
    while time.monotonic() < deadline:
        fresh, why = connected(path)
        cause = why or "the daemon closed the connection"
        if fresh is not None:
            with contextlib.closing(fresh):
                found = _ask(path, fresh, deadline)
            if found is not None:
                return found
        time.sleep(_PAUSE_SECONDS)
    raise NoDaemonError(
        f"no consumer daemon describes its stream at {path} within {timeout:g} s ({cause}); start "
        "batchweave-consumer, or see its log"
    )


def _ask(path: str, fresh: socket.socket, deadline: float) -> Described | None:
    """Returns the answer; None if the daemon went away without one."""
    try:
        fresh.send(_wire.encode(_wire.DESCRIBE))
    except OSError:
        return None
    while True:
        received = _receive(fresh, deadline)
        if received is None:
            return None
        message, descriptors = received
        try:
            kind, body = _wire.split(memoryview(message))
            if kind == _wire.STREAM_INFO:
                return _described(body, descriptors)
            if kind == _wire.ERROR:
                error = _wire.error(body)
                if isinstance(error, BadMessageError):
                    raise NoTokenizerError(
                        f"the daemon at {path} does not describe its stream: it is of an older "
                        "release; install client and daemon of one release"
                    ) from None
                raise error
            if kind != _wire.WAITING:
                raise _bad(f"a message of type {kind}")
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def _receive(fresh: socket.socket, deadline: float) -> tuple[bytes, list[int]] | None:
    readable = select.poll()
    readable.register(fresh, select.POLLIN)
    left = deadline - time.monotonic()
    if left <= 0 or not readable.poll(max(1, int(left * 1000))):
        return None
    try:
        message, ancillary, flags, _ = fresh.recvmsg(
            _wire.MESSAGE_BYTES_MAX, _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
        )
    except OSError:
        return None
    descriptors = _arena.descriptors_of(ancillary)
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        for descriptor in descriptors:
            os.close(descriptor)
        raise _bad("a message that is too large")
    return (message, descriptors) if message else None


def _described(body: memoryview, descriptors: list[int]) -> Described:
    try:
        info = json.loads(bytes(body))
        tokenizer = info["tokenizer"]
        found = Described(
            _text(info, "stream"),
            _text(tokenizer, "name"),
            _text(tokenizer, "fingerprint"),
            _optional(tokenizer, "builtin"),
            _number(tokenizer, "vocabulary"),
            _optional(tokenizer, "missing"),
            None,
            tuple(of_fields(stage) for stage in info.get("stages", [])),
        )
        size = _number(tokenizer, "file_bytes")
    except (ValueError, RecursionError, KeyError, TypeError) as reason:
        raise _bad(str(reason)) from None
    if len(descriptors) != (size is not None):
        raise _bad(f"{len(descriptors)} descriptors for a file of {size} bytes")
    if size is None:
        return found
    file = _copy(descriptors[0], size)
    if not is_made_with(hashlib.sha256(file).hexdigest(), found.name, found.fingerprint):
        raise BadMessageError(
            f"the daemon handed over another file than the tokenizer {found.name!r} of the stream, "
            f"fingerprint {found.fingerprint}; restart the daemon, and see its log"
        )
    return Described(**{**vars(found), "file": file})


def is_made_with(file: str, name: str, fingerprint: str) -> bool:
    """Returns whether a stream with this name and fingerprint was made with the file of this hash.

    The rule of docs/format.md: where slices have a form of their own, the name ends in it.
    """
    _, found, form = name.rpartition("; ")
    formed = hashlib.sha256(f"{file}; {form}".encode()).hexdigest() if found else file
    return fingerprint in (file, formed)


def _copy(descriptor: int, size: int) -> bytes:
    """Returns the bytes of a received file, which can neither shrink nor be too large."""
    if not 1 <= size <= FILE_BYTES_MAX or os.fstat(descriptor).st_size != size:
        raise _bad(f"a file of {os.fstat(descriptor).st_size} bytes, announced as {size}")
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:
        seals = 0
    if seals & _arena.SEALS != _arena.SEALS:
        raise _bad(f"a file that lacks seals ({seals:#x}, not {_arena.SEALS:#x})")
    file = bytearray()
    while len(file) < size:
        part = os.pread(descriptor, size - len(file), len(file))
        if not part:
            raise _bad(f"a file that ends after {len(file)} bytes")
        file += part
    return bytes(file)


def _text(fields: dict[str, Any], key: str) -> str:
    if not isinstance(fields[key], str):
        raise TypeError(f"{key} must be a text")
    return str(fields[key])


def _optional(fields: dict[str, Any], key: str) -> str | None:
    return None if fields.get(key) is None else _text(fields, key)


def _number(fields: dict[str, Any], key: str) -> int | None:
    value = fields.get(key)
    if value is None:
        return None
    if type(value) is not int or value < 0:
        raise TypeError(f"{key} must be a number")
    return value


def _bad(reason: str) -> BadMessageError:
    return BadMessageError(
        f"the daemon answered describe with {reason}; install client and daemon of one release"
    )
