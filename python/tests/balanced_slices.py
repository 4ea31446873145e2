"""Slices of a balanced stream, made of documents by the definition of the stored form."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from fake_daemon import SLOT_BYTES, Peer
from test_whole import batch_of

from batchweave.batch import Batch

Arrays = dict[str, np.ndarray[Any, Any]]

SLICES, BINS = 8, 3
FIELDS = ("loss_mask", "segment_ids", "positions", "document_ids", "weight", "image")
VOCABULARY = 50


@dataclass(frozen=True)
class Document:
    """A document with a mask, a column and pictures of any number."""

    number: int
    tokens: Any
    mask: Any
    """1 at each token that is to be learned; 0 at the first."""
    weight: float
    image: Any
    """Items of two numbers."""


Bin = list[Document]


def documents(count: int, *, seed: int = 0, masked: bool = True) -> list[Document]:
    """Documents of 1 to 9 tokens; without `masked` all but their first tokens are learned."""
    chance = np.random.default_rng(seed)
    found = []
    for number in range(count):
        length = int(chance.integers(1, 10))
        mask = chance.integers(0, 2, length) if masked else np.ones(length)
        mask[0] = 0
        image = chance.random((int(chance.integers(0, 3)), 2))
        tokens = chance.integers(0, VOCABULARY, length)
        found.append(Document(number, tokens, mask, float(number), image))
    return found


def arranged(found: Iterable[Document], *, seed: int = 0, bins: int = BINS) -> list[list[Bin]]:
    """Puts documents into the bins of all slices by chance; the very last bin stays empty."""
    chance = np.random.default_rng(seed)
    slices: list[list[Bin]] = [[[] for _ in range(bins)] for _ in range(SLICES)]
    for document in found:
        place = int(chance.integers(SLICES * bins - 1))
        slices[place // bins][place % bins].append(document)
    return slices


def learned(slices: Iterable[Iterable[Bin]]) -> int:
    """The number of learned tokens of a global batch."""
    return sum(int(d.mask.sum()) for piece in slices for one in piece for d in one)


def slice_of(bins: Sequence[Bin], loss_tokens: int, fields: Iterable[str] = FIELDS) -> Arrays:
    """The stored arrays of one slice, read-only."""
    flat = [document for one in bins for document in one]

    def borders(lengths: Iterable[int], kind: str = "<i4") -> Any:
        return np.cumsum([0, *lengths]).astype(kind)

    def column(values: Iterable[Any], kind: str) -> Any:
        return np.concatenate([np.zeros(0), *values]).astype(kind)

    lengths = [len(document.tokens) for document in flat]
    arrays = {
        "tokens": column((d.tokens for d in flat), "<u2"),
        "documents": borders(lengths),
        "bins": borders(len(one) for one in bins),
        "costs": np.array([cost_of(one) for one in bins], "<f4"),
        "loss_tokens": np.array([loss_tokens], "<i8"),
    }
    numbers = [number for one in bins for number in range(1, len(one) + 1)]
    segments = (np.full(n, k) for n, k in zip(lengths, numbers, strict=True))
    optional = {
        "loss_mask": column((d.mask for d in flat), "u1"),
        "segment_ids": column(segments, "<i4"),
        "positions": column((np.arange(n) for n in lengths), "<i4"),
        "document_ids": column((np.full(len(d.tokens), d.number) for d in flat), "<i8"),
        "weight": column((np.full(len(d.tokens), d.weight) for d in flat), "<f4"),
        "image": np.concatenate([np.zeros((0, 2)), *(d.image for d in flat)]).astype("<f4"),
    }
    arrays |= {name: optional[name] for name in fields}
    if "image" in fields:
        arrays["image.offsets"] = borders((len(d.image) for d in flat), "<i8")
    for array in arrays.values():
        array.flags.writeable = False
    return arrays


def cost_of(one: Bin) -> float:
    return sum(len(d.tokens) + len(d.tokens) ** 2 / 8 for d in one)


def ranks(
    slices: Sequence[Sequence[Bin]], world: int, fields: Iterable[str] = FIELDS
) -> list[Batch]:
    """The batches of all ranks of a world at one step."""
    fields, total = tuple(fields), learned(slices)
    stored = [slice_of(bins, total, fields) for bins in slices]
    each = len(stored) // world
    found = []
    for rank in range(world):
        batch = batch_of(*stored[rank * each : (rank + 1) * each])
        for number, piece in enumerate(batch.slices):
            piece.index = rank * each + number
        found.append(batch)
    return found


_DTYPES = {"<u2": "U16", "<i4": "I32", "<f4": "F32", "<i8": "I64", "|u1": "U8"}


def serves(steps: Sequence[Sequence[Arrays]]) -> Callable[[Peer], bool]:
    """An `on_hello` that sends these slices and the end, each slice with a layout of its own."""

    def hello(peer: Peer) -> bool:
        peer.send_welcome(rows_per_slice=BINS)
        peer.send_segment()
        at = frame = 0
        for step, slices in enumerate(steps):
            refs = b""
            for number, arrays in enumerate(slices):
                begin = at
                listed: list[dict[str, Any]] = []
                for name, array in arrays.items():
                    listed.append({"name": name, "dtype": _DTYPES[array.dtype.str]})
                    listed[-1] |= {"shape": array.shape, "offset": at - begin}
                    peer.daemon.segment.map[at : at + array.nbytes] = array.tobytes()
                    at += -(-array.nbytes // 8) * 8
                peer.send_layout({"length": at - begin, "arrays": listed}, frame)
                place = (frame + 1, begin, at - begin)
                refs += struct.pack("<IIIIQQQ", number, 0, frame, 0, *place)
                peer.held[frame + 1] = (begin // SLOT_BYTES, step)
                frame, at = frame + 1, -(-at // SLOT_BYTES) * SLOT_BYTES
            peer.send(67, struct.pack("<QIIII", step, 0, len(slices), len(slices), 0) + refs)
        peer.send(68, struct.pack("<Q", len(steps)))
        return True

    return hello
