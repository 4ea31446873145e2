"""Rows and their columns: types, what is refused, and that a refused row leaves nothing behind."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from inbox_world import in_folder, read_as_producer

from batchweave import inbox

MESSAGES = [
    {"role": "user", "content": "zwölf"},
    {"role": "assistant", "content": None, "tool_calls": [{"arguments": {"a": [1, 2.5]}}]},
]


def written(folder: Path, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    with inbox.open(folder, "w") as writer:
        for row in rows:
            writer.put(row)
    return read_as_producer(in_folder(folder / "w"))


def test_columns_have_the_types_of_the_page(tmp_path: Path) -> None:
    row = {
        "text": "ä",
        "messages": MESSAGES,
        "tools": {"name": "f"},
        "tokens": [0, 50256, 2**32 - 1],
        "loss_mask": np.array([0, 1, 1], np.uint8),
        "image": np.arange(24, dtype=np.uint8).reshape(2, 4, 3),
        "action": np.arange(14, dtype=np.float32).reshape(2, 7),
        "half": np.array([0.5, 1.5], np.float16),
        "flags": np.array([True, False]),
        "scores": [0.5, 1],
        "blob": b"\0\1",
        "reward": 0.25,
        "version": np.int64(7),
        "done": np.bool_(True),
    }
    assert written(tmp_path, row)[0] == {
        **row,
        "messages": '[{"role":"user","content":"zwölf"},{"role":"assistant","content":null,'
        '"tool_calls":[{"arguments":{"a":[1,2.5]}}]}]',
        "tools": '{"name":"f"}',
        "loss_mask": [0, 1, 1],
        "image": bytes(range(24)),
        "action": [float(n) for n in range(14)],
        "half": np.array([0.5, 1.5], "<f2").tobytes(),
        "flags": [True, False],
        "scores": [0.5, 1.0],
        "version": 7,
        "done": True,
    }
    schema = pq.read_schema(tmp_path / "w" / f"{0:020}.parquet")
    assert {field.name: str(field.type).replace("element: ", "") for field in schema} == {
        "text": "string",
        "messages": "string",
        "tools": "string",
        "tokens": "list<uint32>",
        "loss_mask": "list<uint8>",
        "image": "binary",
        "action": "list<float>",
        "half": "binary",
        "flags": "list<bool>",
        "scores": "list<double>",
        "blob": "binary",
        "reward": "double",
        "version": "int64",
        "done": "bool",
    }
    image = schema.field("image").metadata
    assert (image[b"batchweave.dtype"], image[b"batchweave.shape"]) == (b"uint8", b"[4, 3]")


def test_values_of_the_same_meaning_fit(tmp_path: Path) -> None:
    rows = written(
        tmp_path,
        {"tokens": np.array([1, 2], np.uint16), "a": np.zeros((1, 2), "f4"), "x": 0.5, "n": 1},
        {"tokens": (3,), "a": np.zeros((0, 2), "f4"), "x": 2, "n": np.uint8(2)},
        {"tokens": [], "a": [[1.0, 2.0]], "x": math.inf, "n": -(2**63)},
        {"tokens": np.array([9], ">i8"), "a": np.ones((2, 4), "f4")[:, ::2], "x": 1.0, "n": 3},
    )
    assert [row["tokens"] for row in rows] == [[1, 2], [3], [], [9]]
    assert [row["a"] for row in rows] == [[0, 0], [], [1, 2], [1, 1, 1, 1]]
    assert [row["x"] for row in rows] == [0.5, 2.0, math.inf, 1.0]
    assert [row["n"] for row in rows] == [1, 2, -(2**63), 3]


@pytest.mark.parametrize(
    ("first", "bad", "why"),
    [
        ({"text": "a"}, {"text": 5}, "is string in this writer's files, this row has int 5"),
        ({"text": "a"}, {"text": None}, "column 'text' is string"),
        ({"text": "a"}, {"text": "a", "b": 1}, "this row also has b"),
        ({"text": "a"}, {"txt": "a"}, "this row lacks text and also has txt"),
        ({"text": "a"}, {}, "lacks text"),
        ({"text": "a"}, ["a"], "is not a row"),
        ({"text": "a"}, {"text": "\ud800"}, "not valid Unicode"),
        ({"n": 1}, {"n": 1.5}, "column 'n' is int64"),
        ({"n": 1}, {"n": True}, "column 'n' is int64"),
        ({"n": 1}, {"n": 2**63}, "column 'n' is int64"),
        ({"x": 1.0}, {"x": 2**53 + 1}, "column 'x' is double"),
        ({"x": 1.0}, {"x": "1"}, "column 'x' is double"),
        ({"b": True}, {"b": 1}, "column 'b' is bool"),
        ({"tokens": [1]}, {"tokens": [-1]}, "column 'tokens' is list<uint32>"),
        ({"tokens": [1]}, {"tokens": [2**32]}, "column 'tokens' is list<uint32>"),
        ({"tokens": [1]}, {"tokens": [1.5]}, "column 'tokens' is list<uint32>"),
        ({"tokens": [1]}, {"tokens": [[1], [2]]}, "column 'tokens' is list<uint32>"),
        ({"tokens": [1]}, {"tokens": [[1], [2, 3]]}, "column 'tokens' is list<uint32>"),
        ({"tokens": [1]}, {"tokens": "1"}, "column 'tokens' is list<uint32>"),
        ({"tokens": [1]}, {"tokens": [True]}, "column 'tokens' is list<uint32>"),
        ({"a": np.zeros((2, 3))}, {"a": np.zeros((2, 4))}, "list<double> of items [3]"),
        ({"a": np.zeros((2, 3))}, {"a": np.zeros(3)}, "has an array float64[3]"),
        ({"a": np.zeros((2, 3))}, {"a": np.zeros((2, 4))}, "write value.reshape(-1)"),
        ({"a": np.zeros(2, "u1")}, {"a": np.array([256])}, "column 'a' is binary"),
        ({"m": MESSAGES}, {"m": [{"x": {1, 2}}]}, "column 'm' has no form in JSON"),
        ({"m": MESSAGES}, {"m": [{"x": math.nan}]}, "column 'm' has no form in JSON"),
        (
            {"tokens": [1, 2], "loss_mask": [0, 1]},
            {"tokens": [1, 2], "loss_mask": [1]},
            "loss_mask has 1 items beside 2 tokens",
        ),
        (
            {"tokens": [1], "loss_mask": [0]},
            {"tokens": [1], "loss_mask": [2]},
            "loss_mask has the value 2",
        ),
    ],
)
def test_a_row_of_another_form_is_refused_and_leaves_nothing(
    tmp_path: Path, first: dict[str, Any], bad: Any, why: str
) -> None:
    with inbox.open(tmp_path, "w") as writer:
        writer.put(first)
        with pytest.raises(inbox.BadRowError) as refused:
            writer.put(bad)
        assert why in str(refused.value)
        assert writer.next_row == 1
        writer.put(first)
    assert len(read_as_producer(in_folder(tmp_path / "w"))) == 2


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({}, "is not a row"),
        ("text", "is not a row"),
        ({"": 1}, "is not the name of a column"),
        ({"a.b": 1}, "is not the name of a column"),
        ({1: 1}, "is not the name of a column"),
        ({"a": None}, "is None: leave the column out"),
        ({"a": []}, "its type is not known"),
        ({"a": ["x"]}, "its type is not known"),
        ({"a": object()}, "its type is not known"),
        ({"a": np.array(["x"])}, "is an array of <U1"),
        ({"a": np.array([1j])}, "is an array of complex128"),
        ({"a": 2**70}, "column 'a' is int64"),
        ({"loss_mask": [1]}, "beside no tokens"),
        ({"text": "x" * 2000}, "the row has 2,016 bytes, and a file 1,000 (file_bytes)"),
    ],
)
def test_a_refused_first_row_does_not_set_the_columns(tmp_path: Path, bad: Any, why: str) -> None:
    with inbox.open(tmp_path, "w", file_bytes=1000) as writer:
        with pytest.raises(inbox.BadRowError) as refused:
            writer.put(bad)
        assert why in str(refused.value)
        writer.put({"text": "good"})
    assert read_as_producer(in_folder(tmp_path / "w")) == [{"text": "good"}]


def test_the_columns_of_an_earlier_process_hold(tmp_path: Path) -> None:
    row = {
        "tokens": [1],
        "image": np.zeros((1, 2), np.uint8),
        "half": np.zeros((1, 2), np.float16),
        "flags": [True],
        "blob": b"",
        "text": "a",
    }
    written(tmp_path, row)
    with inbox.open(tmp_path, "w") as writer:
        with pytest.raises(inbox.BadRowError, match="array\\) of items"):
            writer.put({**row, "image": np.zeros((1, 3), np.uint8)})
        with pytest.raises(inbox.BadRowError, match="lacks blob"):
            writer.put({name: value for name, value in row.items() if name != "blob"})
        writer.put(row)
    assert len(read_as_producer(in_folder(tmp_path / "w"))) == 2


def test_values_are_copied(tmp_path: Path) -> None:
    array, messages = np.array([1, 2], np.uint32), [{"role": "user", "content": "a"}]
    with inbox.open(tmp_path, "w") as writer:
        writer.put({"tokens": array, "messages": messages})
        array[:], messages[0]["content"] = 9, "changed"
    (row,) = read_as_producer(in_folder(tmp_path / "w"))
    assert row == {"tokens": [1, 2], "messages": '[{"role":"user","content":"a"}]'}


def test_files_are_cut_by_their_bytes(tmp_path: Path) -> None:
    with inbox.open(tmp_path, "w", file_bytes=10_000, linger=60) as writer:
        for number in range(100):
            writer.put({"text": f"{number:1000}"})
    files = in_folder(tmp_path / "w")
    assert [len(file.rows) for file in files] == [9] * 11 + [1]
    assert len(read_as_producer(files)) == 100
