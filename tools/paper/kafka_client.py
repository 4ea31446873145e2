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
_CRITICAL = 2
"""The level of the client's messages. Errors are exceptions, and each retry would log one."""


def kafka() -> Any:
    """Returns the module confluent_kafka."""
    return importlib.import_module("confluent_kafka")


@contextlib.contextmanager
def topics(broker: Broker, partitions: Mapping[str, int], message: int) -> Iterator[dict[str, str]]:
    """Makes topics for messages of at most this size, and deletes them with their files."""
    admin_module = importlib.import_module("confluent_kafka.admin")
    admin = admin_module.AdminClient({"bootstrap.servers": broker.address, "log_level": _CRITICAL})
    names = {name: f"{name}-{secrets.token_hex(4)}" for name in partitions}
    limits = {"max.message.bytes": str(message + _OVERHEAD_BYTES)}
    new = [
        admin_module.NewTopic(names[name], count, 1, config=limits)
        for name, count in partitions.items()
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
    settings: dict[str, Any] = {
        "bootstrap.servers": address,
        "log_level": _CRITICAL,
        "acks": "all",
        "enable.idempotence": True,
        "transactional.id": name,
        "compression.type": "none",
        "queue.buffering.max.kbytes": 256 << 10,
        "linger.ms": 0,
    }
    if message > DEFAULT_MESSAGE:
        settings["message.max.bytes"] = message + _OVERHEAD_BYTES
        settings["batch.size"] = message
    made = kafka().Producer(settings)
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


def consumer(address: str, topic: str, offsets: Mapping[int, int], **more: Any) -> Any:
    """Returns a read_committed consumer of these partitions, from these offsets."""
    module = kafka()
    settings = {
        "bootstrap.servers": address,
        "log_level": _CRITICAL,
        "group.id": "paper",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "fetch.min.bytes": 1,
        "fetch.max.bytes": 2 * RAISED_MESSAGE,
        "max.partition.fetch.bytes": RAISED_MESSAGE + _OVERHEAD_BYTES,
        "receive.message.max.bytes": 4 * RAISED_MESSAGE,
        **more,
    }
    made = module.Consumer(settings)
    made.assign([module.TopicPartition(topic, part, at) for part, at in offsets.items()])
    return made


def value_of(message: Any) -> bytes:
    """Returns the bytes of a message that a poll returned."""
    if message is None:
        raise FailedError(f"no message came from the broker in {ANSWER_SECONDS:g} s")
    if message.error() is not None:
        raise FailedError(f"the consumer failed: {message.error()}")
    value: bytes = message.value()
    return value


def last_committed(address: str, topic: str) -> int:
    """Returns the last number in a topic of one partition; -1: there is none."""
    module = kafka()
    reader = consumer(address, topic, {0: 0})
    try:
        part = module.TopicPartition(topic, 0)
        end = reader.get_watermark_offsets(part, timeout=ANSWER_SECONDS)[1]
        last = -1
        # Markers of transactions take offsets too, so the position tells the end.
        while reader.position([part])[0].offset < end:
            message = reader.poll(0.5)
            if message is None:
                break
            last = int(value_of(message))
        return last
    finally:
        reader.close()
