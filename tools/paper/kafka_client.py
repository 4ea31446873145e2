"""Producers, consumers and topics of a broker, by confluent-kafka (librdkafka)."""

from __future__ import annotations

import contextlib
import importlib
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

from paper.broker import Broker
from paper.programs import FailedError

ANSWER_SECONDS = 120.0
"""The longest wait for an answer of the broker."""
DEFAULT_MESSAGE, RAISED_MESSAGE = 1_000_000, 64 << 20
"""The largest message that librdkafka sends by default, and after raising all limits."""
_OVERHEAD_BYTES = 64 << 10


def _settings(address: str, **more: Any) -> dict[str, Any]:
    # Errors are exceptions, and each retry would log a line.
    named = {name.replace("_", "."): value for name, value in more.items()}
    return {"bootstrap.servers": address, "log_level": 2, **named}


@contextlib.contextmanager
def topics(broker: Broker, partitions: Mapping[str, int], message: int) -> Iterator[dict[str, str]]:
    """Makes topics for messages of at most this size, and deletes them with their files."""
    module = importlib.import_module("confluent_kafka.admin")
    admin = module.AdminClient(_settings(broker.address))
    names = {name: f"{name}-{secrets.token_hex(4)}" for name in partitions}
    limits = {"max.message.bytes": str(message + _OVERHEAD_BYTES)}
    new = [
        module.NewTopic(names[name], count, 1, config=limits) for name, count in partitions.items()
    ]
    for made in admin.create_topics(new).values():
        made.result(ANSWER_SECONDS)
    try:
        yield names
    finally:
        if not broker.ended():
            for gone in admin.delete_topics(list(names.values())).values():
                gone.result(ANSWER_SECONDS)
            for name in names.values():
                broker.until_removed(name)


def producer(address: str, name: str, message: int) -> Any:
    """Returns an idempotent transactional producer that waits for all replicas."""
    settings = _settings(address, acks="all", enable_idempotence=True, transactional_id=name)
    settings |= {"queue.buffering.max.kbytes": 256 << 10, "linger.ms": 0}
    if message > DEFAULT_MESSAGE:
        settings |= {"message.max.bytes": message + _OVERHEAD_BYTES, "batch.size": message}
    made = importlib.import_module("confluent_kafka").Producer(settings)
    made.init_transactions(ANSWER_SECONDS)
    return made


def produce(client: Any, topic: str, value: bytes, partition: int = 0) -> None:
    """Appends a message to the producer's queue, and waits for room there."""
    while True:
        try:
            client.produce(topic, value=value, partition=partition)
        except BufferError:
            client.poll(0.01)
        else:
            client.poll(0)
            return


def consumer(address: str, topic: str, offsets: Mapping[int, int]) -> Any:
    """Returns a read_committed consumer of these partitions, from these offsets."""
    module = importlib.import_module("confluent_kafka")
    settings = _settings(address, group_id="paper", isolation_level="read_committed")
    settings |= {"enable.auto.commit": False, "fetch.min.bytes": 1}
    settings |= {"fetch.max.bytes": 2 * RAISED_MESSAGE}
    settings |= {"max.partition.fetch.bytes": RAISED_MESSAGE + _OVERHEAD_BYTES}
    made = module.Consumer({**settings, "receive.message.max.bytes": 4 * RAISED_MESSAGE})
    made.assign([module.TopicPartition(topic, part, at) for part, at in offsets.items()])
    return made


def value_of(message: Any) -> bytes:
    """Returns the bytes of a message that a poll returned."""
    if message is None or message.error() is not None:
        why = message.error() if message else f"none came in {ANSWER_SECONDS:g} s"
        raise FailedError(f"no message from Kafka: {why}")
    value: bytes = message.value()
    return value


def last_committed(address: str, topic: str) -> int:
    """Returns the last number in a topic of one partition; -1: there is none."""
    part = importlib.import_module("confluent_kafka").TopicPartition(topic, 0)
    reader, last = consumer(address, topic, {0: 0}), -1
    end = reader.get_watermark_offsets(part, timeout=ANSWER_SECONDS)[1]
    # Markers of transactions take offsets too, so the position tells the end.
    while reader.position([part])[0].offset < end:
        message = reader.poll(0.5)
        if message is None:
            break
        last = int(value_of(message))
    reader.close()
    return last
