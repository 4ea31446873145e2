"""Layouts: the places of named arrays in a frame, sent once for all frames that share them."""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from batchweave.errors import BadMessageError

# numpy has no bfloat16: those arrays are uint16, bit for bit
# (torch: `torch.from_numpy(a.copy()).view(torch.bfloat16)`).
DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "U8": np.dtype("u1"),
    "I8": np.dtype("i1"),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "F32": np.dtype("<f4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F64": np.dtype("<f8"),
}

Array = npt.NDArray[Any]
Arrays = Array | Mapping[str, Array]
"""Arrays by name: a frame as a record, or a dict."""

# numpy counts the bytes of an element in 31 bits; a larger frame is an array of bytes.
_RECORD_BYTES_MAX = (1 << 31) - 1


# Errors that parsing an invalid layout may raise.
_UNREADABLE = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
    MemoryError,
)


@dataclass(frozen=True)
class Layout:
    """The arrays of a frame of `length` bytes."""

    length: int
    arrays: tuple[tuple[str, np.dtype[Any], tuple[int, ...], int], ...]
    """Name, element type, shape and offset of each array."""
    bfloat16: frozenset[str] = frozenset()
    """Names of the arrays that numpy shows as uint16."""
    names: frozenset[str] = field(init=False)
    record: np.dtype[Any] = field(init=False)
    """A frame as one element, whose fields are the fastest access to named arrays."""
    quick: bool = field(init=False)
    """Whether numpy can represent the frame as a record."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", frozenset(name for name, _, _, _ in self.arrays))
        object.__setattr__(self, "record", _record(self.length, self.arrays))
        object.__setattr__(self, "quick", self.record.names is not None)

    def slowly(self, segment: mmap.mmap, offset: int) -> tuple[Array, Arrays]:
        """Returns the root of a frame without a record, and its named arrays, which keep it."""
        root: Array = np.ndarray(self.length, np.uint8, segment, offset)
        return root, {
            name: np.ndarray(shape, dtype, root, offset)
            for name, dtype, shape, offset in self.arrays
        }


def _record(length: int, arrays: Any) -> np.dtype[Any]:
    if not 0 < length <= _RECORD_BYTES_MAX:
        return np.dtype(np.uint8)
    formats = [(dtype, shape) for _, dtype, shape, _ in arrays]
    names, offsets = [a[0] for a in arrays], [a[3] for a in arrays]
    return np.dtype(
        {"names": names, "formats": formats, "offsets": offsets, "itemsize": length}  # type: ignore[call-overload, unused-ignore]
    )


def parse(body: bytes) -> Layout:
    """Decodes the JSON of a `layout` message."""
    try:
        found = json.loads(body)
        length, items = _natural(found.pop("length")), found.pop("arrays")
        bfloat16 = frozenset(item["name"] for item in items if item["dtype"] == "BF16")
        arrays = tuple(_array(item, length) for item in items)
        if found:
            raise ValueError(f"unknown keys {sorted(found)}")
        if len({name for name, _, _, _ in arrays}) != len(arrays):
            raise ValueError("two arrays of one name")
        # numpy may refuse the dimensions or sizes.
        return Layout(length, arrays, bfloat16)
    except _UNREADABLE as reason:
        raise _bad(f"{type(reason).__name__}: {reason}", body) from None


def _array(item: dict[str, Any], length: int) -> tuple[str, np.dtype[Any], tuple[int, ...], int]:
    name, offset = item.pop("name"), _natural(item.pop("offset"))
    dtype, shape = DTYPES[item.pop("dtype")], tuple(_natural(n) for n in item.pop("shape"))
    if item or not isinstance(name, str) or not name:
        raise ValueError(f"array {name!r}: unknown keys {sorted(item)} or no name")
    name.encode()  # Refuses lone surrogates, which cannot be printed.
    size = dtype.itemsize
    for extent in shape:
        size *= extent
    if offset + size > length or offset % dtype.itemsize:
        raise ValueError(f"array {name!r}: {size} bytes at {offset} of {length}, or not aligned")
    return name, dtype, shape, offset


def _natural(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} instead of a number >= 0")
    return value


def _bad(reason: str, body: bytes) -> BadMessageError:
    return BadMessageError(
        f"cannot read the daemon's layout: {reason}: {body[:120]!r}; "
        "install client and daemon of one release"
    )
