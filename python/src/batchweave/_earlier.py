"""Memory of earlier daemons that arrays of this rank still show.

A daemon that has started again keeps its arena small until no rank maps the memory of the daemon
before: both together could exceed a limit. A rank tells in the first message of a session how much
it maps; since a loop holds its last batch while it waits for the next, that is rarely nothing. So
the rank begins another session once the memory is free.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Iterable

Mapping = weakref.ref[mmap.mmap]


class Earlier:
    """The mappings of sessions that are over, by the run of their daemon."""

    def __init__(self) -> None:
        self._mappings: list[tuple[str, Mapping]] = []
        self._told = False

    def add(self, instance: str, mappings: Iterable[Mapping]) -> None:
        """Adds the mappings of a session."""
        self._mappings += [(instance, mapping) for mapping in mappings]

    def tell(self, current: str | None) -> int:
        """Returns the bytes in use for a new session, without those of the run `current`."""
        self._mappings = [old for old in self._mappings if old[1]() is not None]
        found = [mapping() for instance, mapping in self._mappings if instance != current]
        told = sum(len(mapping) for mapping in found if mapping is not None)
        self._told = told > 0
        return told

    def are_free(self, current: str) -> bool:
        """Returns whether a daemon was told of memory that is free by now."""
        return self._told and all(
            instance == current or mapping() is None for instance, mapping in self._mappings
        )
