"""The columns of rows: a type for each value, and the reasons why a value has none.

The first row decides; every later row has the same columns with values of the same types, so that
all files of a writer have one schema. The types, as docs/inbox.md has them:

    str                          string
    bytes                        binary
    bool, int, float             bool, int64, double
    `tokens`                     list<uint32>
    `loss_mask`                  list<uint8>, 0 or 1, as long as `tokens`
    numpy arrays                 list<item>, flat in C order
    of uint8, 32, 64, float16    binary, flat in C order, little-endian
    lists of bool, int, float    list<bool>, list<int64>, list<double>
    dicts, lists of dicts        string: JSON
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from batchweave.inbox._store import package
from batchweave.inbox.errors import BadRowError

TOKENS, LOSS_MASK = "tokens", "loss_mask"
SHAPE, DTYPE = b"batchweave.shape", b"batchweave.dtype"
"""Keys of a field's metadata: the shape of an array's items as JSON, and numpy's name of a type."""

Array = npt.NDArray[Any]
_ITEMS = {*"?", *"bBhHiIlLqQ", *"efd"}
_AS_BYTES = (np.uint8, np.uint32, np.uint64, np.float16)
"""Parquet has 4 bytes for an item of uint8; of the others, not every reader gets every value."""
_INT64 = 1 << 63
_EXACT = 1 << 53
"""Whole numbers up to this one are doubles, too."""


class Kind:
    """The type of a column; `dtype` and `shape` are those of an array's items."""

    def __init__(
        self, arrow: Any, dtype: np.dtype[Any] | None = None, shape: tuple[int, ...] = ()
    ) -> None:
        self.arrow, self.dtype, self.shape = arrow, dtype, shape
        is_list = package("pyarrow").types.is_list(arrow)
        self.is_bytes = dtype is not None and not is_list
        # Without the name of the items, which Parquet changes.
        self.text = f"list<{arrow.value_type}>" if is_list else str(arrow)
        if self.is_bytes:
            self.text += f" ({dtype} array)"

    def metadata(self) -> dict[bytes, bytes] | None:
        """Returns the metadata of the column's field."""
        if self.dtype is None:
            return None
        return {SHAPE: json.dumps(self.shape).encode(), DTYPE: self.dtype.name.encode()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kind) and (self.text, self.shape) == (other.text, other.shape)

    def __str__(self) -> str:
        shape = "".join(f"[{size}]" for size in self.shape)
        return self.text + (f" of items {shape}" if shape else "")

    __hash__ = None  # type: ignore[assignment]


def kind_of(name: str, value: Any) -> Kind:
    """Returns the type of a column by the first value in it."""
    arrow = package("pyarrow")
    if name == TOKENS:
        return Kind(arrow.list_(arrow.uint32()), np.dtype(np.uint32))
    if name == LOSS_MASK:
        return Kind(arrow.list_(arrow.uint8()), np.dtype(np.uint8))
    if isinstance(value, np.ndarray) and value.ndim:
        dtype, shape = value.dtype.newbyteorder("="), value.shape[1:]
        if dtype.char not in _ITEMS:
            raise BadRowError(
                f"column {name!r} is an array of {value.dtype}: use bool, integers or floats"
            )
        if dtype.type in _AS_BYTES:
            return Kind(arrow.binary(), dtype, shape)
        return Kind(arrow.list_(arrow.from_numpy_dtype(dtype)), dtype, shape)
    value = plain(value)
    for kind, made in (
        (str, arrow.string),
        (bytes, arrow.binary),
        (bool, arrow.bool_),
        (int, arrow.int64),
        (float, arrow.float64),
    ):
        if isinstance(value, kind):
            return Kind(made())
    if _is_json(value):
        return Kind(arrow.string())
    if isinstance(value, list | tuple) and value:
        items = {bool: np.bool_, int: np.int64, float: np.float64}.get(type(value[0]))
        if items is not None:
            return Kind(arrow.list_(arrow.from_numpy_dtype(items)), np.dtype(items))
    if value is None:
        raise BadRowError(f"column {name!r} is None: leave the column out of all rows")
    raise BadRowError(
        f"column {name!r} is {type(value).__name__} {value!r:.60}: its type is not known; use a "
        "text, a number, bytes, a numpy array, or a list of messages"
    )


