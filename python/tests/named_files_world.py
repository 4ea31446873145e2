"""Images that documents name, settings of a producer that reads them, and what ranks receive."""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path

import numpy as np
import obstore
from inbox_world import DevS3
from obstore.store import S3Store
from PIL import Image

import batchweave

CONFIG = """
store.url = "file://{root}/stream"
producer.name = "p0"
tokenizer.kind = "bytes"
admin.listen = "off"
stream = {{ slices = 2, rows_per_slice = 3, seq_len = 1, producers = ["p0"] }}
packing.mode = "opaque"
packing.last_batch = "pad"
packing.arrays = [
    {{ name = "raw", from = "{field}", dtype = "U8", path = true }},
    {{ name = "number", dtype = "I64" }},
    {{ name = "size", from = "{field}", dtype = "I32", shape = [2], path = true, image = "size" }},
]
"""
Sample = tuple[bytes, int, tuple[int, int]]


def images(count: int, seed: int) -> list[tuple[bytes, tuple[int, int]]]:
    """Returns encoded images, with height and width."""
    chance, made = np.random.default_rng(seed), []
    for _ in range(count):
        height, width = (int(side) for side in chance.integers(3, 40, 2))
        pixels, file = chance.integers(0, 256, (height, width, 3), np.uint8), io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        made.append((file.getvalue(), (height, width)))
    return made


def received(folder: Path) -> list[Sample]:
    found = []
    for batch in batchweave.open(f"file://{folder}/stream"):
        for piece in batch.slices:
            names = ("raw", "number", "size")
            ends = [itertools.pairwise(piece[f"{name}.offsets"].tolist()) for name in names]
            for raw, number, size in zip(*ends, strict=True):
                height, width = piece["size"][size[0]]
                found.append(
                    (
                        piece["raw"][raw[0] : raw[1]].tobytes(),
                        int(piece["number"][number[0]]),
                        (int(height), int(width)),
                    )
                )
    return found


def configure(folder: Path, field: str, more: str) -> None:
    text = CONFIG.format(root=folder, field=field) + more
    (folder / "producer.toml").write_text(text)


def write(folder: Path, given: list[tuple[bytes, tuple[int, int]]]) -> list[Sample]:
    """Writes images below `folder`, and returns the samples that their numbers make."""
    (folder / "images").mkdir(parents=True)
    for number, (data, _) in enumerate(given):
        (folder / "images" / f"{number}.png").write_bytes(data)
    return [(data, number, size) for number, (data, size) in enumerate(given)]


def lines(*paths: object) -> str:
    made = [{"file_name": path, "number": number} for number, path in enumerate(paths)]
    return "".join(json.dumps(line) + "\n" for line in made)


def stored(folder: Path) -> int:
    """Returns the number of log records."""
    return sum(1 for _ in (folder / "stream" / "log").glob("*"))


class Objects:
    """A server with input, and the settings of a producer that reads it."""

    def __init__(self, server: DevS3) -> None:
        self.server = server
        self.store = S3Store(
            "batchweave",
            endpoint=server.ready["endpoint"],
            access_key_id=server.ready["access_key"],
            secret_access_key=server.ready["secret_key"],
            region=server.ready["region"],
            client_options={"allow_http": True},
        )

    def put(self, key: str, data: bytes) -> None:
        obstore.put(self.store, key, data)


def put(objects: Objects, folder: str, given: list[tuple[bytes, tuple[int, int]]]) -> list[Sample]:
    for number, (data, _) in enumerate(given):
        objects.put(f"{folder}/{number}.png", data)
    return [(data, number, size) for number, (data, size) in enumerate(given)]
