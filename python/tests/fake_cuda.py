"""As much of torch and of the CUDA runtime as `to_device` uses; copies happen when a stream runs.

A copy reads its source at that moment, as DMA does: a frame that was given back too early shows as
wrong numbers, and memory that is not mapped any more as a crash.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Tensor:
    """A value that may not be available yet."""

    def __init__(self, cuda: Cuda, shape: tuple[int, ...], value: Callable[[], Array]) -> None:
        self._cuda, self.shape, self.value = cuda, shape, value
        # Each test has one type of each array.
        self.dtype = "any"
        self.pinned = False

    def _then(self, change: Callable[[Array], Array]) -> Tensor:
        shape = change(np.zeros(self.shape, np.int64)).shape
        return Tensor(self._cuda, shape, lambda: change(self.value()))

    def to(self, target: Any, non_blocking: bool = False) -> Tensor:
        if isinstance(target, np.dtype):
            return self._then(lambda a: a.astype(target))
        assert (target, non_blocking) == ("cuda", True)
        return self._cuda.copy(self)

    def view(self, dtype: np.dtype[Any]) -> Tensor:
        return Tensor(self._cuda, self.shape, lambda: self.value().view(dtype))

    def pin_memory(self) -> Tensor:
        found = self._then(np.copy)
        found.pinned = True
        return found

    def long(self) -> Tensor:
        return self._then(lambda a: a.astype(np.int64))

    def masked_fill_(self, *_: Any) -> None:
        raise AssertionError("no stream of these tests has a mask")

    def __and__(self, mask: int) -> Tensor:
        return self._then(lambda a: a & mask)

    def __getitem__(self, key: Any) -> Tensor:
        return self._then(lambda a: a[key])


class Cuda:
    """One device."""

    def __init__(self, registers: bool = True) -> None:
        self.registers = registers
        self.registered: dict[int, int] = {}
        self.sources: list[int] = []
        self.queue: list[Callable[[], None]] = []

    def copy(self, source: Tensor) -> Tensor:
        done: list[Array] = []
        self.sources.append(source.value().__array_interface__["data"][0])
        # The view reads memory when it is copied, and keeps no array alive.
        place = source.value().__array_interface__
        shape, kind = place["shape"], place["typestr"]

        def happen() -> None:
            import ctypes

            size = int(np.prod(shape)) * np.dtype(kind).itemsize
            raw = ctypes.string_at(place["data"][0], size)
            done.append(np.frombuffer(raw, kind).reshape(shape))

        self.queue.append(happen)

        def value() -> Array:
            assert done, "read before the stream ran"
            return done[0]

        return Tensor(self, source.shape, value)

    def run(self) -> None:
        while self.queue:
            self.queue.pop(0)()

    def modules(self) -> dict[str, ModuleType]:
        torch = ModuleType("torch")
        cuda = self

        class Event:
            def __init__(self) -> None:
                self.done = False

            def record(self, _: Any) -> None:
                cuda.queue.append(lambda: setattr(self, "done", True))

            def query(self) -> bool:
                return self.done

        @contextlib.contextmanager
        def on(_: Any) -> Iterator[None]:
            yield

        def register(address: int, size: int, flags: int) -> int:
            assert flags == 8
            if not self.registers:
                return 801
            self.registered[address] = size
            return 0

        def unregister(address: int) -> int:
            del self.registered[address]
            return 0

        def cat(parts: list[Tensor]) -> Tensor:
            shape = np.concatenate([np.zeros(part.shape, np.int8) for part in parts]).shape
            return Tensor(cuda, shape, lambda: np.concatenate([part.value() for part in parts]))

        runtime = SimpleNamespace(cudaHostRegister=register, cudaHostUnregister=unregister)
        vars(torch).update(
            cuda=SimpleNamespace(
                Event=Event,
                stream=on,
                current_stream=lambda _: "current",
                cudart=lambda: runtime,
                is_available=lambda: True,
            ),
            cat=cat,
            device=lambda name: name,
            from_numpy=lambda array: Tensor(self, array.shape, lambda: array),
            uint16=np.dtype("u2"),
            uint32=np.dtype("u4"),
            uint64=np.dtype("u8"),
            int16=np.dtype("i2"),
            int32=np.dtype("i4"),
            int64=np.dtype("i8"),
            bfloat16=np.dtype("u2"),
        )
        return {"torch": torch}
