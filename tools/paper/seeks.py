"""Times of cold reads: a fresh reader and its first batch, at random steps.

python -m paper.seeks {batchweave,kafka} --place PLACE --steps 200 --count 20 [--topic T]
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import time
from typing import Any

from paper import kafka_client
from paper.kafka_role import SLICES


def batchweave(place: str, step: int) -> None:
    """Reads one step by a new reader."""
    client: Any = importlib.import_module("batchweave")
    with client.connect(place, dp_rank=0, dp_size=1, start=step, limit=1) as reader:
        assert sum(piece["blob"].nbytes for piece in next(reader).slices)


def kafka(place: str, topic: str, step: int) -> None:
    """Reads one message of each partition by a new consumer."""
    # Each transaction takes an offset for its message and one for its marker.
    reader = kafka_client.consumer(place, topic, dict.fromkeys(range(SLICES), 2 * step))
    found: set[int] = set()
    while len(found) < SLICES:
        message = reader.poll(kafka_client.ANSWER_SECONDS)
        assert kafka_client.value_of(message)
        found.add(message.partition())
    reader.close()


def main() -> None:
    """Prints the seconds of each read."""
    parser = argparse.ArgumentParser(prog="python -m paper.seeks")
    parser.add_argument("way", choices=("batchweave", "kafka"))
    parser.add_argument("--place", required=True)
    parser.add_argument("--topic", default="")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    args = parser.parse_args()
    chance, times = random.Random(3), []
    for _ in range(args.count):
        step, began = chance.randrange(args.steps), time.perf_counter()
        batchweave(args.place, step) if args.way == "batchweave" else kafka(
            args.place, args.topic, step
        )
        times.append(time.perf_counter() - began)
    print(json.dumps({"times": times}))


if __name__ == "__main__":
    main()
