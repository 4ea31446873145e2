"""The instants at which commits of a stream appear in a folder, by inotify(7).

The folder is the log of a stream in a local folder, or that of a bucket of `dev-s3 --dir`, whose
files contain a header with the object's key, and the object. Both appear complete, by one link or
rename, so the event is the instant from which a reader can find the commit.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from batchweave.bench.visible import Instants

_CREATED, _MOVED_TO, _ONLY_FOLDER = 0x100, 0x80, 0x01000000
_EVENT = struct.Struct("iIII")
_EVENT_BYTES = 1 << 16
_POLL_SECONDS, _START_SECONDS = 0.05, 60.0
_OBJECT_MAGIC = b"BWDEVS3\x01"


def watch(folder: Path, prefix: str, seen: Instants, stop: threading.Event) -> None:
    """Notes when each step is committed, until `stop` is set.

    `prefix`: that of the log's keys in the bucket of which `folder` contains the objects; empty
    where `folder` is the log itself.
    """
    step, known = 0, set[str]()
    for name, now in _appearing(folder, stop):
        if name in known:
            continue
        known.add(name)
        record = _record(folder / name, prefix)
        for entry in record.get("entries", []):
            for _ in entry.get("tgbs", []):
                # One producer, so steps are in the order of its batches.
                seen.committed[step] = now
                step += 1


def _appearing(folder: Path, stop: threading.Event) -> Iterator[tuple[str, float]]:
    """Yields the names of files in the order in which they appear, with the instant; some twice."""
    libc = ctypes.CDLL(None, use_errno=True)
    events = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if events < 0:
        raise OSError(ctypes.get_errno(), "cannot use inotify: see /proc/sys/fs/inotify")
    try:
        _add(libc, events, folder)
        for path in sorted(folder.iterdir()):
            yield path.name, time.monotonic()
        ready = select.poll()
        ready.register(events, select.POLLIN)
        while not stop.is_set():
            if ready.poll(_POLL_SECONDS * 1e3):
                now = time.monotonic()
                for name in _names(os.read(events, _EVENT_BYTES)):
                    yield name, now
    finally:
        os.close(events)


def _add(libc: ctypes.CDLL, events: int, folder: Path) -> None:
    """Watches a folder, for which it waits: the first commit makes it."""
    deadline = time.monotonic() + _START_SECONDS
    kinds = _CREATED | _MOVED_TO | _ONLY_FOLDER
    while libc.inotify_add_watch(events, os.fsencode(folder), kinds) < 0:
        code = ctypes.get_errno()
        if code != errno.ENOENT or time.monotonic() > deadline:
            raise OSError(code, f"cannot watch {folder}: {os.strerror(code)}")
        time.sleep(0.001)


def _names(events: bytes) -> list[str]:
    names, at = [], 0
    while at < len(events):
        _, _, _, length = _EVENT.unpack_from(events, at)
        at += _EVENT.size
        names.append(os.fsdecode(events[at : at + length].rstrip(b"\0")))
        at += length
    return names


def _record(path: Path, prefix: str) -> dict[str, Any]:
    """Returns the log record in a file; nothing for other files, also those that are gone again."""
    if path.suffix not in (".json", ".obj"):
        return {}
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    if prefix:
        at = len(_OBJECT_MAGIC) + 4
        length = int.from_bytes(data[at - 4 : at], "little")
        key = json.loads(data[at : at + length])["key"]
        if not data.startswith(_OBJECT_MAGIC) or not key.startswith(prefix):
            return {}
        data = data[at + length :]
    record: dict[str, Any] = json.loads(data)
    return record
