"""What a folder holds of a stream, read without any program: for the tests of upgrades."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def _entries(stream: Path) -> Iterator[dict[str, Any]]:
    for path in sorted((stream / "log").glob("*.json")):
        yield from json.loads(path.read_text())["entries"]


def batches(stream: Path) -> dict[str, list[str | None]]:
    """Return the digests of all committed batches by producer, in the order of its numbers."""
    found: dict[str, list[str | None]] = {}
    for entry in _entries(stream):
        if entry["kind"] == "batch":
            digests = found.setdefault(entry["producer"], [])
            assert entry["first_seq"] == len(digests), entry
            digests += [one.get("digest") for one in entry["tgbs"]]
    return found


def committed(stream: Path) -> int:
    """Return the number of committed batches."""
    return sum(len(one) for one in batches(stream).values())


def key_paths(stream: Path) -> list[str]:
    """Return the paths of all keys and the formats in the JSON objects of a stream, per kind."""
    found: set[str] = set()
    for path in stream.rglob("*.json"):
        name = path.relative_to(stream)
        if name.parts[0] == "tokenizers" or name.parts[0].startswith("."):
            continue
        # Of jobs, the second last folder is the kind; of the others the first.
        kind = name.parts[-2] if name.parts[0] == "jobs" else name.parts[0]
        whole = json.loads(path.read_text())
        found.add(f"{kind}: format {whole['format']}")
        for entry in whole.pop("entries", []) if kind == "log" else []:
            found.update(f"{entry['kind']}: {one}" for one in _paths(entry))
        found.update(f"{kind}: {one}" for one in _paths(whole))
    return sorted(found)


def _paths(value: Any, above: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield f"{above}{key}"
            yield from _paths(below, f"{above}{key}.")
    elif isinstance(value, list):
        for below in value:
            yield from _paths(below, above)
