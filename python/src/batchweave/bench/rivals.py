"""Other ways to bring an array from one process to another, for the benchmark's comparison.

Each returns the microseconds of every receipt, of batches that were ready before they were asked
for. `pause` is the work between receipts; without it, a busy loop, or a sleep for large arrays.
"""

from __future__ import annotations

import importlib
import mmap
import multiprocessing
import socket
import time
from collections.abc import Callable
from typing import Any

import numpy as np

_BUSY_SECONDS = 30e-6
# Time for a producer to get ahead before each receipt of a large array.
_READY_SECONDS = 0.002


Pause = Callable[[], None] | None
"""The work between two receipts, in place of the default one."""


def _made(nbytes: int) -> Any:
    return np.ones(nbytes, np.uint8)


def _pause(nbytes: int, pause: Pause = None) -> None:
    if pause is not None:
        pause()
        return
    if nbytes > 1 << 20:
        time.sleep(_READY_SECONDS)
        return
    until = time.perf_counter() + _BUSY_SECONDS
    while time.perf_counter() < until:
        pass


def _send_all(end: socket.socket, nbytes: int, calls: int) -> None:
    data = _made(nbytes)
    for _ in range(calls):
        end.sendall(data)


def bare(calls: int, pause: Pause = None) -> list[float]:
    """A lower bound for all clients: one `recvmsg` and one view of memory."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    buffer, room = [bytearray(1 << 16)], socket.CMSG_SPACE(64)
    memory, found = mmap.mmap(-1, 1 << 16), []
    for _ in range(calls):
        theirs.send(bytes(80))
        _pause(0, pause)
        began = time.perf_counter()
        ours.recvmsg_into(buffer, room)
        np.frombuffer(memory, np.uint8)
        found.append((time.perf_counter() - began) * 1e6)
    ours.close()
    theirs.close()
    return found


def unix_socket(nbytes: int, calls: int) -> list[float]:
    """A stream socket, received into one reused array."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    context = multiprocessing.get_context("fork")
    sender = context.Process(target=_send_all, args=(theirs, nbytes, calls), daemon=True)
    sender.start()
    theirs.close()
    place, found = memoryview(bytearray(nbytes)), []
    for _ in range(calls):
        _pause(nbytes)
        began = time.perf_counter()
        got = 0
        while got < nbytes:
            got += ours.recv_into(place[got:])
        np.frombuffer(place, np.uint8)
        found.append((time.perf_counter() - began) * 1e6)
    ours.close()
    sender.join(10)
    return found


def _put_all(queue: Any, nbytes: int, calls: int) -> None:
    data = _made(nbytes)
    for _ in range(calls):
        queue.put(data)


def multiprocessing_queue(nbytes: int, calls: int, pause: Pause = None) -> list[float]:
    """A bounded multiprocessing.Queue of numpy arrays: pickled through a pipe."""
    context = multiprocessing.get_context("fork")
    queue: Any = context.Queue(4)
    sender = context.Process(target=_put_all, args=(queue, nbytes, calls), daemon=True)
    sender.start()
    found = []
    for _ in range(calls):
        _pause(nbytes, pause)
        began = time.perf_counter()
        queue.get()
        found.append((time.perf_counter() - began) * 1e6)
    sender.join(10)
    queue.close()
    return found


class _Same:
    """A dataset that returns one array repeatedly."""

    def __init__(self, torch: Any, nbytes: int, calls: int) -> None:
        self._torch, self._nbytes, self._calls = torch, nbytes, calls

    def __len__(self) -> int:
        return self._calls

    def __getitem__(self, _: int) -> Any:
        return self._torch.ones(self._nbytes, dtype=self._torch.uint8)


def dataloader(nbytes: int, calls: int) -> list[float]:
    """A PyTorch DataLoader with one worker, which hands tensors over in shared memory."""
    torch: Any = importlib.import_module("torch")
    data: Any = importlib.import_module("torch.utils.data")
    loader = data.DataLoader(_Same(torch, nbytes, calls), batch_size=None, num_workers=1)
    found, batches = [], iter(loader)
    for _ in range(calls):
        _pause(nbytes)
        began = time.perf_counter()
        next(batches)
        found.append((time.perf_counter() - began) * 1e6)
    return found
