"""For Ray: a sink that writes a dataset into an inbox, and producer daemons as actors.

    dataset.write_datasink(batchweave.ray.Inbox("s3://bucket/inbox", "job-7"))

    with batchweave.ray.producers(4, "producer.toml") as running:
        running.wait()

Needs `pip install "batchweave[ray]"`. Importing this module does not import Ray; the first use
does. docs/engines.md is the page.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchweave.ray._daemon import ProducerFailedError as ProducerFailedError
    from batchweave.ray._producers import Producers as Producers
    from batchweave.ray._producers import producers as producers
    from batchweave.ray._sink import Inbox as Inbox

_PLACES = {
    "Inbox": "_sink",
    "ProducerFailedError": "_daemon",
    "Producers": "_producers",
    "producers": "_producers",
}

__all__ = ["Inbox", "ProducerFailedError", "Producers", "producers"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
