"""Speculation on a real cluster of two hosts: a doubled task counts once."""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import eventually
from engine_world import NOISY, TESTS
from spark_tasks import ROWS
from test_spark import settled

pytestmark = NOISY
Start = Callable[..., subprocess.Popen[bytes]]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts classes of Spark; a task is never run twice on one host, so there are two."""
    pyspark: Any = importlib.import_module("pyspark")
    program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": f"{TESTS.parent / 'src'}{os.pathsep}{TESTS}",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": arguments[arguments.index("--host") + 1],
            "SPARK_LOG_DIR": str(tmp_path),
            "SPARK_WORKER_DIR": str(tmp_path / "work"),
        }
        with (tmp_path / f"{name}-{len(started)}.log").open("wb") as log:
            command = [program, f"org.apache.spark.deploy.{name}", *arguments]
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
        started.append(process)
        return process

    yield start
    for process in reversed(started):
        process.terminate()
        process.wait(60)


def test_of_two_attempts_at_once_one_counts(tmp_path: Path, start: Start) -> None:
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    start("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    for host in ("127.0.0.1", "127.0.0.2"):
        limits = ("--cores", "1", "--memory", "600m", "--webui-port", "0")
        start("worker.Worker", "--host", host, *limits, master)
    logs = (tmp_path / "master.Master-0.log").read_text
    eventually(lambda: logs().count("Registering worker") == 2, 240)
    export = tmp_path / "export"
    script = [sys.executable, str(TESTS / "spark_duplicates.py")]
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": f"{TESTS.parent / 'src'}{os.pathsep}{TESTS}",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [*script, master, str(tmp_path), f"file://{export}"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert {path.name for path in tmp_path.glob("began-*")} >= {"began-0", "began-1"}
    rows = settled(export)
    assert [row.split()[1] for row in rows] == [str(number) for number in range(ROWS)]
    # One attempt of the first task, whichever won.
    assert len({row.split()[0] for row in rows[:10]}) == 1
