"""Processes of Kafka's side.

    python -m paper.kafka_role ingest --address A --data T --cursor T --bytes N --batches N ...
    python -m paper.kafka_role rows --address A --data T --cursor T

Both make strict batches: one transaction per batch, slice r to partition r, and the number of the
batch, the producer's cursor, in the same transaction. `ingest` says `ready`, begins at a line on
standard input, and prints its figures; `rows` goes on from its cursor.
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

SLICES, _ID_BYTES = 8, 8
"""Slices of a batch of `rows`, of one sample each, and the bytes of its number."""
_WARM = 3
"""Batches before the measured ones."""
Item = tuple[int, Sequence[Mapping[str, Any]], Any]


def ingest(args: argparse.Namespace) -> None:
    """Commits batches of random bytes that are in memory already; `--pointers`: of their keys."""
    size = max(1, args.bytes // args.slices)
    pool = random.Random(args.index).randbytes(size * args.slices)
    slices = [pool[at : at + size] for at in range(0, len(pool), size)][: args.slices]
    client = kafka_client.producer(args.address, f"paper-{args.index}", args.message)
    store: Any = None
    if args.pointers:
        objects: Any = importlib.import_module("obstore.store")
        http = {"endpoint": os.environ["AWS_ENDPOINT_URL"], "client_options": {"allow_http": True}}
        store = objects.S3Store("batchweave", **http)

    def commit(number: int) -> float:
        at = time.perf_counter()
        client.begin_transaction()
        if store is not None:
            store.put(f"{args.index}/{number}", b"".join(slices))
            sizes = [len(each) for each in slices]
            produce(client, args.data, json.dumps({"key": number, "sizes": sizes}).encode())
        else:
            for part, value in enumerate(slices * args.group):
                produce(client, args.data, value, part % args.partitions)
        produce(client, args.cursor, str(number).encode())
        client.commit_transaction(ANSWER_SECONDS)
        return time.perf_counter() - at

    failure: Any = importlib.import_module("confluent_kafka").KafkaException
    ready = False
    try:
        for number in range(-_WARM, 0):
            commit(number)
        ready = print("ready", flush=True) is None
        sys.stdin.readline()
        began, cpu, times = time.perf_counter(), time.process_time(), [commit(0)]
        while len(times) < args.batches and time.perf_counter() - began < args.seconds:
            times.append(commit(len(times)))
    except failure as why:
        if not ready:
            print("ready", flush=True)
            sys.stdin.readline()
        print(json.dumps({"failed": str(why)}), flush=True)
        os._exit(0)
    found = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    print(
        json.dumps({**found, "bytes": size * args.slices * args.group * len(times), "times": times})
    )


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


def batches(args: argparse.Namespace, last: Mapping[str, Any] | None) -> Iterator[Item]:
    """Yields the steps of a trainer: one message of each partition, from the saved offsets on."""
    saved = last["data"] if last else {str(part): 0 for part in range(SLICES)}
    offsets = {int(part): int(at) for part, at in saved.items()}
    place = str(args.place)
    readers = {
        part: kafka_client.consumer(place, args.topic, {part: offsets[part]}) for part in offsets
    }
    for step in range(last["step"] + 1 if last else 0, args.steps):
        pieces = []
        for part, reader in readers.items():
            message = reader.poll(ANSWER_SECONDS)
            value = kafka_client.value_of(message)
            number = np.array([int.from_bytes(value[:_ID_BYTES], "little")])
            pieces.append({"id": number, "blob": np.frombuffer(value, np.uint8)})
            offsets[part] = message.offset() + 1
        yield step, pieces, {str(part): at for part, at in offsets.items()}


def main() -> None:
    """Runs one process."""
    parser = argparse.ArgumentParser(prog="python -m paper.kafka_role")
    parser.add_argument("role", choices=("ingest", "rows"))
    for name in ("address", "data", "cursor"):
        parser.add_argument(f"--{name}", required=True)
    numbers = {
        "index": 0,
        "bytes": 0,
        "slices": 64,
        "batches": 1,
        "partitions": 1,
        "group": 1,
        "seconds": 60,
    }
    for name, value in {**numbers, "message": kafka_client.DEFAULT_MESSAGE}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--pointers", action="store_true")
    parser.add_argument("--pause", type=float, default=0.005)
    args = parser.parse_args()
    ingest(args) if args.role == "ingest" else rows(args)


if __name__ == "__main__":
    main()
