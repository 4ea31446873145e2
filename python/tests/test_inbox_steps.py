"""A writer of whole steps: their shape, their files, and steps that are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inbox_world import in_folder, read_as_producer

from batchweave import inbox
from batchweave.inbox import BadRowError, InboxArgumentError, InboxDamagedError, RowTooLargeError

SHAPE = {"slices": 2, "rows_per_slice": 3}


def step(first: int) -> list[list[dict[str, Any]]]:
    return [[{"n": first + 3 * piece + row} for row in range(3)] for piece in range(2)]


def open_steps(folder: Path, **more: Any) -> inbox.Writer:
    return inbox.open(folder, "w", **{"linger": 60, **SHAPE, **more})


def numbers(folder: Path) -> list[int]:
    return [row["n"] for row in read_as_producer(in_folder(folder / "w"))]


def test_rows_of_a_step_follow_each_other_slice_by_slice(tmp_path: Path) -> None:
    with open_steps(tmp_path) as writer:
        writer.put_step(step(0), state={"next": 1})
        writer.put_step(tuple(map(tuple, step(6))))
        assert (writer.next_row, writer.durable_rows) == (12, 0)
        writer.flush()
        assert (writer.durable_rows, writer.state, writer.state_row) == (12, {"next": 1}, 6)
    (file,) = in_folder(tmp_path / "w")
    assert numbers(tmp_path) == list(range(12))
    assert file.metadata["step_rows"] == "6"


def test_a_file_of_any_size_holds_whole_steps(tmp_path: Path) -> None:
    # A row takes 8 bytes and 16 beside them, a step 144, and a file at most two of them.
    with open_steps(tmp_path, file_bytes=300) as writer:
        for first in range(0, 42, 6):
            writer.put_step(step(first))
    files = in_folder(tmp_path / "w")
    assert [len(file.rows) for file in files] == [12, 12, 12, 6]
    assert numbers(tmp_path) == list(range(42))


def test_a_step_larger_than_a_file_is_refused_as_a_whole(tmp_path: Path) -> None:
    with open_steps(tmp_path, file_bytes=143) as writer:
        with pytest.raises(RowTooLargeError, match=r"144 bytes, and a file 143 .*never divided"):
            writer.put_step(step(0))
        assert writer.next_row == 0
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (step(0)[:1], "it has 1 slices"),
        ([*step(0), step(0)[0]], "it has 3 slices"),
        ([step(0)[0], step(0)[1][:2]], "slice 1 has 2 rows"),
        (step(0)[0][:2], "slice 0 is a dict"),
        ({"slices": step(0)}, "it is a dict"),
        (iter(step(0)), "it is a list_iterator"),
        ("ab", "it is a str"),
        (["abc", "abc"], "slice 0 is a str"),
    ],
)
def test_a_step_of_another_shape_names_both_shapes(given: Any, why: str, tmp_path: Path) -> None:
    with open_steps(tmp_path) as writer:
        with pytest.raises(BadRowError) as caught:
            writer.put_step(given)
        assert f"{why}, and this writer was opened with slices=2, rows_per_slice=3" in str(
            caught.value
        )
        writer.put_step(step(0))
    assert numbers(tmp_path) == list(range(6))


def test_a_bad_row_refuses_its_whole_step(tmp_path: Path) -> None:
    bad = step(6)
    bad[1][2]["n"] = "text"
    with open_steps(tmp_path) as writer:
        writer.put_step(step(0))
        with pytest.raises(BadRowError, match="row 5 of the step: column 'n' is int64"):
            writer.put_step(bad)
        writer.put_step(step(6))
    assert numbers(tmp_path) == list(range(12))


def test_a_refused_first_step_leaves_the_columns_open(tmp_path: Path) -> None:
    with open_steps(tmp_path) as writer:
        other: Any = [[{"text": "a"}] * 3, [{"text": "a"}, {"text": "b"}, {"text": None}]]
        with pytest.raises(BadRowError, match="row 5 of the step: column 'text'"):
            writer.put_step(other)
        writer.put_step(step(0))
    assert numbers(tmp_path) == list(range(6))


def test_rows_and_steps_do_not_mix(tmp_path: Path) -> None:
    with open_steps(tmp_path / "steps") as writer:
        with pytest.raises(InboxArgumentError, match="use put_step"):
            writer.put({"n": 0})
        writer.put_step(step(0))
    with inbox.open(tmp_path / "rows", "w") as writer:
        with pytest.raises(InboxArgumentError, match="open it with slices= and rows_per_slice="):
            writer.put_step(step(0))
        writer.put({"n": 0})
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("steps", {}, "holds steps of 6 rows, by put_step, .* opened without slices="),
        ("steps", {"slices": 2, "rows_per_slice": 4}, "rows_per_slice=4, a step of 8 rows"),
        ("rows", SHAPE, "holds rows, by put, and the writer is opened with slices=2"),
    ]
    for folder, shape, found in wrong:
        with pytest.raises(InboxArgumentError, match=found):
            inbox.open(tmp_path / folder, "w", **shape)
    with inbox.open(tmp_path / "rows", "w") as writer:
        assert writer.next_row == 1
    with open_steps(tmp_path / "steps") as writer:
        writer.put_step(step(6))
    assert numbers(tmp_path / "steps") == list(range(12))


@pytest.mark.parametrize(
    "shape",
    [
        {"slices": 2},
        {"rows_per_slice": 2},
        {"slices": 0, "rows_per_slice": 2},
        {"slices": 2, "rows_per_slice": 2.5},
        {"slices": True, "rows_per_slice": 2},
    ],
)
def test_a_wrong_shape_is_an_argument_error(shape: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InboxArgumentError, match="give slices= and rows_per_slice="):
        inbox.open(tmp_path, "w", **shape)


def test_a_file_that_is_no_whole_number_of_steps_is_damaged(tmp_path: Path) -> None:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    metadata = {
        "writer": "w", "number": "0", "first_row": "0", "rows": "5", "instance": "a",
        "state": "null", "state_row": "0", "step_rows": "6",
    }  # fmt: skip
    (tmp_path / "w").mkdir()
    table = pa.table({"n": np.arange(5)}).replace_schema_metadata(
        {f"batchweave.{name}": value for name, value in metadata.items()}
    )
    pq.write_table(table, tmp_path / "w" / f"{0:020}.parquet")
    with pytest.raises(InboxDamagedError, match="it has 5 rows, and steps of 6"):
        open_steps(tmp_path)


def test_resume_continues_at_a_step(tmp_path: Path) -> None:
    def steps(state: Any) -> Iterator[Any]:
        for at in range(state["next"] if state else 0, 4):
            yield (step(6 * at), {"next": at + 1}) if at == 1 else step(6 * at)

    with open_steps(tmp_path) as writer:
        for first in range(0, 18, 6):
            writer.put_step(step(first), {"next": 2} if first == 6 else None)
    with open_steps(tmp_path) as writer:
        assert writer.state_row == 12
        assert writer.resume(steps) == 6
    assert numbers(tmp_path) == list(range(24))
