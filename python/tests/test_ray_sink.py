"""The sink with a real Ray: rows of datasets in inboxes, refusals, and a producer behind it."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import eventually
from engine_world import NOISY, in_folder, job_rows
from inbox_world import DEV_S3, DevS3
from real_daemons import BINARIES
from test_docs import blocks
from test_ray_kills import Interrupted, orphans

import batchweave
from batchweave import inbox

ray: Any = importlib.import_module("ray")
pytestmark = [*NOISY, pytest.mark.usefixtures("cluster")]


def numbered(count: int, blocks: int) -> Any:
    """Returns a dataset of the rows {"text": "row 7"}."""
    rows = ray.data.range(count, override_num_blocks=blocks)
    return rows.map(lambda row: {"text": f"row {row['id']}"})


def sorted_texts(files: dict[str, bytes]) -> list[str]:
    return sorted(row["text"] for row in job_rows(files))


def texts(count: int) -> list[str]:
    return sorted(f"row {number}" for number in range(count))


def test_each_row_is_there_once_in_the_order_of_the_tasks(tmp_path: Path) -> None:
    sink = batchweave.ray.Inbox(tmp_path / "inbox", "job-7", file_bytes=1000)
    numbered(400, 8).write_datasink(sink)
    files = in_folder(tmp_path / "inbox" / "job-7")
    assert len(files) > 8
    assert [row["text"] for row in job_rows(files)] == [f"row {n}" for n in range(400)]
    assert repr(sink).startswith("<Inbox 'job-7' in ")


def test_types_of_columns_match_a_writer(tmp_path: Path) -> None:
    def made(row: dict[str, Any]) -> dict[str, Any]:
        count = int(row["id"])
        return {
            "tokens": np.arange(count, dtype=np.int64),
            "loss_mask": np.ones(count, np.uint8),
            "messages": [{"role": "user", "content": "q"}] + [{"role": "tool", "id": 1}] * count,
            "image": np.full((2, 3), count, np.uint8),
            "action": np.full(7, count, np.float32),
            "reward": 0.5,
            "raw": b"x",
        }

    rows = [made({"id": number}) for number in range(4)]
    with inbox.open(tmp_path / "inbox", "writer") as writer:
        for row in rows:
            writer.put(row)
    data = ray.data.range(4, override_num_blocks=2).map(made)
    data.write_datasink(batchweave.ray.Inbox(tmp_path / "inbox", "job"))
    (of_writer,) = in_folder(tmp_path / "inbox" / "writer").values()
    files = in_folder(tmp_path / "inbox" / "job")

    import io

    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    expected = pq.read_table(io.BytesIO(of_writer))
    for name, content in files.items():
        if name.endswith(".parquet"):
            schema = pq.read_schema(io.BytesIO(content))
            assert schema.remove_metadata().equals(expected.schema.remove_metadata()), schema
            assert [f.metadata for f in schema] == [f.metadata for f in expected.schema]
    # Arrow has every field in every message; fields without a value are left out, but content.
    for row in expected_rows(expected.to_pylist()):
        assert row in expected_rows(job_rows(files))
    assert len(job_rows(files)) == 4


def expected_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def messages(row: dict[str, Any]) -> list[dict[str, Any]]:
        # The order of a struct's fields is Arrow's.
        return [{"content": None, **message} for message in json.loads(row["messages"])]

    return [{**row, "messages": messages(row)} for row in rows]


@pytest.mark.parametrize("how", ["nothing", "filtered"])
def test_a_dataset_without_rows_is_a_job_without_files(tmp_path: Path, how: str) -> None:
    data = ray.data.range(0) if how == "nothing" else ray.data.range(9).filter(lambda _: False)
    data.write_datasink(batchweave.ray.Inbox(tmp_path / "inbox", "job"))
    assert job_rows(in_folder(tmp_path / "inbox" / "job")) == []
    with pytest.raises(inbox.NameTakenError):
        data.write_datasink(batchweave.ray.Inbox(tmp_path / "inbox", "job"))


def test_a_second_job_of_the_name_is_refused_before_it_writes(tmp_path: Path) -> None:
    numbered(10, 2).write_datasink(batchweave.ray.Inbox(tmp_path / "inbox", "job"))
    before = in_folder(tmp_path / "inbox" / "job")
    with pytest.raises(inbox.NameTakenError, match="a job of the name job has written its rows"):
        numbered(20, 2).write_datasink(batchweave.ray.Inbox(tmp_path / "inbox", "job"))
    assert in_folder(tmp_path / "inbox" / "job") == before


def test_of_two_jobs_at_once_one_has_its_rows(tmp_path: Path) -> None:
    go = tmp_path / "go"
    failed: list[Exception] = []

    def waits(batch: dict[str, Any]) -> dict[str, Any]:
        eventually(go.exists, 120)
        return {"text": np.array([f"slow {number}" for number in batch["id"]])}

    def slow() -> None:
        data = ray.data.range(10, override_num_blocks=1).map_batches(waits)
        try:
            data.write_datasink(batchweave.ray.Inbox(tmp_path / "inbox", "job"))
        except Exception as error:
            failed.append(error)

    folder = tmp_path / "inbox" / "job"
    thread = threading.Thread(target=slow)
    thread.start()
    numbered(20, 2).write_datasink(batchweave.ray.Inbox(tmp_path / "inbox", "job"))
    go.touch()
    thread.join()
    (error,) = failed
    assert isinstance(error, inbox.NameTakenError)
    assert sorted_texts(in_folder(folder)) == texts(20)


def test_a_job_that_fails_has_no_rows_and_its_name_is_free(tmp_path: Path) -> None:
    def fails(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 50:
            raise ValueError("no such row (test)")
        return {"text": f"wrong {row['id']}"}

    sink = batchweave.ray.Inbox(tmp_path / "inbox", "job", file_bytes=200)
    with pytest.raises(Exception, match="no such row"):
        ray.data.range(60, override_num_blocks=3).map(fails).write_datasink(sink)
    orphans = in_folder(tmp_path / "inbox" / "job")
    assert orphans
    assert "commit.json" not in orphans
    numbered(20, 3).write_datasink(sink)
    files = in_folder(tmp_path / "inbox" / "job")
    assert sorted_texts(files) == texts(20)
    assert files.keys() > orphans.keys()


@pytest.mark.parametrize(
    ("made", "kind", "why"),
    [
        (lambda n: {"n": None if n == 3 else 1}, inbox.BadRowError, "column 'n' is"),
        (lambda n: {"n": 1 if n < 2 else 0.5}, inbox.BadRowError, r"int64 in part-.* and double i"),
        (lambda n: {"t": "x" * 2000 * n}, inbox.RowTooLargeError, r"6,016 bytes, and a file 5,000"),
        (lambda n: {"t": "x"} if n else {"u": "x"}, inbox.BadRowError, r"absent in part-"),
    ],
)
def test_rows_that_cannot_be_stored_are_one_clear_error(
    tmp_path: Path, made: Callable[[int], dict[str, Any]], kind: type[Exception], why: str
) -> None:
    sink = batchweave.ray.Inbox(tmp_path / "inbox", "job", file_bytes=5000)
    data = ray.data.range(4, override_num_blocks=4).map(lambda row: made(int(row["id"])))
    with pytest.raises(kind, match=why) as failed:
        data.write_datasink(sink)
    assert "\n" not in str(failed.value)
    assert type(failed.value) is kind
    assert "commit.json" not in in_folder(tmp_path / "inbox" / "job")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"name": "Job 7"}, "is not a valid writer's name"),
        ({"location": "ftp://x/y"}, "is not the location of an inbox"),
        ({"file_bytes": 0}, "give bytes from 1"),
        ({"deadline": -1.0}, "give seconds"),
    ],
)
def test_wrong_arguments_are_refused_at_once(
    tmp_path: Path, wrong: dict[str, Any], why: str
) -> None:
    arguments: dict[str, Any] = {"location": tmp_path, "name": "job", **wrong}
    with pytest.raises(inbox.InboxArgumentError, match=why):
        batchweave.ray.Inbox(**arguments)


@pytest.mark.parametrize("mark", DEV_S3)
def test_a_bucket_with_faults_gets_each_row_once(mark: object) -> None:
    assert mark
    faults = "put.lost=0.2,put.error=0.2,put.conflict=0.1,list.error=0.2,get.reset=0.2"
    server = DevS3("--faults", faults, "--seed", "3")
    try:
        sink = batchweave.ray.Inbox("s3://batchweave/inbox", "job", **server.arguments)
        numbered(200, 8).write_datasink(sink)
        with pytest.raises(inbox.NameTakenError):
            numbered(20, 2).write_datasink(sink)
        assert sorted_texts(server.files("inbox/job/")) == texts(200)
    finally:
        server.end()


PAGE = (Path(__file__).parents[2] / "docs" / "engines.md").read_text()


def test_the_pages_example_runs(tmp_path: Path) -> None:
    (code,) = (text for _, text in blocks(PAGE) if "write_datasink" in text)
    ray.data.from_items([{"q": "a", "a": "b"}]).write_parquet(str(tmp_path / "corpus"))
    code = code.replace("s3://corpus/dialogues", str(tmp_path / "corpus"))
    code = code.replace("s3://bucket/inbox", str(tmp_path / "inbox"))

    def to_messages(row: dict[str, str]) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": row["q"]}, {"role": "assistant"}]}

    exec(compile(code, "docs/engines.md", "exec"), {"to_messages": to_messages})
    (row,) = job_rows(in_folder(tmp_path / "inbox" / "dialogues-7"))
    assert json.loads(row["messages"]) == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None},
    ]


@pytest.mark.daemons
def test_the_pages_settings_are_the_producers(tmp_path: Path) -> None:
    tables = [text for _, text in blocks(PAGE, "toml")]
    assert len(tables) == 3
    for table in tables:
        base = 'store.url = "s3://bucket/stream"\nproducer.name = "tokens-0"\n'
        if "source.paths" not in table:
            base += 'source.paths = ["s3://bucket/inbox"]\nstream.seq_len = 1\n'
        (tmp_path / "p.toml").write_text(base + table)
        command = [str(BINARIES / "batchweave-producer"), "--config", str(tmp_path / "p.toml")]
        checked = subprocess.run([*command, "--check=file"], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr


STREAM = """
store.url = "file://{root}/stream"
stream = {{ slices = 1, rows_per_slice = 1, seq_len = 1, producers = ["p0"] }}
producer.name = "p0"
source.paths = ["{root}/inbox"]
source.inbox = true
inbox.writers = ["job-1", "job-2"]
packing.mode = "opaque"
packing.arrays = [{{ name = "n", dtype = "I64" }}]
commit.linger = "10ms"
admin.listen = "off"
"""


def write_two_jobs(folder: Path) -> None:
    """Writes a job whose tasks are killed once each, and one that fails and is run again."""
    died = folder / "died"
    died.mkdir()

    def dies(task: int) -> None:
        if not (died / str(task)).exists():
            (died / str(task)).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def fails(batch: dict[str, Any]) -> dict[str, Any]:
        if 23 in batch["id"] and not (died / "job").exists():
            (died / "job").touch()
            raise ValueError("no such row (test)")
        return {"n": batch["id"] + 100}

    data = ray.data.range(40, override_num_blocks=4)
    first = data.map_batches(lambda batch: {"n": batch["id"]})
    first.write_datasink(Interrupted(folder / "inbox", "job-1", dies))
    sink = batchweave.ray.Inbox(folder / "inbox", "job-2", file_bytes=60)
    with pytest.raises(Exception, match="no such row"):
        data.map_batches(fails).write_datasink(sink)
    data.map_batches(fails).write_datasink(sink)
    assert orphans(in_folder(folder / "inbox" / "job-1")) == 4 * 3
    assert orphans(in_folder(folder / "inbox" / "job-2")) > 0


@pytest.mark.daemons
def test_a_producer_reads_the_rows_of_winning_attempts_once(tmp_path: Path, programs: Path) -> None:
    assert programs.exists()
    (tmp_path / "stream").mkdir()
    (tmp_path / "p.toml").write_text(STREAM.format(root=tmp_path))
    command = [str(BINARIES / "batchweave-producer"), "--config", str(tmp_path / "p.toml")]
    with (tmp_path / "producer.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        write_two_jobs(tmp_path)
        assert process.wait(120) == 0, (tmp_path / "producer.log").read_text()
    finally:
        process.kill()
        process.wait()
    stream = batchweave.open(f"file://{tmp_path}/stream")
    found = [int(stream[step]["n"][0]) for step in range(len(stream))]
    assert found == [*range(40), *range(100, 140)]
