"""Rows of a Ray block as an inbox's writer takes them.

Arrow has every field in every struct, so fields that a message does not have come back as None:
they are left out, except `content`, as producers read them from structs. An Arrow list keeps its
type in a row without items, which a Python list would lose.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from batchweave.inbox._store import package

_ROWS = 1024
"""Rows that are in memory as Python's values."""

Convert = Callable[[Any], Any]


def rows_of(table: Any) -> Iterator[dict[str, Any]]:
    """Returns the rows of a pyarrow table."""
    converts = {field.name: _convert_of(field.type) for field in table.schema}
    for start in range(0, table.num_rows, _ROWS):
        for row in table.slice(start, _ROWS).to_pylist():
            for name, convert in converts.items():
                if convert is not None and row[name] is not None:
                    row[name] = convert(row[name])
            yield row


def _convert_of(arrow: Any) -> Convert | None:
    """Returns the conversion of a column's values; None where they stay."""
    types = package("pyarrow").types
    if types.is_struct(arrow):
        return _without_nulls
    if not (types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow)):
        return None
    if types.is_struct(arrow.value_type):
        return _messages
    for is_type, dtype in (
        (types.is_boolean, np.bool_),
        (types.is_integer, np.int64),
        (types.is_floating, np.float64),
    ):
        if is_type(arrow.value_type):
            return functools.partial(_items, np.empty(0, dtype))
    return None


def _items(empty: Any, value: Any) -> Any:
    return value or empty


def _messages(value: Any) -> Any:
    # An empty list has no dict by which the writer knows a list of messages.
    return _without_nulls(value) if value else "[]"


def _without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if isinstance(value, dict):
        return {
            name: _without_nulls(item)
            for name, item in value.items()
            if item is not None or name == "content"
        }
    return value
