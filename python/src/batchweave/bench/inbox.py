"""Measures one writer of an inbox: rows of 1 kB per second, and the time until a row is durable.

    python -m batchweave.bench.inbox file:///data/inbox

Writes about 200 MB into new writers of that inbox, and leaves them there.
"""

from __future__ import annotations

import random
import secrets
import statistics
import sys
import time

from batchweave import inbox

ROWS, ROW_BYTES = 200_000, 1000
SAMPLES = 50
LINGER = 0.2


def main(location: str, rows: int = ROWS, samples: int = SAMPLES) -> None:
    """Prints three figures."""
    text = random.Random(1).randbytes(4 * ROW_BYTES).hex()
    texts = [text[at : at + ROW_BYTES] for at in range(ROW_BYTES)]
    name = f"bench-{secrets.token_hex(4)}"
    with inbox.open(location, name) as writer:
        began = time.perf_counter()
        for number in range(rows):
            writer.put({"text": texts[number % ROW_BYTES]})
        writer.flush()
        took = time.perf_counter() - began
    print(f"{rows / took:,.0f} rows of {ROW_BYTES:,} bytes per second")
    waits = []
    with inbox.open(location, f"{name}-linger", linger=LINGER) as writer:
        for number in range(samples):
            began = time.perf_counter()
            writer.put({"text": texts[number % ROW_BYTES]})
            while writer.durable_rows <= number:
                time.sleep(0.0005)
            waits.append(time.perf_counter() - began)
    print(f"{_ms(waits)} from put to durable, with linger={LINGER}")
    waits = []
    with inbox.open(location, f"{name}-flush") as writer:
        for number in range(samples):
            began = time.perf_counter()
            writer.put({"text": texts[number % ROW_BYTES]})
            writer.flush()
            waits.append(time.perf_counter() - began)
    print(f"{_ms(waits)} for put and flush")


def _ms(waits: list[float]) -> str:
    return f"median {statistics.median(waits) * 1e3:.1f} ms, maximum {max(waits) * 1e3:.1f} ms"


if __name__ == "__main__":
    main(sys.argv[1])
