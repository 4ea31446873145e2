"""`stream.losses()`: a table of what `batchweave losses` writes, here a program of the test."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from batchweave import errors
from batchweave.stream import Stream

PROGRAM = """#!{python}
import json, sys
words = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[2:])
if words["job"] == "gone":
    print("error: no job 'gone' in this stream", file=sys.stderr)
    sys.exit(66)
import pyarrow, pyarrow.parquet
pyarrow.parquet.write_table(
    pyarrow.table({{"step": [4, 5], "sum": [2.5, 1.5], "words": [json.dumps(sys.argv[1:])] * 2}}),
    words["parquet"],
)
"""


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stream:
    program = tmp_path / "batchweave"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("BATCHWEAVE_BIN_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # As one that was opened, without its daemon.
    found = Stream.__new__(Stream)
    vars(found).update(url="file:///stream", _timeout=30.0, _closed=False)
    return found


def words_of(table: Any) -> list[str]:
    words: list[str] = json.loads(table["words"][0].as_py())
    return [word for word in words if not word.startswith("--parquet=")]


def test_losses_are_a_table(stream: Stream, tmp_path: Path) -> None:
    table = stream.losses("pretrain")
    assert table["step"].to_pylist() == [4, 5]
    assert table["sum"].to_pylist() == [2.5, 1.5]
    store = "--store=file:///stream"
    assert words_of(table) == ["losses", "--job=pretrain", "--by=step", store]
    assert not list(tmp_path.glob("batchweave-losses-*")), "nothing is left behind"
    some = stream.losses("pretrain", range(0, 1000)[-100:], by="source")
    assert words_of(some)[2:4] == ["--by=source", "--steps=900..999"]
    assert words_of(stream.losses("pretrain", 7, by="document"))[3] == "--steps=7..7"


def test_the_programs_error_is_passed_on(stream: Stream) -> None:
    with pytest.raises(errors.StreamNotOpenedError, match="no job 'gone' in this stream"):
        stream.losses("gone")


WRONG: list[Any] = [range(0), range(0, 10, 2), range(-1, 4), -1, "4..5", slice(4, 5)]


def test_wrong_arguments_are_named(stream: Stream) -> None:
    for steps in WRONG:
        with pytest.raises(errors.BadHelloError, match=r"such as range\(1000, 2000\)"):
            stream.losses("pretrain", steps)
    with pytest.raises(errors.BadHelloError, match="'step', 'source', 'row', 'document'"):
        stream.losses("pretrain", by="token")


def test_a_missing_package_is_named(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(errors.NoProgramError, match="pip install pyarrow"):
        stream.losses("pretrain")


def test_a_closed_stream_has_none(stream: Stream) -> None:
    stream._closed = True
    with pytest.raises(errors.ClosedError):
        stream.losses("pretrain")
