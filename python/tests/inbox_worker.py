"""A process that writes rows 0 to N - 1 by `resume`; tests kill it at any instant.

    inbox_worker.py LOCATION N SEED

Prints `durable N` whenever more rows are durable, and `done` at the end. A fenced instance starts
again in the same process, as a supervisor would start it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any

from batchweave import inbox


def row(number: int) -> dict[str, Any]:
    """Returns the row of a number: the same one in every process."""
    return {"text": f"row {number}", "tokens": list(range(number % 7)), "number": number}


def main(location: str, count: int, seed: int) -> None:
    """Writes until all rows are durable."""
    chance, fenced = random.Random(seed), 0
    while True:
        writer = inbox.open(location, "w", linger=0.01)
        print(f"durable {writer.durable_rows}", flush=True)

        def rows(state: Any, writer: inbox.Writer = writer) -> Iterator[tuple[Any, Any]]:
            for number in range((state or {"next": 0})["next"], count):
                yield row(number), {"next": number + 1} if chance.random() < 0.5 else None
                if chance.random() < 0.1:
                    writer.flush()
                print(f"durable {writer.durable_rows}", flush=True)

        try:
            writer.resume(rows)
            print(f"durable {writer.durable_rows}", flush=True)
            writer.finish()
        except inbox.WriterFencedError:
            fenced += 1
            assert fenced < 1000
            continue
        except inbox.WriterEndedError:
            assert writer.durable_rows == count
        break
    print(f"done {fenced}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
