"""Producers, consumers and topics of a broker, by confluent-kafka (librdkafka)."""

from __future__ import annotations

import contextlib
import importlib
import secrets
from collections.abc import Iterator
from typing import Any

from rivals.broker import Broker
from rivals.common import FailedError

ANSWER_SECONDS = 120.0
"""The longest wait for an answer of the broker."""
_OVERHEAD_BYTES = 64 << 10
"""Room for keys and headers beside the bytes of a message."""
_BATCH_BYTES = 1_000_000
"""What librdkafka sends at once by default."""
_CRITICAL = 2
"""The level of the client's messages. Errors are exceptions, and each retry would log one."""
_PACKAGES = ("numpy", "confluent_kafka", "obstore", "pyarrow")


def check_packages() -> None:
    """Fails where this Python lacks a package."""
    for name in _PACKAGES:
        try:
            importlib.import_module(name)
        except ImportError as why:
            raise FailedError(
                f"this Python cannot import {name} ({why}): run the tool in an environment with "
                "`pip install confluent-kafka numpy obstore pyarrow`"
            ) from None


def kafka() -> Any:
    """Returns the module confluent_kafka."""
    return importlib.import_module("confluent_kafka")


def versions() -> str:
    """Returns the versions of the client."""
    module = kafka()
    return f"confluent-kafka {module.version()}, librdkafka {module.libversion()[0]}"


@contextlib.contextmanager
def topic(broker: Broker, partitions: int, message_bytes: int) -> Iterator[str]:
    """Makes a topic for messages of at most this size, and deletes it with its files."""
    admin_module = importlib.import_module("confluent_kafka.admin")
    admin = admin_module.AdminClient({"bootstrap.servers": broker.address, "log_level": _CRITICAL})
    name = f"compare-{secrets.token_hex(4)}"
    limits = {"max.message.bytes": str(message_bytes + _OVERHEAD_BYTES)}
    new = admin_module.NewTopic(name, partitions, 1, config=limits)
    admin.create_topics([new])[name].result(ANSWER_SECONDS)
    try:
        yield name
    finally:
        if not broker.ended():
            admin.delete_topics([name])[name].result(ANSWER_SECONDS)
            broker.until_removed(name)


def producer(broker: Broker, message_bytes: int, *, transactional: bool) -> Any:
    """Returns an idempotent producer that waits for all replicas."""
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.address,
        "log_level": _CRITICAL,
        "acks": "all",
        "enable.idempotence": True,
        "message.max.bytes": message_bytes + _OVERHEAD_BYTES,
        "compression.type": "none",
        "batch.size": max(_BATCH_BYTES, message_bytes),
        "queue.buffering.max.kbytes": 256 << 10,
    }
    if transactional:
        settings["transactional.id"] = f"compare-{secrets.token_hex(4)}"
    made = kafka().Producer(settings)
    if transactional:
        made.init_transactions(ANSWER_SECONDS)
    return made


def produce(client: Any, name: str, value: bytes, partition: int = 0) -> None:
    """Appends a message to the producer's queue, and waits for room there."""
    while True:
        try:
            client.produce(name, value=value, partition=partition)
        except BufferError:
            client.poll(0.01)
        else:
            client.poll(0)
            return


def flush(client: Any) -> None:
    """Waits until all messages are acknowledged."""
    left = client.flush(ANSWER_SECONDS)
    if left:
        raise FailedError(f"the broker has not acknowledged {left} messages in {ANSWER_SECONDS} s")


def consumer(broker: Broker, name: str, **more: Any) -> Any:
    """Returns a read_committed consumer at the begin of partition 0."""
    module = kafka()
    settings = {
        "bootstrap.servers": broker.address,
        "log_level": _CRITICAL,
        "group.id": "compare",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        **more,
    }
    made = module.Consumer(settings)
    made.assign([module.TopicPartition(name, 0, 0)])
    return made


def value_of(message: Any) -> bytes:
    """Returns the bytes of a message that a poll returned."""
    if message is None:
        raise FailedError(f"no message came from the broker in {ANSWER_SECONDS:g} s")
    if message.error() is not None:
        raise FailedError(f"the consumer failed: {message.error()}")
    value: bytes = message.value()
    return value
