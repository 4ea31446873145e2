"""Rows that wait for their file, by column."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from batchweave.inbox._columns import (
    LOSS_MASK,
    TOKENS,
    Kind,
    convert,
    kind_of,
    kinds_of_schema,
)
from batchweave.inbox._store import package
from batchweave.inbox.errors import BadRowError, RowTooLargeError

_ROW_BYTES = 16
"""Bytes that a row takes beside its values, so that empty rows count."""


class Rows:
    """The rows of the next file. A row that is refused changes nothing."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kinds: dict[str, Kind] | None = None
        self._columns: dict[str, list[Any]] = {}
        self.count = 0
        self.bytes = 0

    def continue_schema(self, schema: Any) -> None:
        """Takes the schema of the writer's newest file."""
        self._kinds = kinds_of_schema(schema)
        self._clear()

    def converted(self, row: Mapping[str, Any]) -> tuple[list[Any], int]:
        """Returns a row's values in the order of the columns, and its size in bytes.

        Raises a BadRowError for a row of another form.
        """
        if self._kinds is None:
            kinds = _kinds_of(row)
            values = _convert(kinds, row, self._bytes_max)
            self._kinds = kinds
            self._clear()
            return values
        if not isinstance(row, Mapping) or row.keys() != self._kinds.keys():
            raise _other_columns(self._kinds, row)
        return _convert(self._kinds, row, self._bytes_max)

    def converted_step(
        self, rows: Sequence[Mapping[str, Any]]
    ) -> tuple[list[tuple[list[Any], int]], int]:
        """Returns the rows of a step, each as `converted` does, and the size of all."""
        before, found, total = self._kinds, [], 0
        try:
            for at, row in enumerate(rows):
                try:
                    values, size = self.converted(row)
                except BadRowError as reason:
                    raise type(reason)(f"row {at} of the step: {reason}") from None
                found.append((values, size))
                total += size
            if total > self._bytes_max:
                raise RowTooLargeError(
                    f"the step has {total:,} bytes, and a file {self._bytes_max:,} (file_bytes): "
                    "raise file_bytes, since a step is never divided between files"
                )
        except BadRowError:
            # The columns of a first step count only when it is whole.
            self._kinds = before
            raise
        return found, total

    def add(self, values: list[Any], size: int) -> None:
        """Adds a converted row."""
        for column, value in zip(self._columns.values(), values, strict=True):
            column.append(value)
        self.count += 1
        self.bytes += size

    def take(self) -> tuple[dict[str, Kind], dict[str, list[Any]]]:
        """Returns the rows by column, and begins anew with the same columns."""
        assert self._kinds is not None
        columns, self._columns = self._columns, {}
        self._clear()
        return self._kinds, columns

    def _clear(self) -> None:
        self._columns = {name: [] for name in self._kinds or {}}
        self.count = self.bytes = 0


def table_of(kinds: dict[str, Kind], columns: dict[str, list[Any]]) -> Any:
    """Returns a pyarrow table of rows."""
    arrow = package("pyarrow")
    fields, arrays = [], []
    for name, kind in kinds.items():
        fields.append(arrow.field(name, kind.arrow, nullable=False, metadata=kind.metadata()))
        values = columns[name]
        if kind.dtype is None or kind.is_bytes:
            arrays.append(arrow.array(values, kind.arrow))
            continue
        ends = itertools.accumulate((len(value) for value in values), initial=0)
        offsets = arrow.array(np.fromiter(ends, np.int32, len(values) + 1))
        items = arrow.array(np.concatenate(values), kind.arrow.value_type)
        arrays.append(arrow.ListArray.from_arrays(offsets, items, type=kind.arrow))
    return arrow.Table.from_arrays(arrays, schema=arrow.schema(fields))


def _kinds_of(row: Mapping[str, Any]) -> dict[str, Kind]:
    if not isinstance(row, Mapping) or not row:
        raise BadRowError(f'{row!r:.60} is not a row: give a dict such as {{"text": "..."}}')
    for name in row:
        if not isinstance(name, str) or not name or "." in name:
            raise BadRowError(f"{name!r} is not the name of a column: give a text without dots")
    return {name: kind_of(name, value) for name, value in row.items()}


def _convert(
    kinds: dict[str, Kind], row: Mapping[str, Any], bytes_max: int
) -> tuple[list[Any], int]:
    values, total = [], _ROW_BYTES
    for name, kind in kinds.items():
        value, size = convert(name, kind, row[name])
        values.append(value)
        total += size
    if LOSS_MASK in kinds:
        _check_loss_mask(dict(zip(kinds, values, strict=True)))
    if total > bytes_max:
        raise RowTooLargeError(
            f"the row has {total:,} bytes, and a file {bytes_max:,} (file_bytes): raise "
            "file_bytes, or divide the row"
        )
    return values, total


def _check_loss_mask(row: dict[str, Any]) -> None:
    mask = row[LOSS_MASK]
    if TOKENS not in row or len(mask) != len(row[TOKENS]):
        tokens = f"{len(row[TOKENS])} tokens" if TOKENS in row else "no tokens"
        raise BadRowError(f"loss_mask has {len(mask)} items beside {tokens}: give one per token")
    if len(mask) and mask.max() > 1:
        raise BadRowError(f"loss_mask has the value {mask.max()}: 1 is learned, 0 is not")


def _other_columns(kinds: dict[str, Kind], row: Any) -> BadRowError:
    if not isinstance(row, Mapping):
        return BadRowError(f'{row!r:.60} is not a row: give a dict such as {{"text": "..."}}')
    lacks = ", ".join(sorted(kinds.keys() - row.keys()))
    more = ", ".join(sorted(map(str, row.keys() - kinds.keys())))
    why = " and ".join(
        part for part in (lacks and f"lacks {lacks}", more and f"also has {more}") if part
    )
    return BadRowError(
        f"this writer's rows have the columns {', '.join(sorted(kinds))}; this row {why}: give "
        "all rows the same columns, or write rows of another form under another writer's name"
    )
