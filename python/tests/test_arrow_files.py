"""Tables of Arrow: as pyarrow reads them, and as a Parquet file of the same table is read."""

from __future__ import annotations

import datetime
import decimal
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_daemons import MARKS
from test_files_people_have import run, texts

import batchweave

pa = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")
parquet = pytest.importorskip("pyarrow.parquet")

pytestmark = MARKS

CHAT = """{% for m in messages %}{{ m }}
{% endfor %}"""


def write(table: Any, folder: Path, kind: str) -> None:
    """Write a table in one of the ways that people have."""
    folder.mkdir()
    if kind == "parquet":
        parquet.write_table(table, folder / "a.parquet")
    elif kind in ("lz4", "zstd", "uncompressed"):
        feather.write_feather(table, folder / "a.feather", compression=kind, chunksize=7)
    else:
        ipc = pa.ipc.IpcWriteOptions(compression=None if kind == "stream" else "zstd")
        with pa.ipc.new_stream(folder / "a.arrow", table.schema, options=ipc) as writer:
            writer.write_table(table, max_chunksize=5)


KINDS = ["lz4", "zstd", "uncompressed", "stream", "zstd stream"]


def strings(values: list[str | None], kind: Any) -> Any:
    """Return the texts as an array of the type."""
    array = pa.array(values, pa.string())
    return array.dictionary_encode() if kind == "dictionary" else array.cast(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_pyarrow_reads_the_same_texts(kind: str, tmp_path: Path) -> None:
    seed = random.Random(kind)
    parts = ["x", "word ", "\n", "\u00e4", "\U0001f600", "\0", '"']
    types = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), "dictionary"]
    (tmp_path / "data").mkdir()
    wanted: list[str] = []
    for number, of in enumerate(types):
        values = [
            "".join(seed.choices(parts, k=seed.randrange(1, 40))) if seed.random() < 0.9 else None
            for _ in range(60)
        ]
        table = pa.table({"n": range(60), "text": strings(values, of)})
        write(table, tmp_path / "data" / str(number), kind)
        wanted += [value for value in values if value is not None]
    source = f'source = {{ paths = ["{tmp_path}/data"], on_bad_document = "skip" }}'
    code, said = run(source, tmp_path)
    assert code == 0, said
    assert texts(tmp_path) == wanted


Digests = list[Any]
Digest = Callable[[str, Path], Digests]


@pytest.fixture(scope="module")
def parquet_of() -> Callable[[Path, Digest], Digests]:
    """Makes the stream of a table in Parquet once for each function that makes it."""
    made: dict[Digest, Digests] = {}

    def of(folder: Path, make: Digest) -> Digests:
        if make not in made:
            made[make] = make("parquet", folder)
        return made[make]

    return of


def digests(config: str, folder: Path, seq_len: int = 4096) -> Digests:
    """Return everything in the stream that a producer of this configuration makes."""
    folder.mkdir()
    code, said = run(config, folder, seq_len=seq_len)
    assert code == 0, said
    with batchweave.open(f"file://{folder}/stream") as stream:
        return [
            {name: np.asarray(part[name]).tolist() for name in part}
            for batch in stream
            for part in batch.slices
        ]


def conversations() -> Any:
    """Return nested messages with values of every type that JSON can hold."""
    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
    kind = pa.struct(
        [
            ("role", pa.string()),
            ("content", pa.string()),
            ("flag", pa.bool_()),
            ("small", pa.int8()),
            ("large", pa.uint64()),
            ("half", pa.float32()),
            ("whole", pa.float64()),
            ("day", pa.date32()),
            ("time", pa.timestamp("us")),
            ("price", pa.decimal128(9, 2)),
            ("raw", pa.binary()),
            ("tags", pa.list_(pa.string())),
            ("counts", pa.map_(pa.string(), pa.int64())),
            ("nothing", pa.null()),
        ]
    )
    rows = [
        [
            {
                "role": "user",
                "content": f"q{n} \u00e4" if n % 3 else None,
                "flag": bool(n % 2),
                "small": -n,
                "large": 2**63 + n,
                "half": n / 3,
                "whole": n / 7,
                "day": start.date(),
                "time": (start + datetime.timedelta(seconds=n)).replace(tzinfo=None),
                "price": decimal.Decimal(n) / 4,
                "raw": b"bytes",
                "tags": ["a", None, "b"][: n % 4],
                "counts": {"k": n},
                "nothing": None,
            },
            {"role": "assistant", "content": "a" * n},
        ]
        for n in range(1, 20)
    ]
    text = pa.array(['[{"x": 1}]', "plain"] * 9 + [None], pa.string())
    return pa.table({"messages": pa.array(rows, pa.list_(kind)), "tools": text})


def chats(kind: str, folder: Path) -> Digests:
    (folder / "t.jinja").write_text(CHAT)
    write(conversations(), folder / f"data {kind}", kind)
    config = f"""source.paths = ["{folder}/data {kind}"]
packing.mode = "chat"
chat.template = "{folder}/t.jinja"
"""
    return digests(config, folder / kind)


