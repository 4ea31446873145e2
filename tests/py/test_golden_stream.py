"""A whole stream as version 0.1.0 stored it, with jobs, marks, ledgers and a producer that has not
finished: today's programs read it, prove it and go on with it; what a later version may have stored
is refused by name. `tests/golden/stream-v1` is never changed; `python test_golden_stream.py FOLDER`
shows how it was made.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import batchweave
import pytest
from site_of_daemons import BINARIES, ROOT, Site, eventually, get

GOLDEN = ROOT / "tests" / "golden" / "stream-v1"


class Small(Site):
    """The daemons of the golden stream, with its corpus."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        lines = [json.dumps({"text": f"document {n} of the golden corpus"}) for n in range(60)]
        (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")

    def producer(self, number: int, extra: str = "") -> subprocess.Popen[bytes]:
        """Start one of two producers; the corpus path is relative to the folder."""
        path = self.config(
            f"producer-{number}",
            f"""
            store.url = "{self.url}"
            stream = {{ slices = 2, rows_per_slice = 2, seq_len = 16 }}
            producer = {{ name = "tokens-{number}", index = {number}, of = 2 }}
            source.paths = ["corpus.jsonl"]
            tokenizer.kind = "bytes"
            commit.max_batches = 4
            {extra}
            """,
        )
        with (self.folder / "batchweave-producer.log").open("ab") as log:
            process = subprocess.Popen(
                [str(BINARIES / "batchweave-producer"), "--config", path.name],
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)
        return process

    def consumer(self, extra: str = "") -> subprocess.Popen[bytes]:
        """Start the daemon and wait until it is ready."""
        config = self.consumer_config(extra).read_text()
        path = self.config("consumer", config.replace("enabled = true", "enabled = false"))
        daemon = self.start("batchweave-consumer", "--config", str(path))
        eventually("a consumer", lambda: get(self.consumer_port, "/readyz")[0] == 200)
        return daemon

    def batchweave(self, *words: str) -> tuple[int, str]:
        """Return the exit code and output of a verb."""
        result = subprocess.run(
            [BINARIES / "batchweave", "--store", self.url, *words],
            text=True,
            capture_output=True,
            check=False,
        )
        return result.returncode, result.stdout + result.stderr


def read(site: Small, attempt: int, state: dict[str, str] | None, stop: int) -> list[str]:
    """Read as one rank up to a step, with a checkpoint every eighth; return digests."""
    options: dict[str, Any] = {"socket": str(site.socket), "dp_rank": 0, "dp_size": 1}
    options |= {"job": "training", "attempt": str(attempt) * 32, "state": state}
    digests = []
    with batchweave.connect(**options) as reader:
        for batch in reader:
            tokens = b"".join(piece.inputs.astype("<u2").tobytes() for piece in batch.slices)
            digests.append(hashlib.sha256(tokens).hexdigest()[:16])
            if batch.step % 8 == 7:
                reader.checkpoint(batch.state_dict())
                (site.folder / "state.json").write_text(json.dumps(batch.state_dict()))
            if batch.step + 1 == stop:
                break
    return digests


def make(folder: Path) -> None:
    """Make the golden stream, as done with the programs of version 0.1.0."""
    site = Small(folder)
    try:
        assert site.producer(1).wait(timeout=60) == 0, site.log("batchweave-producer")
        # The other one is held back in the middle, and stopped.
        held = site.producer(0, "ahead = { max_steps = 1000, no_job_steps = 24 }")
        eventually("a bound", lambda: "held back" in site.log("batchweave-producer"))
        held.send_signal(signal.SIGTERM)
        assert held.wait(timeout=60) == 0
        daemon = site.consumer()
        first = read(site, 1, None, 12)
        state = json.loads((folder / "state.json").read_text())
        second = read(site, 2, state, 20)
        assert first[8:] == second[:4]
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(timeout=60) == 0
        site.batchweave("quarantine", "22..22", "--reason", "a golden quarantine")
        shutil.rmtree(folder / "stream" / ".batchweave-tmp", ignore_errors=True)
        state = json.loads((folder / "state.json").read_text())
        facts = {"digests": first[:8] + second, "state": state}
        (folder / "stream" / "golden.json").write_text(json.dumps(facts, indent=1) + "\n")
    finally:
        site.end()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Small]:
    site = Small(tmp_path)
    shutil.copytree(GOLDEN, tmp_path / "stream", dirs_exist_ok=True)
    try:
        yield site
    finally:
        site.end()


