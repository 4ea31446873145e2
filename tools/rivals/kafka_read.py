"""Kafka's `poll()` in a real loop: messages wait in the client's queue, and the trainer works."""

from __future__ import annotations

import gc
import importlib
import json
import statistics
import time
from typing import Any

from rivals import kafka_client
from rivals.broker import Broker
from rivals.common import FailedError
from rivals.figures import quantile

SIZES = {"128KiB": 128 << 10, "1MiB": 1 << 20}
"""Bytes of a message, as the slices of `bench read`."""
_SPARE = 100
"""Messages beside the measured ones, for the polls that wait until the queue is full."""
_STATISTICS_MS = 200
_QUEUE_KBYTES_MAX = 2_097_151
_FIRST_SHARE = 10
"""The share of the first calls that is left out, as `bench read` does."""


def measure(broker: Broker, calls: int) -> dict[tuple[str, str], dict[str, float]]:
    """Returns the microseconds of a call per size of messages and length of work."""
    bench: Any = importlib.import_module("batchweave.bench.read")
    numpy: Any = importlib.import_module("numpy")
    block = numpy.zeros(bench.BLOCK_BYTES, numpy.uint8)
    found = {}
    for size, message_bytes in SIZES.items():
        with kafka_client.topic(broker, 1, message_bytes) as topic:
            _fill(broker, topic, message_bytes, calls + _SPARE)
            for length in bench.LENGTHS:
                work = bench.Work(block, length)
                times = _loop(broker, topic, message_bytes, calls, work)
                found[size, length.name] = {
                    "p50_us": statistics.median(times),
                    "p99_us": quantile(times, 0.99),
                }
    return found


def _fill(broker: Broker, topic: str, message_bytes: int, count: int) -> None:
    client = kafka_client.producer(broker, message_bytes, transactional=False)
    value = b"\x01" * message_bytes
    for _ in range(count):
        kafka_client.produce(client, topic, value)
    kafka_client.flush(client)


class _Queued:
    """The number of messages in the client's queue, by its statistics."""

    def __init__(self, topic: str) -> None:
        self._topic, self.messages = topic, 0

    def __call__(self, text: str) -> None:
        known = json.loads(text)["topics"].get(self._topic, {}).get("partitions", {})
        self.messages = known.get("0", {}).get("fetchq_cnt", 0)


def _loop(broker: Broker, topic: str, message_bytes: int, calls: int, work: Any) -> list[float]:
    """Returns the time of each call that found its message in the queue."""
    numpy: Any = importlib.import_module("numpy")
    queued = _Queued(topic)
    kbytes = (calls + 2 * _SPARE) * (message_bytes >> 10)
    settings = {
        "queued.min.messages": calls + 2 * _SPARE,
        "queued.max.messages.kbytes": min(kbytes, _QUEUE_KBYTES_MAX),
        "statistics.interval.ms": _STATISTICS_MS,
        "stats_cb": queued,
    }
    client = kafka_client.consumer(broker, topic, **settings)
    try:
        _until_full(client, queued, calls)
        message = view = None
        found, clock = [], time.perf_counter
        collects = gc.isenabled()
        # As in trainers, and in `bench read`.
        gc.disable()
        for _ in range(calls):
            work()
            began = clock()
            following = client.poll(kafka_client.ANSWER_SECONDS)
            message = view = None
            message = following
            view = numpy.frombuffer(kafka_client.value_of(message), numpy.uint8)
            found.append((clock() - began) * 1e6)
            del following
        if collects:
            gc.enable()
        del message, view
        return found[len(found) // _FIRST_SHARE :]
    finally:
        client.close()


def _until_full(client: Any, queued: _Queued, calls: int) -> None:
    """Waits until all messages of the measurement are in the queue."""
    for _ in range(_SPARE):
        time.sleep(2 * _STATISTICS_MS / 1e3)
        kafka_client.value_of(client.poll(kafka_client.ANSWER_SECONDS))
        if queued.messages >= calls:
            return
    raise FailedError(
        f"the consumer has fetched {queued.messages} of {calls} messages ahead: give fewer --calls"
    )
