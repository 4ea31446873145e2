"""A real Spark: folders with `_SUCCESS`, failing attempts and jobs, and streams by the writer."""

from __future__ import annotations

import functools
import importlib
import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from conftest import eventually
from engine_world import NOISY
from inbox_world import in_folder, read_as_producer
from real_daemons import BINARIES
from spark_tasks import ROWS, fails, fails_once, fragile_text, frame, waits
from test_docs import blocks

import batchweave

pytestmark = NOISY
PAGE = Path(__file__).parents[2] / "docs" / "engines.md"


def settled(folder: Path) -> list[str]:
    """Returns the rows that a producer reads: none without the marker, none of hidden names."""
    if not (folder / "_SUCCESS").exists():
        return []
    rows: list[str] = []
    for path in sorted(folder.rglob("*.parquet")):
        if not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts):
            rows += [row["text"] for row in pq.ParquetFile(path).read().to_pylist()]
    return rows


def test_an_attempt_that_fails_leaves_no_rows(spark: Any, tmp_path: Path) -> None:
    frame(spark, fails_once).write.parquet(f"file://{tmp_path}/export")
    assert settled(tmp_path / "export") == [
        f"{1 if 10 <= number < 20 else 0} {number}" for number in range(ROWS)
    ]


def test_a_job_that_fails_has_no_marker(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"attempt 2 fails \(test\)"):
        frame(spark, fails).write.parquet(f"file://{tmp_path}/export")
    assert not (tmp_path / "export" / "_SUCCESS").exists()
    assert settled(tmp_path / "export") == []


def test_a_job_under_way_has_hidden_files_only(spark: Any, tmp_path: Path) -> None:
    export, go = tmp_path / "export", tmp_path / "go"
    data = frame(spark, functools.partial(waits, str(go)))
    thread = threading.Thread(target=lambda: data.write.parquet(f"file://{export}"))
    thread.start()
    try:
        # The first tasks are committed: their files are there, below the hidden folder.
        eventually(lambda: any((export / "_temporary").rglob("task_*/part-*.parquet")), 120)
        assert [path.name for path in export.iterdir()] == ["_temporary"]
        assert settled(export) == []
    finally:
        go.touch()
        thread.join()
    assert settled(export) == [str(number) for number in range(ROWS)]


STREAM = """
store.url = "file://{root}/stream"
stream = {{ slices = 1, rows_per_slice = 1, seq_len = 16 }}
producer.name = "p0"
source.paths = ["{root}/exports"]
source.follow = true
source.follow_every = "50ms"
source.settled_marker = "_SUCCESS"
tokenizer.kind = "bytes"
commit.linger = "10ms"
admin.listen = "off"
"""


@pytest.mark.daemons
def test_a_producer_reads_a_folder_when_its_job_is_done(
    spark: Any, tmp_path: Path, programs: Path
) -> None:
    assert programs.exists()
    (tmp_path / "stream").mkdir()
    (tmp_path / "exports").mkdir()
    with pytest.raises(Exception, match="fails"):
        frame(spark, fails).write.parquet(f"file://{tmp_path}/exports/0-failed")
    frame(spark, fails_once).write.parquet(f"file://{tmp_path}/exports/1")
    (tmp_path / "p.toml").write_text(STREAM.format(root=tmp_path))
    command = [str(BINARIES / "batchweave-producer"), "--config", str(tmp_path / "p.toml")]
    with (tmp_path / "producer.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    rows = [f"{1 if 10 <= number < 20 else 0} {number}" for number in range(ROWS)]
    tokens = [token for row in rows for token in [*row.encode(), 256]]
    try:
        eventually(lambda: steps(tmp_path) >= len(tokens) // 16 - 1, 120)
    finally:
        process.kill()
        process.wait()
    stream = batchweave.open(f"file://{tmp_path}/stream")
    found = [int(t) for step in range(len(stream)) for t in stream[step].inputs.reshape(-1)]
    assert found == tokens[: len(found)]


def steps(root: Path) -> int:
    try:
        return len(batchweave.open(f"file://{root}/stream"))
    except batchweave.errors.StreamNotOpenedError:
        return 0


def streaming_code() -> str:
    """Returns the page's example of a streaming job."""
    (code,) = (text for _, text in blocks(PAGE.read_text()) if "foreachBatch" in text)
    return code


def test_a_stream_that_fails_and_repeats_an_epoch_writes_each_row_once(
    spark: Any, tmp_path: Path
) -> None:
    """The page's code, with an epoch whose second partition fails until the query ends."""
    arrived, mended = tmp_path / "arrived", tmp_path / "mended"
    arrived.mkdir()

    def arrive(epoch: int) -> None:
        lines = [json.dumps({"id": epoch * 100 + n, "text": f"{epoch} {n}"}) for n in range(30)]
        (tmp_path / "new").write_text("\n".join(lines) + "\n")
        (tmp_path / "new").rename(arrived / f"{epoch}.json")

    functions = importlib.import_module("pyspark.sql.functions")
    fragile = functions.udf(functools.partial(fragile_text, mended=str(mended)), "string")
    frames = spark.readStream.schema("id long, text string").json(f"file://{arrived}")
    frames = frames.repartition(2, "id")
    frames = frames.withColumn("text", fragile("id", "text"))
    code = streaming_code().replace("s3://bucket/inbox", str(tmp_path / "inbox"))

    def run() -> None:
        names = {
            "TaskContext": importlib.import_module("pyspark").TaskContext,
            "batchweave": batchweave,
            "checkpoints": f"file://{tmp_path}/checkpoints",
            "frames": frames,
        }
        exec(compile(code, str(PAGE), "exec"), names)
        query: Any = names["query"]
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    arrive(0)
    run()
    arrive(1)
    with pytest.raises(Exception, match=r"no such row \(test\)"):
        run()
    mended.touch()
    run()
    arrive(2)
    run()
    found: list[str] = []
    writers = sorted((tmp_path / "inbox").iterdir())
    assert [path.name for path in writers] == ["clicks-0", "clicks-1"]
    for writer in writers:
        rows = [row["text"] for row in read_as_producer(in_folder(writer))]
        assert rows == sorted(rows, key=lambda row: [int(part) for part in row.split()])
        found += rows
    assert sorted(found) == sorted(f"{epoch} {n}" for epoch in range(3) for n in range(30))
