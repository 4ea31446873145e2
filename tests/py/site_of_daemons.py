"""Real daemons on one machine, for the tests of operations."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import batchweave

ROOT = Path(__file__).resolve().parents[2]
BINARIES = Path(os.environ.get("BATCHWEAVE_BIN_DIR", ROOT / "target" / "release"))

# Keys of a producer that say what a step is: of rows, and of bins of equal cost.
ROWS = "stream = { slices = 2, rows_per_slice = 2, seq_len = 128 }"
BINS = """
stream.slices = 2
packing.mode = "balanced"
packing.balanced = { tokens = 1024, micro_batches = 2, window = 2 }
"""


def free_port() -> int:
    """Return a free port, outside the range that the system hands out, from which an
    outgoing connection of another program could take it before the daemon does.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as chosen, contextlib.suppress(OSError):
            chosen.bind(("127.0.0.1", port))
            return port


def eventually(
    what: str,
    done: Callable[[], bool],
    seconds: float = 300.0,
    output: Callable[[], str] = lambda: "",
    pause: float = 0.05,
) -> None:
    """Wait until `done` returns true, which is called every `pause` seconds; `output` returns the
    output to show if it does not.
    """
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"still not after {seconds} s: {what}\n{output()}"
        time.sleep(pause)


def get(port: int, path: str) -> tuple[int, str]:
    """Return status and body of a page; status 0 without an answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()
    except (OSError, http.client.HTTPException):
        return 0, ""


class Site:
    """A stream in a folder (or elsewhere), a producer and a consumer with their admin endpoints."""

    def __init__(self, folder: Path, url: str | None = None, shape: str = ROWS) -> None:
        self.folder = folder
        self.shape = shape
        self.url = url or f"file://{folder / 'stream'}"
        (folder / "stream").mkdir()
        self.socket = folder / "consumer.sock"
        self.producer_port, self.consumer_port = free_port(), free_port()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.stop = threading.Event()
        self.delivered = 0
        text = "".join(json.dumps({"text": f"word{n} " * 80}) + "\n" for n in range(3000))
        (folder / "corpus.jsonl").write_text(text)

    def config(self, name: str, text: str) -> Path:
        """Write a configuration file."""
        path = self.folder / f"{name}.toml"
        path.write_text(text)
        return path

    def producer_config(self, extra: str = "") -> Path:
        """Configure a producer that never ends and stays a little ahead."""
        return self.config(
            "producer",
            f"""
            store.url = "{self.url}"
            {self.shape}
            producer.name = "tokens-0"
            source = {{ paths = ["{self.folder / "corpus.jsonl"}"], epochs = 0 }}
            tokenizer.kind = "bytes"
            packing.object_bytes = "64KiB"
            ahead.max_steps = 200
            admin.listen = "127.0.0.1:{self.producer_port}"
            {extra}
            """,
        )

    def consumer_config(self, extra: str = "") -> Path:
        """Configure a consumer with a small arena."""
        return self.config(
            "consumer",
            f"""
            store.url = "{self.url}"
            job = {{ name = "training", open = true }}
            arena = {{ bytes = "8MiB", segment_bytes = "4MiB" }}
            prefetch = {{ bytes = "4MiB", steps = 16 }}
            socket.path = "{self.socket}"
            reclaim = {{ enabled = true, every = "1s" }}
            follow.idle = "200ms"
            admin.listen = "127.0.0.1:{self.consumer_port}"
            {extra}
            """,
        )

    def start(
        self, program: str, *arguments: str, env: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program; its output goes to PROGRAM.log."""
        with (self.folder / f"{program}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(BINARIES / program), *arguments],
                stdout=log,
                stderr=log,
                env={**os.environ, **(env or {})},
            )
        self.processes.append(process)
        return process

    def log(self, program: str) -> str:
        """Return the output of a program."""
        return (self.folder / f"{program}.log").read_text()

    def logs(self) -> str:
        """Return the last output of all programs."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"{path.name}:\n{path.read_text()[-4000:]}" for path in logs)

    def run(self) -> None:
        """Start both daemons and one rank."""
        self.start("batchweave-producer", "--config", str(self.producer_config()))
        self.start("batchweave-consumer", "--config", str(self.consumer_config()))
        self.train()

    def train(self) -> None:
        """Read as one rank in a thread until the site ends, with checkpoints."""
        eventually("a consumer that is ready", self._is_ready, output=self.logs)
        threading.Thread(target=self._rank, daemon=True).start()

    def _is_ready(self) -> bool:
        for process in self.processes:
            assert process.poll() is None, f"{process.args!r} ended\n{self.logs()}"
        return get(self.consumer_port, "/readyz")[0] == 200

    def _rank(self) -> None:
        options: dict[str, Any] = {"socket": str(self.socket), "dp_rank": 0, "dp_size": 1}
        with batchweave.connect(job="training", start=0, **options) as reader:
            for batch in reader:
                self.delivered += 1
                reader.report(batch, loss=1 / (1 + batch.step), sources={0: (1.0, 64)})
                if batch.step % 50 == 49:
                    reader.checkpoint(batch.state_dict())
                if self.stop.wait(0.01):
                    return

    def end(self) -> None:
        """End all started programs."""
        self.stop.set()
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
