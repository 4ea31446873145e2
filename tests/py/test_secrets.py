"""Secrets are in no log line, metric, page, error or core file: both daemons run at log level trace
with credentials that are easy to find, and everything that came out is searched for them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from site_of_daemons import BINARIES, Site, eventually, get

SECRET = "marked-secret-1b9d7f"
TOKEN = "marked-token-5c20ee"
BUCKET = "batchweave"


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    """Start a store with the marked secret; yield the environment of its clients."""
    process = subprocess.Popen(
        [
            *(str(BINARIES / "batchweave"), "dev-s3", "--listen", "127.0.0.1:0", "--json"),
            *("--secret-key", SECRET),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    ready = json.loads(process.stdout.readline())
    yield {
        "AWS_ENDPOINT_URL": ready["endpoint"],
        "AWS_ACCESS_KEY_ID": ready["access_key"],
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": TOKEN,
        "AWS_REGION": ready["region"],
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    process.kill()
    process.wait()


def batchweave(environment: dict[str, str], *words: str) -> str:
    result = subprocess.run(
        [BINARIES / "batchweave", *words],
        env={**os.environ, **environment, "RUST_LOG": "trace"},
        text=True,
        capture_output=True,
        check=False,
        timeout=120,
    )
    return result.stdout + result.stderr


def test_nothing_that_comes_out_has_the_secrets(store: dict[str, str], tmp_path: Path) -> None:
    site = Site(tmp_path, f"s3://{BUCKET}/stream")
    trace = {**store, "RUST_LOG": "trace"}
    try:
        producer = site.start(
            "batchweave-producer", "--config", str(site.producer_config()), env=trace
        )
        site.start("batchweave-consumer", "--config", str(site.consumer_config()), env=trace)
        site.train()
        eventually("batches", lambda: site.delivered > 60)
        outputs = {}
        for port, name in [(site.producer_port, "producer"), (site.consumer_port, "consumer")]:
            for path in ("/", "/status.json", "/metrics", "/readyz", "/healthz"):
                status, text = get(port, path)
                assert status == 200, (name, path)
                outputs[f"{name} {path}"] = text
        for process in site.processes:
            limits = Path(f"/proc/{process.pid}/limits").read_text()
            core = re.search(r"^Max core file size +(\d+) +(\d+)", limits, re.MULTILINE)
            assert core, limits
            assert core.groups() == ("0", "0"), "no core files, with any parent process"
        os.kill(producer.pid, 1)
        eventually("a reload", lambda: "reload" in site.log("batchweave-producer").lower())
    finally:
        site.end()
    # Wrong credentials, refused endpoints, verbs with much output.
    wrong = {**store, "AWS_SECRET_ACCESS_KEY": f"{SECRET}-wrong"}
    outputs["denied"] = batchweave(wrong, "status", "--store", site.url)
    assert "SignatureDoesNotMatch" in outputs["denied"], outputs["denied"][-500:]
    outputs["doctor"] = batchweave(store, "doctor", "--store", site.url, "--samples", "0")
    gone = {**store, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    outputs["no endpoint"] = batchweave(gone, "doctor", "--store", site.url)
    for program in ("batchweave-producer", "batchweave-consumer"):
        outputs[program] = site.log(program)
        assert len(re.findall(r"TRACE|DEBUG", outputs[program])) > 100, "that was not trace"
    found = {
        where: line[:300]
        for where, text in outputs.items()
        for line in text.splitlines()
        if SECRET in line or TOKEN in line
    }
    assert not found, found
