"""A training loop without the training, which runs in a pod: the loop of README.md.

At most a hundred steps per second. It prints a line per 50 steps, and one for each wait above half
a second: the time, the step, and the longest wait since the last line. SIGTERM ends it at a
checkpoint.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

import batchweave

stopping = False


def stop(*_: Any) -> None:
    """Remembers that the pod is to end."""
    global stopping
    stopping = True


def main() -> None:
    """Read, and check that each step follows the one before."""
    signal.signal(signal.SIGTERM, stop)
    received, longest = 0, 0.0
    # A rank's world comes from the environment that the manifest gives.
    with batchweave.connect(job="training", resume="latest", connect_timeout=120) as reader:
        expected = reader.next_step
        print(f"begins at step {expected}", flush=True)
        before = time.time()
        for batch in reader:
            now = time.time()
            longest = max(longest, now - before)
            if batch.step != expected:
                sys.exit(f"step {batch.step} in place of {expected}")
            received, expected = received + 1, expected + 1
            if received % 50 == 0 or longest > 0.5:
                print(f"{now:.3f} {batch.step} {longest:.3f}", flush=True)
                longest = 0.0
            if received % 200 == 0 or stopping:
                reader.checkpoint(batch.state_dict())
            if stopping:
                print("stops at a checkpoint", flush=True)
                sys.exit(143)
            time.sleep(0.01)
            before = time.time()
    print(f"received {received} steps", flush=True)


main()