def kinds_of_schema(schema: Any) -> dict[str, Kind]:
    """Returns the types of a stored file's columns."""
    return {field.name: _kind_of_field(field) for field in schema}


def _kind_of_field(field: Any) -> Kind:
    metadata = field.metadata or {}
    if DTYPE not in metadata:
        return Kind(field.type)
    dtype = np.dtype(metadata[DTYPE].decode())
    return Kind(field.type, dtype, tuple(json.loads(metadata[SHAPE])))


def convert(name: str, kind: Kind, value: Any) -> tuple[Any, int]:
    """Returns a value as the column holds it, and its size in bytes; raises BadRowError."""
    if type(value) is str and kind.text == "string" and value.isascii():
        return value, len(value)
    if kind.dtype is not None:
        items = _items(name, kind, value)
        return items.tobytes() if kind.is_bytes else items, items.nbytes
    value = plain(value)
    text = kind.text
    if text == "string":
        value = _json(name, value) if _is_json(value) else value
        if isinstance(value, str):
            try:
                return value, len(value) if value.isascii() else len(value.encode())
            except UnicodeEncodeError as reason:
                raise BadRowError(f"column {name!r} is not valid Unicode: {reason}") from None
    elif text == "binary":
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value), len(value)
    elif text == "bool":
        if isinstance(value, bool):
            return value, 1
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if text == "int64" and isinstance(value, int) and -_INT64 <= value < _INT64:
            return value, 8
        if text == "double" and (isinstance(value, float) or abs(value) <= _EXACT):
            return float(value), 8
    raise _other(name, kind, value)


def _items(name: str, kind: Kind, value: Any) -> Array:
    """Returns an array's items, flat; numbers must keep their values."""
    dtype = kind.dtype
    if isinstance(value, str | bytes) or value is None or _is_json(value):
        raise _other(name, kind, value)
    try:
        given = np.asarray(value)
    except (ValueError, OverflowError):
        raise _other(name, kind, value) from None
    if given.ndim == 0 or given.shape[1:] != kind.shape or given.dtype.char not in _ITEMS:
        raise _other(name, kind, value)
    if given.dtype != dtype:
        empty = given.size == 0
        if not empty and (given.dtype.kind == "b") != (kind.dtype == np.bool_):
            raise _other(name, kind, value)
        with np.errstate(all="ignore"):
            cast = given.astype(dtype)
            same = empty or np.array_equal(cast, given, equal_nan=given.dtype.kind == "f")
        if not same:
            raise _other(name, kind, value)
        given = cast
    # A copy: the caller may reuse its array before the file is written.
    return np.array(given, order="C", copy=True).reshape(-1)


def _other(name: str, kind: Kind, value: Any) -> BadRowError:
    remedy = "convert it, or write rows of another form under another writer's name"
    if isinstance(value, np.ndarray):
        shown = f"an array {value.dtype}{list(value.shape)}"
        if kind.shape and value.dtype == kind.dtype:
            remedy = "where shapes vary, write value.reshape(-1) from the first row on"
    else:
        shown = f"{type(value).__name__} {value!r:.60}"
    return BadRowError(
        f"column {name!r} is {kind} in this writer's files, this row has {shown}: {remedy}"
    )


def plain(value: Any) -> Any:
    """Returns numpy's scalars, and arrays without an axis, as Python's values."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    return value


def _is_json(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and isinstance(value[0], dict)
    return isinstance(value, dict)


def _json(name: str, value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as reason:
        raise BadRowError(f"column {name!r} has no form in JSON: {reason}") from None
