"""Ingestion by Kafka: finished batches from files to committed transactions."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rivals import kafka_client
from rivals.broker import Broker

GROUP_BYTES = 16 << 20
"""A grouped transaction is committed when it has this number of bytes."""
_POOL_BYTES = 64 << 20
_SEED = 20_261_126
_WARM_BYTES = 1 << 20


def files(folder: Path, batch_bytes: int, total: int) -> list[Path]:
    """Writes batches of random bytes, about `total` in all, one file each."""
    chance = random.Random(_SEED)
    pool = memoryview(chance.randbytes(max(_POOL_BYTES, batch_bytes)))
    folder.mkdir()
    made = []
    for number in range(-(-total // batch_bytes)):
        at = chance.randint(0, len(pool) - batch_bytes)
        made.append(folder / f"{number:08}")
        made[-1].write_bytes(pool[at : at + batch_bytes])
    return made


def measure(
    broker: Broker, batches: Sequence[Path], message_bytes: int, partitions: int, *, strict: bool
) -> dict[str, float]:
    """Commits all batches. `strict`: one transaction per batch, else one per GROUP_BYTES."""
    group = 0 if strict else GROUP_BYTES
    with kafka_client.topic(broker, partitions, message_bytes) as topic:
        client = kafka_client.producer(broker, message_bytes, transactional=True)
        client.begin_transaction()
        for partition in range(partitions):
            kafka_client.produce(client, topic, bytes(_WARM_BYTES // 2), partition)
        client.commit_transaction(kafka_client.ANSWER_SECONDS)
        cpu, server = time.process_time(), broker.cpu_seconds()
        began = time.perf_counter()
        total = _commit(client, topic, batches, message_bytes, partitions, group)
        seconds = time.perf_counter() - began
        return {
            "bytes_per_second": total / seconds,
            "batches_per_second": len(batches) / seconds,
            "cpu_seconds_per_gb": (time.process_time() - cpu) / total * 1e9,
            "server_cpu_seconds_per_gb": (broker.cpu_seconds() - server) / total * 1e9,
        }


def _commit(
    client: Any,
    topic: str,
    batches: Sequence[Path],
    message_bytes: int,
    partitions: int,
    group: int,
) -> int:
    """Commits the batches, whole ones per transaction, and returns their bytes."""
    total = waiting = 0
    for number, path in enumerate(batches):
        if not waiting:
            client.begin_transaction()
        for chunk in _chunks(path, message_bytes):
            kafka_client.produce(client, topic, chunk, number % partitions)
            waiting += len(chunk)
        if waiting >= group:
            client.commit_transaction(kafka_client.ANSWER_SECONDS)
            total, waiting = total + waiting, 0
    if waiting:
        client.commit_transaction(kafka_client.ANSWER_SECONDS)
    return total + waiting


def _chunks(path: Path, size: int) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(size):
            yield chunk