def samples(kind: str, folder: Path) -> Digests:
    seed = np.random.default_rng(7)
    table = pa.table(
        {
            "image": pa.array([seed.bytes(12) for _ in range(30)], pa.binary()),
            "state": pa.array(seed.random((30, 4)).tolist(), pa.list_(pa.float32(), 4)),
            "action": pa.array(seed.integers(-9, 9, (30, 3)).tolist(), pa.list_(pa.int16())),
            "label": pa.array(range(30), pa.uint8()),
        }
    )
    write(table, folder / f"data {kind}", kind)
    config = f"""source.paths = ["{folder}/data {kind}"]
packing.mode = "opaque"
[[packing.arrays]]
name = "image"
dtype = "U8"
shape = [12]
[[packing.arrays]]
name = "state"
dtype = "F32"
shape = [4]
[[packing.arrays]]
name = "action"
dtype = "I32"
shape = [3]
[[packing.arrays]]
name = "label"
dtype = "I32"
shape = []
"""
    return digests(config, folder / kind, seq_len=1)


@pytest.mark.parametrize("made", [chats, samples])
@pytest.mark.parametrize("kind", KINDS)
def test_parquet_gives_the_same_conversations_and_samples(
    kind: str, made: Digest, tmp_path: Path, parquet_of: Callable[[Path, Digest], Digests]
) -> None:
    found = made(kind, tmp_path)
    assert found == parquet_of(tmp_path, made)
    assert found


def test_parquet_gives_the_same_ids(tmp_path: Path) -> None:
    ids = pa.array([[n, n + 1, 5] for n in range(50)], pa.list_(pa.int32()))
    found = {}
    for one in ("parquet", *KINDS):
        write(pa.table({"ids": ids}), tmp_path / f"data {one}", one)
        source = f'paths = ["{tmp_path}/data {one}"], content = "ids", column = "ids"'
        config = f"""source = {{ {source} }}
"""
        found[one] = digests(config, tmp_path / one)
        assert found[one] == found["parquet"]


def test_wrong_columns_are_named(tmp_path: Path) -> None:
    write(pa.table({"body": ["x"], "n": [1]}), tmp_path / "data", "lz4")
    source = f'paths = ["{tmp_path}/data"]'
    code, said = run(f"source = {{ {source} }}", tmp_path, "--check")
    assert code != 0
    assert 'no column "text" in this file, which has body, n; name the right one' in said
    code, said = run(f'source = {{ {source}, column = "n" }}', tmp_path, "--check")
    assert code != 0
    assert 'column "n" is Int64, not a string; name a text column in source.column' in said


LARGE = [0, 2**63 - 1, 2**63, 2**64 - 1]


@pytest.mark.parametrize("kind", ["parquet", *KINDS])
def test_pyarrow_reads_the_same_unsigned_numbers(kind: str, tmp_path: Path) -> None:
    """An array keeps each number that its type can hold; a row with another is a bad document."""
    table = pa.table(
        {
            "one": pa.array(LARGE, pa.uint64()),
            "list": pa.array([[n, 7] for n in LARGE], pa.list_(pa.uint64())),
        }
    )
    write(table, tmp_path / "data", kind)

    def arrays(dtype: str, on_bad: str, folder: Path) -> tuple[int, str]:
        folder.mkdir()
        of = [f'{{ name = "one", dtype = "{dtype}" }}']
        of.append(f'{{ name = "list", dtype = "{dtype}", shape = [2] }}')
        config = f"""source = {{ paths = ["{tmp_path}/data"], on_bad_document = "{on_bad}" }}
packing.mode = "opaque"
packing.arrays = [{", ".join(of)}]
"""
        return run(config, folder, seq_len=1)

    for dtype, kept in [("U64", LARGE), ("F64", LARGE), ("I64", LARGE[:2]), ("U32", LARGE[:1])]:
        code, said = arrays(dtype, "skip", tmp_path / dtype)
        assert code == 0, said
        with batchweave.open(f"file://{tmp_path}/{dtype}/stream") as stream:
            parts = [part for batch in stream for part in batch.slices]
        kind_of = np.dtype({"U64": "u8", "F64": "f8", "I64": "i8", "U32": "u4"}[dtype])
        assert [part["one"].flatten().tolist() for part in parts] == [
            np.array([n], kind_of).tolist() for n in kept
        ]
        assert [part["list"].flatten().tolist() for part in parts] == [
            np.array([n, 7], kind_of).tolist() for n in kept
        ]
    code, said = arrays("I64", "fail", tmp_path / "fail")
    assert code != 0
    assert f'array "one" holds {2**63}, which is not I64; correct the data' in said


@pytest.mark.parametrize("kind", ["parquet", *KINDS])
def test_unsigned_ids_out_of_the_vocabulary_are_named(kind: str, tmp_path: Path) -> None:
    ids = pa.array([[5, 6], [7, 2**64 - 1], [8]], pa.list_(pa.uint64()))
    write(pa.table({"ids": ids}), tmp_path / "data", kind)
    source = f'paths = ["{tmp_path}/data"], content = "ids", column = "ids"'
    code, said = run(f"source = {{ {source} }}", tmp_path)
    assert code != 0
    assert f"id {2**64 - 1} at index 1 is not one of the 257 of the vocabulary" in said
