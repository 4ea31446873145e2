"""`batchweave quickstart` as a newcomer uses it: its files run as they are, to the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from site_of_daemons import BINARIES, ROOT

SOURCES = ROOT / "python" / "src"
DIED = 9
# Runs train.py, and ends at once behind its first checkpoint, as if the machine had died.
DIES_AT_CHECKPOINT = f"""
import os, runpy
from batchweave.reader import Reader
checkpoint = Reader.checkpoint
def once(self, state):
    checkpoint(self, state)
    os._exit({DIED})
Reader.checkpoint = once
runpy.run_path("train.py", run_name="__main__")
"""


class Desk:
    """A folder in which a user works, with a socket of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "BATCHWEAVE_STORE"},
            "BATCHWEAVE_SOCKET": str(folder / "c.sock"),
            "PYTHONPATH": str(SOURCES),
            "NO_COLOR": "1",
        }

    def batchweave(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.completes(str(BINARIES / "batchweave"), *words)

    def completes(self, *command: str) -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended

    def starts(self) -> subprocess.Popen[bytes]:
        """Start `batchweave run run.toml`."""
        with (self.folder / "run.out").open("ab") as out:
            return subprocess.Popen(
                [str(BINARIES / "batchweave"), "run", "run.toml", "--ui", "off"],
                cwd=self.folder,
                env=self.environment,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def output(self) -> str:
        return (self.folder / "run.out").read_text()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def write_lines(desk: Desk, documents: int) -> None:
    (desk.folder / "data").mkdir()
    text = "".join(
        json.dumps({"id": n, "body": f"Document {n} tells of ships and of crews. " * 20}) + "\n"
        for n in range(documents)
    )
    (desk.folder / "data" / "corpus.jsonl").write_text(text)


def test_the_files_of_quickstart_train_to_the_end_of_the_stream(desk: Desk) -> None:
    write_lines(desk, documents=120)
    begun = json.loads(desk.batchweave("quickstart", "data", "--json").stdout)
    assert begun["steps"] >= 4
    assert "tells of ships" in begun["first_row"]["text"]
    run = desk.starts()
    try:
        trained = desk.completes(sys.executable, "train.py").stdout
        assert run.wait(timeout=300) == 0, desk.output()
    finally:
        run.kill()
        run.wait()
    status = json.loads(desk.batchweave("status", "--json", "--store", begun["store"]).stdout)
    steps = status["head"]["steps"]
    assert steps > begun["steps"], "the run continues the stream"
    batch = begun["slices"] * begun["rows_per_slice"] * begun["seq_len"]
    assert trained.splitlines()[-1] == f"trained on {steps * batch} tokens in {steps} steps"
    assert f"done: job train has taken all {steps} steps" in desk.output()
    verified = desk.batchweave("verify", "--job", "train", "--store", begun["store"]).stdout
    assert "proved" in verified


def test_training_continues_at_the_last_checkpoint(desk: Desk) -> None:
    write_lines(desk, documents=120)
    begun = json.loads(desk.batchweave("quickstart", "data", "--json").stdout)
    run = desk.starts()
    try:
        ended = subprocess.run(
            [sys.executable, "-c", DIES_AT_CHECKPOINT],
            cwd=desk.folder,
            env=desk.environment,
            check=False,
            timeout=300,
        )
        assert ended.returncode == DIED
        assert (desk.folder / "train.checkpoint").exists()
        trained = desk.completes(sys.executable, "train.py").stdout
        assert run.wait(timeout=300) == 0, desk.output()
    finally:
        run.kill()
        run.wait()
    status = json.loads(desk.batchweave("status", "--json", "--store", begun["store"]).stdout)
    steps = status["head"]["steps"]
    assert trained.splitlines()[-1].endswith(f" tokens in {steps - 10} steps")
