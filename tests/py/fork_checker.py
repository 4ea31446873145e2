"""Reads a stream in a folder by the pages alone: its log, the order of its steps, and the documents
of each step by their provenance. Nothing of BatchWeave is used."""

from __future__ import annotations

import json
import struct
from collections import Counter, deque
from pathlib import Path
from typing import Any, NamedTuple

HEADER = struct.Struct("<3sBIQ32sII")


class Tgb(NamedTuple):
    """A batch of the log."""

    producer: str
    seq: int
    digest: str
    provenance: str


class Piece(NamedTuple):
    """Neighbouring tokens of a document."""

    file: int
    unit: int
    skip: int
    items: int


def records(root: Path) -> list[dict[str, Any]]:
    """Return the records of the log."""
    return [json.loads(path.read_text()) for path in sorted((root / "log").glob("*.json"))]


def first_step(root: Path) -> int:
    """Return the first step of a stream."""
    parent = json.loads((root / "stream.json").read_text()).get("parent")
    return int(parent["step"]) if parent else 0


def steps(root: Path) -> list[Tgb]:
    """Return the batches in the order of their steps, from the stream's first step on."""
    stream = json.loads((root / "stream.json").read_text())
    lanes = stream["producers"] if stream["order"] == "lanes" else []
    fork = root / "fork.json"
    turn = json.loads(fork.read_text())["turn"] if fork.exists() else 0
    waiting: dict[str, deque[Tgb]] = {lane: deque() for lane in lanes}
    finished: set[str] = set()
    placed: list[Tgb] = []
    for entry in (entry for record in records(root) for entry in record["entries"]):
        if entry["kind"] == "batch":
            for n, tgb in enumerate(entry["tgbs"]):
                seq = entry["first_seq"] + n
                made = Tgb(entry["producer"], seq, tgb["digest"], tgb["provenance"])
                waiting.get(entry["producer"], placed).append(made)
        elif entry["kind"] == "finished":
            finished.add(entry["producer"])
        while lanes and any(waiting.values()):
            lane = lanes[turn]
            if waiting[lane]:
                placed.append(waiting[lane].popleft())
            elif lane not in finished:
                break
            turn = (turn + 1) % len(lanes)
    return placed


class _Numbers:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def next(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value


def pieces(root: Path, tgb: Tgb) -> list[Piece]:
    """Return the pieces of a batch."""
    data = (root / tgb.provenance).read_bytes()
    magic, version, count, first, *_ = HEADER.unpack_from(data)
    assert (magic, version) == (b"BWS", 1)
    at = HEADER.size
    for _ in range(tgb.seq - first):
        at += 8 + struct.unpack_from("<I", data, at)[0]
    assert tgb.seq < first + count
    length = struct.unpack_from("<I", data, at)[0]
    numbers = _Numbers(data[at + 9 : at + 8 + length])
    found: list[Piece] = []
    file = unit = 0
    while numbers.at < len(numbers.data):
        head = numbers.next()
        if head & 2:
            _, file, unit = numbers.next(), numbers.next(), numbers.next()
        else:
            difference = head >> 3
            unit += difference // 2 if difference % 2 == 0 else -(difference + 1) // 2
        skip = numbers.next() if head & 1 else 0
        found.append(Piece(file, unit, skip, numbers.next()))
    return found


def documents(root: Path, tgbs: list[Tgb]) -> Counter[tuple[int, int]]:
    """Return the tokens of each document in these batches. One token of a piece that goes on is in
    the piece before it, too."""
    all: Counter[tuple[int, int]] = Counter()
    for tgb in tgbs:
        for piece in pieces(root, tgb):
            all[piece.file, piece.unit] += piece.items - (piece.skip > 0)
    return all
