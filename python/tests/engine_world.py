"""Ray and Spark for tests, and what a producer reads of the folder of a job."""

from __future__ import annotations

import importlib
import io
import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

TESTS = Path(__file__).parent
# Ray and Spark have warnings of their own, and threads that close sockets late.
NOISY = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
_FILE = re.compile(r"part-\d{6}-[0-9a-f]{16}(-\d+)?\.parquet")


def job_rows(files: dict[str, bytes]) -> list[dict[str, Any]]:
    """Returns the rows of a job in order, as a producer reads them: by its list alone."""
    commit = json.loads(files["commit.json"])
    assert list(commit) == ["format", "files"]
    assert commit["format"] == 1
    rows: list[dict[str, Any]] = []
    for listed in commit["files"]:
        assert _FILE.fullmatch(listed["name"]), listed
        file = pq.ParquetFile(io.BytesIO(files[listed["name"]]))
        assert file.metadata.num_rows == listed["rows"] > 0
        assert file.metadata.metadata[b"batchweave.rows"] == str(listed["rows"]).encode()
        rows += file.read().to_pylist()
    names = [listed["name"] for listed in commit["files"]]
    assert len(names) == len(set(names))
    return rows


def in_folder(folder: Path) -> dict[str, bytes]:
    """Returns the files of a folder by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def ray_running() -> Iterator[None]:
    """Starts Ray on this machine; its workers import from this folder and from the sources."""
    ray: Any = importlib.import_module("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{TESTS.parent / 'src'}{os.pathsep}{TESTS}")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        from real_daemons import BINARIES

        patch.setenv("BATCHWEAVE_BIN_DIR", str(BINARIES))
        logging.getLogger("ray").setLevel(logging.CRITICAL)
        ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
        # Else tasks are numbered as their input arrives.
        data: Any = importlib.import_module("ray.data")
        data.DataContext.get_current().execution_options.preserve_order = True
        try:
            yield
        finally:
            ray.shutdown()


def spark_running() -> Iterator[Any]:
    """Starts Spark in this process; a task that fails twice fails its job."""
    sql: Any = importlib.import_module("pyspark.sql")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{TESTS.parent / 'src'}{os.pathsep}{TESTS}")
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = (
            sql.SparkSession.builder.master("local[2,3]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        try:
            yield session
        finally:
            session.stop()
