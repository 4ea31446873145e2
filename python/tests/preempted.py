"""A rank that is preempted while it waits for data: `preempted.py SOCKET WAY`, for test_interrupts.

Ways: "main" reads in the main thread, "thread" in another one, "dataset" by `torch.Dataset` (over a
stand-in for torch where there is none). The handler of SIGTERM marks the last step, closes and
exits with code 3. Prints each step.
"""

from __future__ import annotations

import importlib.util
import signal
import sys
import threading
from types import ModuleType
from typing import Any

import batchweave

STEPS, CODE = 3, 3
last: dict[str, str] = {}


def dataset(path: str) -> Any:
    """A dataset whose items are the batches."""
    if importlib.util.find_spec("torch") is None:
        import fake_torch

        data: Any = ModuleType("torch.utils.data")
        data.IterableDataset, data.get_worker_info = object, lambda: None
        sys.modules.update({**fake_torch.modules(), data.__name__: data})
    made = batchweave.torch.Dataset(path, job="j", dtype=None)
    made.__dict__["_item"] = lambda batch: batch
    return made


def read(source: Any) -> None:
    """Reads until the source is closed."""
    try:
        for batch in source:
            last.update(batch.state_dict())
            print(batch.step, flush=True)
            del batch
    except batchweave.errors.ClosedError:
        if threading.current_thread() is threading.main_thread():
            raise


def main() -> None:
    """Waits for a step that never comes."""
    path, way = sys.argv[1:3]
    source = dataset(path) if way == "dataset" else batchweave.connect(path, job="j", timeout=60)

    def preempted(*_: object) -> None:
        source.checkpoint(last)
        source.close()
        sys.exit(CODE)

    signal.signal(signal.SIGTERM, preempted)
    if way == "thread":
        reading = threading.Thread(target=read, args=(source,))
        reading.start()
        while reading.is_alive():
            reading.join(0.1)
    else:
        read(source)


if __name__ == "__main__":
    main()
