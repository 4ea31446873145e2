"""A Spark job whose first task runs on two hosts at once: `MASTER FOLDER EXPORT`.

The first attempt waits for a second one; that one starts because of `spark.speculation`, makes
other rows and ends. Then the first one goes on, and must not count.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spark_tasks import frame


class Doubled:
    """The rows of a task, in two attempts of the first one."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, partition: int, attempt: int, numbers: list[int]) -> Iterator[str]:
        folder = Path(self.folder)
        if partition == 0:
            (folder / f"began-{attempt}").touch()
            while attempt == 0 and not (folder / "began-1").exists():
                time.sleep(0.01)
        for number in numbers:
            yield f"{attempt} {number}"


def main(master: str, folder: str, export: str) -> None:
    builder: Any = importlib.import_module("pyspark.sql").SparkSession.builder
    settings = {
        "spark.ui.enabled": "false",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "10ms",
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.master(master).getOrCreate()
    frame(session, Doubled(folder)).write.parquet(export)
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
