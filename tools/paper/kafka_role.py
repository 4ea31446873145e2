"""Processes of Kafka's side.

    python -m paper.kafka_role ingest --address A --data T --cursor T --bytes N --batches N ...
    python -m paper.kafka_role rows --address A --data T --cursor T

Both make strict batches: one transaction per batch, slice r to partition r, and the number of the
batch, the producer's cursor, in the same transaction. `ingest` says `ready`, begins at a line on
standard input, and prints its figures; `rows` goes on from its cursor until it is killed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from paper import kafka_client
from paper.kafka_client import ANSWER_SECONDS, produce

_ID_BYTES = 8
_WARM = 3
"""Batches before the measured ones."""
SLICES = 8
"""Slices of a batch of `rows`, of one sample each."""


def put(store: Any, key: str, slices: Sequence[bytes]) -> bytes:
    """Stores a batch as one object, and returns the pointer to it."""
    store.put(key, b"".join(slices))
    return json.dumps({"key": key, "sizes": [len(each) for each in slices]}).encode()


def ingest(args: argparse.Namespace) -> None:
    """Commits batches of random bytes that are in memory already."""
    size = max(1, args.bytes // args.slices)
    pool = random.Random(args.index).randbytes(size * args.slices)
    slices = [pool[at : at + size] for at in range(0, len(pool), size)][: args.slices]
    client = kafka_client.producer(args.address, f"paper-{args.index}", args.message)
    store: Any = None
    if args.pointers:
        objects: Any = importlib.import_module("obstore.store")
        store = objects.S3Store(
            "batchweave",
            endpoint=os.environ["AWS_ENDPOINT_URL"],
            client_options={"allow_http": True},
        )
    failure: Any = importlib.import_module("confluent_kafka").KafkaException

    def commit(number: int) -> float:
        at = time.perf_counter()
        client.begin_transaction()
        if store is not None:
            produce(client, args.data, put(store, f"{args.index}/{number}", slices))
        else:
            for part, value in enumerate(slices):
                produce(client, args.data, value, part % args.partitions)
        produce(client, args.cursor, str(number).encode())
        client.commit_transaction(ANSWER_SECONDS)
        return time.perf_counter() - at

    try:
        for number in range(-_WARM, 0):
            commit(number)
    except failure as why:
        print("ready", json.dumps({"failed": str(why)}), sep="\n", flush=True)
        os._exit(0)
    print("ready", flush=True)
    try:
        sys.stdin.readline()
        began, cpu = time.perf_counter(), time.process_time()
        times = [commit(number) for number in range(args.batches)]
    except failure as why:
        print(json.dumps({"failed": str(why)}), flush=True)
        os._exit(0)
    found = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    print(json.dumps({**found, "bytes": size * args.slices * args.batches, "times": times}))


def rows(args: argparse.Namespace) -> None:
    """Commits batches of numbers, from the last committed one on."""
    client = kafka_client.producer(args.address, "paper-rows", args.message)
    number = kafka_client.last_committed(args.address, args.cursor) + 1
    filler = bytes(max(0, args.bytes // SLICES - _ID_BYTES))
    while number < args.batches:
        client.begin_transaction()
        for part in range(SLICES):
            value = (number * SLICES + part).to_bytes(_ID_BYTES, "little") + filler
            produce(client, args.data, value, part)
        produce(client, args.cursor, str(number).encode())
        client.commit_transaction(ANSWER_SECONDS)
        print(json.dumps({"step": number, "wall": time.time()}), flush=True)
        number += 1
        time.sleep(args.pause)


Item = tuple[int, Sequence[Mapping[str, Any]], Any]


def batches(args: argparse.Namespace, last: Mapping[str, Any] | None) -> Iterator[Item]:
    """Yields the steps of a trainer: one message of each partition, from the saved offsets on."""
    saved = last["data"] if last else {str(part): 0 for part in range(SLICES)}
    offsets = {int(part): int(at) for part, at in saved.items()}
    readers = [
        kafka_client.consumer(str(args.place), args.topic, {part: at})
        for part, at in offsets.items()
    ]
    step = last["step"] + 1 if last else 0
    while step < args.steps:
        pieces = []
        for part, reader in enumerate(readers):
            message = reader.poll(ANSWER_SECONDS)
            value = kafka_client.value_of(message)
            number = np.array([int.from_bytes(value[:_ID_BYTES], "little")])
            pieces.append({"id": number, "blob": np.frombuffer(value, np.uint8)})
            offsets[part] = message.offset() + 1
        yield step, pieces, {str(part): at for part, at in offsets.items()}
        step += 1


def main() -> None:
    """Runs one process."""
    parser = argparse.ArgumentParser(prog="python -m paper.kafka_role")
    add = parser.add_argument
    add("role", choices=("ingest", "rows"))
    add("--address", required=True)
    add("--data", required=True)
    add("--cursor", required=True)
    add("--index", type=int, default=0)
    add("--bytes", type=int, default=0)
    add("--slices", type=int, default=64)
    add("--batches", type=int, default=1)
    add("--partitions", type=int, default=1)
    add("--message", type=int, default=kafka_client.DEFAULT_MESSAGE)
    add("--pointers", action="store_true")
    add("--pause", type=float, default=0.005)
    args = parser.parse_args()
    ingest(args) if args.role == "ingest" else rows(args)


if __name__ == "__main__":
    main()
