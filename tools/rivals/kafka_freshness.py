"""Freshness of Kafka: from the end of a commit to the return of the `poll()` that waits for it."""

from __future__ import annotations

import threading
import time
from typing import Any

from rivals import kafka_client
from rivals.broker import Broker
from rivals.common import FailedError
from rivals.figures import quantile

_RATE = 15.0
"""Messages per second, as the rows of `bench freshness` in a folder."""
_ROW_BYTES = 1000
_WARM = 20
"""Messages before the measured ones, as in `bench freshness`."""


class _Writer(threading.Thread):
    """Commits one message at a time, at a steady rate."""

    def __init__(self, client: Any, topic: str, count: int, *, transactional: bool) -> None:
        super().__init__(daemon=True)
        self._client, self._topic, self._count = client, topic, count
        self._transactional = transactional
        self.sent: list[float] = []
        self.committed: list[float] = []
        self.stop = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            self._write()
        except Exception as failure:
            self.failure = failure

    def _write(self) -> None:
        due = time.monotonic()
        for number in range(self._count):
            self.stop.wait(max(0.0, due - time.monotonic()))
            if self.stop.is_set():
                return
            self.sent.append(time.monotonic())
            value = number.to_bytes(8, "little") + bytes(_ROW_BYTES - 8)
            if self._transactional:
                self._client.begin_transaction()
            self._client.produce(self._topic, value=value, partition=0)
            if self._transactional:
                self._client.commit_transaction(kafka_client.ANSWER_SECONDS)
            else:
                kafka_client.flush(self._client)
            self.committed.append(time.monotonic())
            due += 1 / _RATE


def measure(broker: Broker, samples: int, *, transactional: bool) -> dict[str, float]:
    """Returns milliseconds from a commit, and from before its message was sent, to `poll()`."""
    count = samples + _WARM
    with kafka_client.topic(broker, 1, _ROW_BYTES) as topic:
        client = kafka_client.producer(broker, _ROW_BYTES, transactional=transactional)
        reader = kafka_client.consumer(broker, topic)
        writer = _Writer(client, topic, count, transactional=transactional)
        writer.start()
        try:
            received = _receive(reader, writer, count)
        finally:
            writer.stop.set()
            writer.join(kafka_client.ANSWER_SECONDS)
            reader.close()
    # A message may come before the answer to its commit does; as in `bench freshness` that is 0.
    waits = [
        1e3 * max(0.0, at - committed)
        for at, committed in zip(received, writer.committed, strict=True)
    ]
    whole = [1e3 * (at - sent) for at, sent in zip(received, writer.sent, strict=True)]
    return {
        "p50_ms": quantile(waits[_WARM:], 0.5),
        "p99_ms": quantile(waits[_WARM:], 0.99),
        "sent_p50_ms": quantile(whole[_WARM:], 0.5),
        "sent_p99_ms": quantile(whole[_WARM:], 0.99),
    }


def _receive(reader: Any, writer: _Writer, count: int) -> list[float]:
    """Returns the instant at which each message was received."""
    received: list[float] = []
    deadline = time.monotonic() + count / _RATE + kafka_client.ANSWER_SECONDS
    while len(received) < count:
        message = reader.poll(0.5)
        now = time.monotonic()
        if writer.failure is not None:
            raise FailedError(f"the producer failed: {writer.failure}")
        if now > deadline:
            raise FailedError(f"only {len(received)} of {count} messages came to the consumer")
        if message is None:
            continue
        number = int.from_bytes(kafka_client.value_of(message)[:8], "little")
        if number != len(received):
            raise FailedError(f"message {number} came in place of {len(received)}")
        received.append(now)
    return received
