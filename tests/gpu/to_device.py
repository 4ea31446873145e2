"""`batchweave.torch.to_device` on a real GPU: run by hand where there is one.

    PYTHONPATH=python/src python tests/gpu/to_device.py

Each copy is held up behind a long kernel while the batch is dropped and the reader goes on, so a
frame that is given back before its copy has ended shows as another step's stamp. Then it measures
how quickly frames reach the device, registered and through pageable memory.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import batchweave
from batchweave import _device
from batchweave.bench.handover import MIB, feeding
from batchweave.torch import in_flight, to_device

STEPS = 200


def held_until_copied(torch: Any, path: Path) -> None:
    """Every stamp arrives as it was when its batch was handed out."""
    side, wanted, given = torch.cuda.Stream(), [], []
    with batchweave.connect(path, credits=4, timeout=60) as reader:
        for _ in range(STEPS):
            batch = next(reader)
            wanted.append(int(batch.slices[0]["stamp"][0]))
            with torch.cuda.stream(side):
                torch.cuda._sleep(2_000_000)
            given.append(to_device(batch, side)["stamp"])
            del batch
        side.synchronize()
        assert in_flight() == 0
    found = [int(stamp[0]) for stamp in given]
    wrong = [step for step in range(STEPS) if found[step] != wanted[step]]
    if wrong:
        raise SystemExit(f"steps {wrong[:8]} show another step's frame")


def gigabytes_a_second(torch: Any, path: Path, slice_bytes: int) -> float:
    """Frames to the device, copies overlapping."""
    with batchweave.connect(path, credits=4, timeout=60) as reader:
        to_device(next(reader))
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(50):
            to_device(next(reader))
        torch.cuda.synchronize()
    return 50 * slice_bytes / (time.perf_counter() - began) / 1e9


def main() -> int:
    """Checks, then measures; one line of JSON."""
    torch: Any = importlib.import_module("torch")
    if not torch.cuda.is_available():
        print("no CUDA device here: nothing was checked", file=sys.stderr)
        return 2
    size = 16 * MIB
    with feeding(1, size, 4, 0) as path:
        held_until_copied(torch, path)
        rate = gigabytes_a_second(torch, path, size)
    registered = [second.registered for second in _device._second.values()]
    report = {
        "device": torch.cuda.get_device_name(),
        "steps_checked": STEPS,
        "gigabytes_a_second": round(rate, 2),
        "registered": not _device._told,
        "segments": len(registered),
    }
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
