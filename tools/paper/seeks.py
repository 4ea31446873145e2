"""Times of cold reads at random steps: a fresh reader, its first batch, and the next place.

    python -m paper.seeks {batchweave,kafka} --place PLACE --steps 200 --count 20 [--topic T]

Prints the seconds of each as JSON.
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


def batchweave(place: str, step: int) -> int:
    """Reads one step by a new reader, and returns its bytes."""
    client: Any = importlib.import_module("batchweave")
    with client.connect(place, dp_rank=0, dp_size=1, start=step, limit=1) as reader:
        batch = next(reader)
        return sum(int(piece["blob"].nbytes) for piece in batch.slices)


def kafka(place: str, topic: str, offsets: dict[int, int]) -> int:
    """Reads one message of each partition by a new consumer, and returns their bytes."""
    found: dict[int, int] = {}
    reader = kafka_client.consumer(place, topic, offsets)
    while len(found) < len(offsets):
        message = reader.poll(kafka_client.ANSWER_SECONDS)
        value = kafka_client.value_of(message)
        found.setdefault(message.partition(), len(value))
    reader.close()
    return sum(found.values())


def main() -> None:
    """Measures one system."""
    parser = argparse.ArgumentParser(prog="python -m paper.seeks")
    parser.add_argument("way", choices=("batchweave", "kafka"))
    parser.add_argument("--place", required=True)
    parser.add_argument("--topic", default="")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    args = parser.parse_args()
    chance, times = random.Random(3), []
    for _ in range(args.count):
        step = chance.randrange(args.steps)
        began = time.perf_counter()
        if args.way == "batchweave":
            batchweave(args.place, step)
        else:
            # Each transaction takes an offset for its messages and one for its marker.
            kafka(args.place, args.topic, dict.fromkeys(range(SLICES), 2 * step))
        times.append(time.perf_counter() - began)
    print(json.dumps({"times": times}))


if __name__ == "__main__":
    main()
