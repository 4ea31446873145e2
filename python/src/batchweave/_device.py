"""Copies from the daemon's memory to a GPU, by DMA and concurrent with the computation.

An asynchronous copy reads the frame after its array is gone, so two things are held here:

1. The frame, until the event behind its copies has completed. Only then may the daemon reuse it.
2. A second mapping of the segment, registered with CUDA. The arrays' own mapping never is: it ends
   with the last array, and a copy could still be reading through it.

Where CUDA refuses to register read-only memory (old drivers), the copy goes through the driver's
own staging buffers: slower, but correct; that is logged once.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import threading
import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from batchweave import _wait
from batchweave._bins import no_rows
from batchweave._conventions import check_labels
from batchweave._flattened import arguments, whole
from batchweave._joined import joined
from batchweave._layout import Array
from batchweave._micro_batches import MicroBatch
from batchweave._packed import packed
from batchweave._rows import is_balanced
from batchweave._tensors import model_inputs, tensor, torch_module, widens
from batchweave.batch import Batch, Slice
from batchweave.errors import SystemRefusedError

_log = logging.getLogger("batchweave")

_MREMAP_MAYMOVE = 1
# cuda_runtime_api.h: cudaHostRegisterReadOnly.
_REGISTER_READ_ONLY = 0x08

_second: weakref.WeakKeyDictionary[mmap.mmap, _Registered] = weakref.WeakKeyDictionary()
_pending: deque[tuple[Any, Any]] = deque()
_lock = threading.RLock()
_told = False


class _Registered:
    """A second mapping of a segment, until the segment and all its copies are done."""

    def __init__(self, segment: mmap.mmap, runtime: Any) -> None:
        self.begins = _address(segment)
        self.size = len(segment)
        self.mapped = _map_again(self.begins, self.size)
        self.registered = _register(runtime, self.mapped, self.size)
        gone = (runtime, self.mapped, self.size, self.registered, os.getpid())
        # At exit the system removes both.
        weakref.finalize(self, _unmap, *gone).atexit = False

    def same(self, array: Array) -> Array:
        """Returns the array viewed through this mapping, which the view keeps."""
        begins = array.__array_interface__["data"][0] - self.begins + self.mapped
        memory: Any = (ctypes.c_ubyte * array.nbytes).from_address(begins)
        memory.keeps = self
        found: Array = np.frombuffer(memory, array.dtype).reshape(array.shape)
        found.flags.writeable = False
        return found


def to_device(
    batch: Batch | Slice | MicroBatch,
    stream: Any = None,
    *,
    device: Any = None,
    labels: str = "unshifted",
) -> dict[str, Any]:
    """Starts copies of all arrays to a device and returns the arguments of a model's call at once.

    `stream`: a torch.cuda.Stream to copy on; default: the current one. If computation uses another
    stream, it must wait for the copies (`current_stream().wait_stream(stream)`). `device`: default
    "cuda", or "cpu" where there is no CUDA. `labels`: see `packed`.

    Returns the dict of `packed`, of all slices of a batch, or of the given slice or micro-batch of
    a balanced stream, whose lengths stay numbers of this process. Whole contiguous
    arrays are copied, then joined, widened to int64 and shifted on the device. The daemon's
    frame is held until the copies have ended; the batch may be dropped immediately. On "cpu" they
    are private copies, in pinned memory where there is CUDA.
    """
    check_labels(labels)
    torch = torch_module()
    if isinstance(stream, str) or type(stream).__name__ == "device":
        stream, device = None, stream
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    target = torch.device(device)
    if str(target).startswith("cpu"):
        return _to_memory(torch, batch, labels)
    release_done()
    on = torch.cuda.current_stream(target) if stream is None else stream
    if isinstance(batch, MicroBatch):
        return _micro_batch(torch, batch, on, target, labels)
    pieces = [batch] if isinstance(batch, Slice) else batch.slices
    if is_balanced(pieces[0]):
        raise no_rows("to_device() of a whole step", "pass each one of batch.micro_batches()")
    with torch.cuda.stream(on):
        copied = [_copied(torch, piece, piece, target) for piece in pieces]
        event = torch.cuda.Event()
        event.record(on)
        whole = {
            name: joined(getattr(batch, "step", -1), name, [found[name] for found, _ in copied])
            for name in copied[0][0]
        }
        given = packed(whole, labels)
    with _lock:
        _pending.append((event, [held for _, held in copied]))
    return given


def _micro_batch(
    torch: Any, micro: MicroBatch, on: Any, target: Any, labels: str
) -> dict[str, Any]:
    def moved(array: Array) -> Any:
        held.append((array, array))
        return tensor(array).to(target, non_blocking=True)

    with torch.cuda.stream(on):
        copied, held = _copied(torch, micro, whole(micro, labels), target)
        given = arguments(micro, copied, moved, labels)
        event = torch.cuda.Event()
        event.record(on)
    with _lock:
        _pending.append((event, held))
    return given


def _to_memory(torch: Any, batch: Batch | Slice | MicroBatch, labels: str) -> dict[str, Any]:
    found = model_inputs(batch, torch.int64, labels=labels)
    # Converted ones are private; others may still show the daemon's memory. Lengths are numbers.
    call = "pin_memory" if torch.cuda.is_available() else "clone"
    return {
        name: getattr(value, call)() if hasattr(value, call) else value
        for name, value in found.items()
    }


def in_flight() -> int:
    """Returns the number of copies that have not ended; their frames are held."""
    release_done()
    return len(_pending)


def release_done() -> bool:
    """Releases frames whose copies have ended; returns whether other copies still run."""
    with _lock:
        while _pending and _pending[0][0].query():
            _pending.popleft()
        return bool(_pending)


def _copied(
    torch: Any, piece: Slice | MicroBatch, arrays: Mapping[str, Array], target: Any
) -> tuple[dict[str, Any], list[Any]]:
    """Returns arrays of `piece`, copied, and what must stay as it is until then."""
    found, held = {}, []
    for name, array in arrays.items():
        through = array if _private(array) else _through(torch, array)
        moved = tensor(through, bfloat16=piece.is_bfloat16(name)).to(target, non_blocking=True)
        if widens(name, array, bfloat16=piece.is_bfloat16(name)):
            moved = _widened(torch, moved, array.dtype)
        found[name] = moved
        held.append((array, through))
    return found, held


def _widened(torch: Any, moved: Any, dtype: np.dtype[Any]) -> Any:
    """Widens to int64 on the device, because torch has few operations for unsigned numbers."""
    if dtype.kind == "u" and dtype.itemsize in (2, 4):
        signed = torch.int16 if dtype.itemsize == 2 else torch.int32
        mask = (1 << 8 * dtype.itemsize) - 1
        return moved.view(signed).to(torch.int64) & mask
    return moved.to(torch.int64)


def _private(array: Array) -> bool:
    return bool(array.flags.writeable)


def _through(torch: Any, array: Array) -> Array:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    segment = base.obj if isinstance(base, memoryview) else base
    if not isinstance(segment, mmap.mmap):
        return array
    with _lock:
        second = _second.get(segment)
        if second is None:
            second = _second[segment] = _Registered(segment, torch.cuda.cudart())
    return second.same(array)


def _address(segment: mmap.mmap) -> int:
    return int(np.frombuffer(segment, np.uint8, 1).__array_interface__["data"][0])


def _map_again(begins: int, size: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mremap.restype = ctypes.c_void_p
    libc.mremap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)
    # mremap of 0 bytes of a shared mapping creates a second mapping of the same pages.
    found = libc.mremap(begins, 0, size, _MREMAP_MAYMOVE)
    if found in (None, ctypes.c_void_p(-1).value):
        reason = os.strerror(ctypes.get_errno())
        raise SystemRefusedError(
            f"a segment of {size} bytes can't be mapped again for the device: {reason}; "
            "raise the limit on address space (ulimit -v), or copy with tensor.to(device)"
        )
    return int(found)


def _register(runtime: Any, address: int, size: int) -> bool:
    global _told
    code = int(runtime.cudaHostRegister(address, size, _REGISTER_READ_ONLY))
    if code != 0 and not _told:
        _told = True
        _log.warning(
            "CUDA does not register the arena's read-only memory (error %d): copies to the device "
            "are staged by the driver, which is slower",
            code,
        )
    return code == 0


def _unmap(runtime: Any, address: int, size: int, registered: bool, process: int) -> None:
    if process != os.getpid():
        # A forked child has no such mapping, and may have another one at its address.
        return
    if registered:
        runtime.cudaHostUnregister(address)
    libc = ctypes.CDLL(None)
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    libc.munmap(address, size)


_wait.reapers.append(release_done)
