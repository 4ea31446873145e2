"""`batchweave fork --dry-run` says whether the input is still there, also that in a store."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from probes import Ran, run
from test_absent_services import DevS3

PRODUCER = """
store.url = "file://{folder}/stream"
stream = {{ slices = 1, rows_per_slice = 2, seq_len = 64 }}
producer.name = "a"
source.paths = ["s3://batchweave/corpus/*.jsonl"]
tokenizer.kind = "bytes"
packing.last_batch = "pad"
admin.listen = "off"
"""
FILES = 3


@pytest.fixture
def s3() -> Iterator[DevS3]:
    """Start a store with some files."""
    store = DevS3()
    for n in range(FILES):
        lines = "".join(json.dumps({"text": f"word{n} {k} " * 9}) + "\n" for k in range(20))
        store.client.put_object(Bucket=store.bucket, Key=f"corpus/{n}.jsonl", Body=lines.encode())
    yield store
    store.end()


def forked(folder: Path, env: dict[str, str]) -> Ran:
    """Return what a fork at step 2 would have."""
    parent, child = f"file://{folder}/stream", f"file://{folder}/child"
    return run("batchweave", "fork", parent, "--at-step", "2", child, "--dry-run", env=env)


def test_objects_of_the_input_are_looked_for(s3: DevS3, tmp_path: Path) -> None:
    meta = s3.client.meta
    keys = s3.client._request_signer._credentials
    env = {
        **os.environ,
        "AWS_ENDPOINT_URL": meta.endpoint_url,
        "AWS_REGION": meta.region_name,
        "AWS_ACCESS_KEY_ID": keys.access_key,
        "AWS_SECRET_ACCESS_KEY": keys.secret_key,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
    }
    path = tmp_path / "producer.toml"
    path.write_text(PRODUCER.format(folder=tmp_path))
    made = run("batchweave-producer", "--config", path, env=env)
    assert made.code == 0, made
    assert (
        f"{FILES} files: {FILES} are there, 0 missing, 0 not looked for"
        in forked(tmp_path, env).out
    )
    s3.client.delete_object(Bucket=s3.bucket, Key="corpus/1.jsonl")
    gone = forked(tmp_path, env)
    assert gone.code == 0, gone
    assert f"{FILES - 1} are there, 1 missing, 0 not looked for" in gone.out
    assert "1 of 3 input files are missing" in gone.out
    assert "for example s3://batchweave/corpus/1.jsonl" in gone.out
    s3.end()
    unknown = forked(tmp_path, env)
    assert unknown.code == 0, unknown
    assert f"0 are there, 0 missing, {FILES} not looked for" in unknown.out
    assert "3 of 3 input files were not looked for: " in unknown.out