FACTS = json.loads((GOLDEN / "golden.json").read_text()) if GOLDEN.exists() else {}


def test_today_s_programs_read_prove_and_go_on(site: Small) -> None:
    assert site.batchweave("verify", "--data")[0] == 0
    code, proof = site.batchweave("verify", "--job", "training")
    assert (code, "proved: steps 0..19" in proof) == (0, True), proof
    code, shown = site.batchweave("job", "show", "training")
    assert (code, "restart points  0, 8, 16" in shown) == (0, True), shown
    assert site.producer(0).wait(timeout=60) == 0, site.log("batchweave-producer")
    site.batchweave("seal", "--reason", "the end")
    site.consumer()
    digests = read(site, 3, FACTS["state"], 10**6)
    assert digests[:4] == FACTS["digests"][16:]
    status = json.loads(site.batchweave("status", "--json")[1])
    # Step 22 is quarantined.
    assert len(digests) == status["end"] - 17
    assert [one["epoch"] for one in status["producers"]] == [2, 1]
    assert site.batchweave("verify", "--data")[0] == 0


JOB = next((GOLDEN / "jobs").iterdir()).name if GOLDEN.exists() else ""
# Objects that a newer version may have stored, and the command that reads each first.
NEWER = [
    ("stream.json", ["status"]),
    ("log/00000000000000000002.json", ["status"]),
    (f"jobs/{JOB}/1/ledger", ["verify", "--job", "training"]),
]


@pytest.mark.parametrize(("key", "words"), NEWER)
def test_a_newer_format_is_refused_by_name(site: Small, key: str, words: list[str]) -> None:
    path = site.folder / "stream" / key
    path = min(path.iterdir()) if path.is_dir() else path
    path.write_text(re.sub('"format": ?1', '"format":3', path.read_text(), count=1))
    code, output = site.batchweave(*words)
    assert code == 76, output
    for part in (str(path.relative_to(site.folder / "stream")), "format 3", "upgrade BatchWeave"):
        assert part in output, (part, output)


def test_a_newer_frame_is_refused_by_name(site: Small) -> None:
    path = min((site.folder / "stream" / "data" / "tokens-1").rglob("*.tgb"))
    whole = path.read_bytes()
    assert whole[:4] == b"BWF\1"
    path.write_bytes(b"BWF\2" + whole[4:])
    code, output = site.batchweave("show", "0", "--slices")
    assert code == 76, output
    assert path.name in output
    assert "has version 2, this build reads version 1; upgrade BatchWeave" in output


def test_daemons_stop_at_a_newer_stream(site: Small) -> None:
    path = site.folder / "stream" / "stream.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 3'))
    assert site.producer(0).wait(timeout=60) == 76
    output = "stream.json: format 3 is not known to this build (it reads format 1 to 2)"
    assert output in site.log("batchweave-producer")
    config = site.consumer_config()
    daemon = site.start("batchweave-consumer", "--config", str(config))
    assert daemon.wait(timeout=60) == 76
    assert output in site.log("batchweave-consumer")


def test_clients_of_another_protocol_are_told_both_versions(site: Small) -> None:
    site.consumer()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as newer:
        newer.connect(str(site.socket))
        hello = b'{"protocol":2}'
        newer.send(struct.pack("<4sHHII", b"BWSK", 2, 1, 16 + len(hello), 0) + hello)
        answer = newer.recv(65536)
    assert b'"protocol_version"' in answer
    assert b"protocol 2" in answer
    assert b"this build 1" in answer, answer
    assert b"install client and daemon of one release" in answer


if __name__ == "__main__":
    make(Path(sys.argv[1]))
