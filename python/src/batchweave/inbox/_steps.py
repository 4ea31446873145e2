"""Whole steps: a global batch as its caller made it, with a fixed number of slices and rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from batchweave.inbox.errors import BadRowError, InboxArgumentError

Row = Mapping[str, Any]
Step = Sequence[Sequence[Row]]


class StepShape(NamedTuple):
    """The slices of each step of a writer, and the rows of each slice."""

    slices: int
    rows_per_slice: int

    @property
    def rows(self) -> int:
        """The rows of a step."""
        return self.slices * self.rows_per_slice

    def __str__(self) -> str:
        return f"slices={self.slices}, rows_per_slice={self.rows_per_slice}"

    def rows_of(self, step: Step) -> list[Row]:
        """Returns the rows of a step, slice by slice; raises a BadRowError for another shape."""
        if not _is_list(step):
            raise self._other(f"it is a {type(step).__name__}")
        if len(step) != self.slices:
            raise self._other(f"it has {len(step)} slices")
        for at, rows in enumerate(step):
            if not _is_list(rows):
                raise self._other(f"slice {at} is a {type(rows).__name__}")
            if len(rows) != self.rows_per_slice:
                raise self._other(f"slice {at} has {len(rows)} rows")
        return [row for rows in step for row in rows]

    def _other(self, why: str) -> BadRowError:
        return BadRowError(
            f"the step has another shape: {why}, and this writer was opened with {self}: give a "
            f"list of {self.slices} slices, each a list of {self.rows_per_slice} rows"
        )


def step_shape(slices: int | None, rows_per_slice: int | None) -> StepShape | None:
    """Returns the shape of a writer's steps, None for a writer of rows."""
    if slices is None and rows_per_slice is None:
        return None
    for name, count in (("slices", slices), ("rows_per_slice", rows_per_slice)):
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise InboxArgumentError(
                f"{name}={count!r}: give slices= and rows_per_slice= as the stream has them, for "
                "example slices=8, rows_per_slice=4"
            )
    assert slices is not None
    assert rows_per_slice is not None
    return StepShape(slices, rows_per_slice)


def check_newest(shape: StepShape | None, step_rows: int | None, place: str) -> None:
    """Raises an InboxArgumentError where the newest file has steps of another size.

    `step_rows`: the rows of a step in the newest file, 0 for a file of rows; None without a file.
    """
    if step_rows is None or step_rows == (shape.rows if shape else 0):
        return
    found = f"steps of {step_rows} rows, by put_step" if step_rows else "rows, by put"
    given = f"with {shape}, a step of {shape.rows} rows" if shape else "without slices="
    raise InboxArgumentError(
        f"{place} holds {found}, and the writer is opened {given}: open it as before, or write "
        "under another name"
    )


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
