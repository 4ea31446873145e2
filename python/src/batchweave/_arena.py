"""The daemon's shared memory on the rank's side: how a segment is mapped, and the effect of fork.

1. A segment is mapped once per session, read-only and shared, never registered with a device.
2. Arrays hold the mapping through numpy's base chain; dropping the last array unmaps it.
3. A mapping is not inherited over fork (MADV_DONTFORK): a child that kept it would read frames that
   the daemon has reused.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import mmap
import os
import socket
import weakref

from batchweave.errors import BadMessageError, SystemRefusedError

# linux/fcntl.h: F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE. Without them the
# file could shrink under the mapping (SIGBUS) or be written by another process.
SEALS = 0x01 | 0x02 | 0x04 | 0x10
# Linux 5.14; older kernels answer EINVAL and pages are then faulted in one by one.
_MADV_POPULATE_READ = 22

_mappings: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def descriptors_of(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    """Returns the descriptors received with a message."""
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return list(found)


def map_segment(descriptor: int, size: int, number: int) -> mmap.mmap:
    """Maps a received segment, after checking that no other process can change it."""
    found = os.fstat(descriptor).st_size
    if size < 1 or found != size:
        raise BadMessageError(f"segment {number} has {found} bytes, the daemon announced {size}")
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:
        seals = 0
    if seals & SEALS != SEALS:
        raise BadMessageError(f"segment {number} lacks seals ({seals:#x}, not {SEALS:#x})")
    try:
        segment = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
    except OSError as reason:
        raise SystemRefusedError(
            f"cannot map segment {number} of {size} bytes: {reason}; "
            "raise the limit on address space (ulimit -v)"
        ) from reason
    segment.madvise(mmap.MADV_DONTFORK)
    with contextlib.suppress(OSError):
        segment.madvise(_MADV_POPULATE_READ)
    _mappings.add(segment)
    return segment


def _keep_addresses_in_child() -> None:
    """Keeps mapping objects alive in a forked child, for ever.

    The child has holes where the segments were and may map something else there, which a dying
    mapping object would unmap.
    """
    for segment in list(_mappings):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(segment))


os.register_at_fork(after_in_child=_keep_addresses_in_child)
