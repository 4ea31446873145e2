"""Tasks of the tests with Spark, in a module that its workers import quickly."""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

ROWS, PARTITIONS = 40, 4

Made = Callable[[int, int, list[int]], Iterator[str]]


def task(made: Made, numbers: Iterable[int]) -> Iterator[tuple[str]]:
    """Makes rows of a partition by its number, its attempt and its input."""
    context = importlib.import_module("pyspark").TaskContext.get()
    for text in made(context.partitionId(), context.attemptNumber(), list(numbers)):
        yield (text,)


def frame(spark: Any, made: Made) -> Any:
    numbers = spark.sparkContext.parallelize(range(ROWS), PARTITIONS)
    return spark.createDataFrame(
        numbers.mapPartitions(functools.partial(task, made)), "text string"
    )


def fails_once(partition: int, attempt: int, numbers: list[int]) -> Iterator[str]:
    for number in numbers:
        if partition == 1 and attempt == 0 and number == 15:
            raise ValueError("the first attempt fails (test)")
        yield f"{attempt} {number}"


def fails(partition: int, attempt: int, numbers: list[int]) -> Iterator[str]:
    for number in numbers:
        if partition == 3:
            raise ValueError(f"attempt {attempt} fails (test)")
        yield str(number)


def waits(go: str, partition: int, attempt: int, numbers: list[int]) -> Iterator[str]:
    assert attempt == 0
    if partition == 3:
        while not Path(go).exists():
            time.sleep(0.01)
    yield from map(str, numbers)


def fragile_text(number: int, text: str, *, mended: str) -> str:
    """Fails in the middle of a partition of the second epoch, until it is mended."""
    if number == 125 and not Path(mended).exists():
        raise ValueError("no such row (test)")
    return text
