"""`stop()` through a DataLoader of real PyTorch; `make test-frameworks` runs this, see conftest."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import eventually
from fake_daemon import FakeDaemon

import batchweave
from batchweave.errors import Stopped

data: Any = importlib.import_module("torch.utils.data")


def take(loader: Any, firsts: list[int]) -> None:
    for item in loader:
        firsts.append(int(item["input_ids"][0, 0]))


@pytest.mark.parametrize("job", [None, "j"])
def test_a_loader_that_waits_is_stopped_and_iterated_again(path: Path, job: str | None) -> None:
    with FakeDaemon(path, end=5) as daemon:
        daemon.ready = 2
        dataset = batchweave.torch.Dataset(path, job=job, timeout=60)
        loader = data.DataLoader(dataset, batch_size=None)
        firsts: list[int] = []

        def stop() -> None:
            eventually(lambda: bool(daemon.peers) and bool(daemon.peers[0].progress))
            dataset.stop()

        thread = threading.Thread(target=stop)
        thread.start()
        with pytest.raises(Stopped):
            take(loader, firsts)
        thread.join(30)
        daemon.ready = None
        daemon.peers[0].push()
        take(loader, firsts)
        dataset.close()
        with batchweave.connect(path) as reader:
            assert firsts == [int(batch.inputs[0, 0]) for batch in reader]
