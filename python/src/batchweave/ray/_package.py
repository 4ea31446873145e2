"""The import of Ray, on first use."""

from __future__ import annotations

import importlib
from typing import Any

from batchweave.inbox.errors import InboxExtraError


def package(name: str) -> Any:
    """Imports a module of Ray."""
    try:
        return importlib.import_module(name)
    except ImportError as reason:
        raise InboxExtraError(
            f"batchweave.ray needs {name}, which cannot be imported ({reason}): "
            'pip install "batchweave[ray]", on the driver and on all nodes'
        ) from None
