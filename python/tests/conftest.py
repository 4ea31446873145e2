"""Fixtures of the tests: a fake daemon on a fresh socket, and a clean environment."""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_daemon import FakeDaemon

# A shell starts what runs in the background with interrupts ignored, and tests send them.
signal.signal(signal.SIGINT, signal.default_int_handler)

# For the processes that tests start: the sources, as in pytest's own `pythonpath`.
_SOURCES = str(Path(__file__).parents[1] / "src")
_LAUNCHER = ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "BATCHWEAVE_SOCKET")

# By package: tests that need it. `make test-frameworks` installs all of them and runs these.
_FRAMEWORKS = {
    "torch": [
        "test_torch_balanced.py",
        "test_torch_data.py",
        "test_torch_losses.py",
        "test_torch_micro_batches.py",
        "test_torch_models.py",
        "test_torch_ragged.py",
        "test_torch_reports_page.py",
        "test_torch_runs.py",
        "test_torch_stop.py",
        "test_torch_trainers.py",
    ],
    "jax": ["test_jax_losses.py"],
    "lightning": ["test_lightning_reports.py"],
    "transformers": ["test_chat_templates.py"],
    "ray": ["test_ray_kills.py", "test_ray_producers.py", "test_ray_sink.py"],
    "pyspark": ["test_spark.py", "test_spark_duplicates.py"],
}
_MISSING = [name for name in _FRAMEWORKS if not importlib.util.find_spec(name)]
collect_ignore = [test for name in _MISSING for test in _FRAMEWORKS[name]]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says at the end what was not run: `-q` shows no header."""
    for name in _MISSING:
        tests = ", ".join(_FRAMEWORKS[name])
        text = f"without {name}: {tests} not run (make test-frameworks runs them)"
        terminalreporter.write_line(text)


def pytest_collection_finish() -> None:
    """Keeps the modules out of later collections of garbage, of which each test makes some."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*_LAUNCHER, *(n for n in os.environ if n.startswith(("OMPI_", "PMI_")))):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", _SOURCES, prepend=os.pathsep)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    # Errors caught by the previous test keep its stack frames, and with them its mappings.
    gc.collect()
    return tmp_path / "consumer.sock"


@pytest.fixture
def daemon(path: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(path) as running:
        yield running


def eventually(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Waits for an action of another thread; fails after a generous time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.002)


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts the built daemons; see real_daemons.py."""
    from real_daemons import running

    yield from running(tmp_path)


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """Ray on this machine, with two CPUs."""
    from engine_world import ray_running

    yield from ray_running()


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Spark in this process, with two threads; a task may fail twice."""
    from engine_world import spark_running

    yield from spark_running()


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Lets `batchweave.open` find the built programs; returns where its folders are made."""
    from real_daemons import BINARIES

    # pytest's own folder has the user, the worker and the test in its name: too long for a socket.
    with tempfile.TemporaryDirectory(prefix="t-", ignore_cleanup_errors=True) as name:
        monkeypatch.setenv("BATCHWEAVE_BIN_DIR", str(BINARIES))
        monkeypatch.setenv("TMPDIR", name)
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield Path(name)


@pytest.fixture
def url(programs: Path, daemons: Callable[..., subprocess.Popen[bytes]], tmp_path: Path) -> str:
    """The root of a finished stream, for `batchweave.open`."""
    assert programs.exists()
    assert daemons("producer").wait(60) == 0
    return f"file://{tmp_path}/stream"
