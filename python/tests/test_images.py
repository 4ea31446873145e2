"""Images that a producer decodes: ranks receive the pixels that PIL makes of them."""

from __future__ import annotations

import base64
import io
import itertools
import json
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
import webdataset  # type: ignore[import-untyped]
from PIL import Image, ImageOps
from real_daemons import MARKS, Daemons

import batchweave

# The package leaves its files to the garbage collector.
pytestmark = [*MARKS, pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")]

IMAGES = int(os.environ.get("BATCHWEAVE_IMAGES", "160"))
"""Number of images; the figures in docs/producing.md are those of 2,000."""

Pixels = npt.NDArray[np.uint8]

CONFIG = """
store.url = "file://{root}/stream"
producer.name = "p0"
tokenizer.kind = "bytes"
admin.listen = "off"
stream = {{ slices = 2, rows_per_slice = 4, seq_len = 1, producers = ["p0"] }}
packing.mode = "opaque"
packing.last_batch = "pad"
source.paths = ["{root}/{paths}"]
"""
ARRAYS = """packing.arrays = [
    { name = "pixels", from = "FIELD", dtype = "U8", shape = [3], image = "pixels"MORE },
    { name = "size", from = "FIELD", dtype = "I32", shape = [2], image = "size"MORE },
    { name = "small", from = "FIELD", dtype = "U8", shape = [3], SMALLMORE },
    { name = "crop", from = "FIELD", dtype = "U8", shape = [64, 48, 3], image = "crop"MORE },
    { name = "pad", from = "FIELD", dtype = "U8", shape = [56, 72, 3], image = "pad"MORE },
    { name = "exact", from = "FIELD", dtype = "U8", shape = [40, 40, 1], image = "exact"MORE },
]
"""
NAMES = ("pixels", "size", "small", "crop", "pad", "exact")


def configure(folder: Path, paths: str, field: str, more: str = "") -> None:
    small = 'image = "pixels", shortest = 48'
    arrays = ARRAYS.replace("FIELD", field).replace("SMALL", small).replace("MORE", more)
    text = CONFIG.format(root=folder, paths=paths) + arrays
    (folder / "producer.toml").write_text(text)


def picture(chance: np.random.Generator) -> Image.Image:
    """Returns a drawn picture with slopes, edges and noise."""
    height, width = (int(side) for side in chance.integers(17, 240, 2))
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    planes = []
    for _ in range(3):
        a, b, c = chance.uniform(-0.1, 0.1, 3)
        planes.append(128 + 90 * np.sin(a * x + b * y + c * 9) + chance.normal(0, 6, x.shape))
    pixels = np.clip(np.stack(planes, 2), 0, 255).astype(np.uint8)
    top, left = int(chance.integers(0, height)), int(chance.integers(0, width))
    pixels[top : top + 20, left : left + 20] = chance.integers(0, 256, 3)
    return Image.fromarray(pixels)


def files(seed: int) -> list[tuple[str, bytes]]:
    """Returns images as files, with their extensions."""
    chance, made = np.random.default_rng(seed), []
    for number in range(IMAGES):
        image, file = picture(chance), io.BytesIO()
        match number % 8:
            case 0:
                image.save(file, "PNG")
            case 1:
                image.save(file, "WEBP", lossless=True)
            case 2:
                image.convert("L").save(file, "JPEG", quality=int(chance.integers(40, 100)))
            case 3:
                exif = Image.Exif()
                exif[0x0112] = int(chance.integers(1, 9))
                image.save(file, "JPEG", quality=90, exif=exif)
            case kind:
                quality = int(chance.integers(40, 100))
                subsampling, progressive = int(chance.integers(0, 3)), kind == 4
                image.save(
                    file, "JPEG", quality=quality, subsampling=subsampling, progressive=progressive
                )
        made.append((["png", "webp"][number % 8] if number % 8 < 2 else "jpg", file.getvalue()))
    return made


def by_pil(data: bytes) -> Image.Image:
    return ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")


def received(folder: Path) -> list[dict[str, Pixels]]:
    found = []
    for batch in batchweave.open(f"file://{folder}/stream"):
        for piece in batch.slices:
            ends = [itertools.pairwise(piece[f"{name}.offsets"].tolist()) for name in NAMES]
            for row in zip(*ends, strict=True):
                parts = zip(NAMES, row, strict=True)
                found.append({name: np.array(piece[name][a:b]) for name, (a, b) in parts})
        # The same pictures as views, over the slices.
        pictures = batch.ragged("pixels", shape="size")
        for one, sample in zip(pictures, found[-len(pictures) :], strict=True):
            assert (one == shown(sample)[0]).all()
        assert batch.ragged("crop").stacked().shape == (len(pictures), 1, 64, 48, 3)
    return found


class Differences:
    """Differences of pixels, over many pictures."""

    def __init__(self) -> None:
        self.counts = np.zeros(256, np.int64)
        self.mean = 0.0
        """The highest mean of a picture."""

    def add(self, one: Pixels, other: Image.Image) -> None:
        pixels = np.asarray(other, np.int16).reshape(one.shape)
        apart = np.abs(one.astype(np.int16) - pixels)
        self.counts += np.bincount(apart.ravel(), minlength=256)
        self.mean = max(self.mean, float(apart.mean()))

    @property
    def largest(self) -> int:
        return int(self.counts.nonzero()[0].max(initial=0))

    def above(self, level: int) -> float:
        """Returns the share of pixels that are further apart than `level`."""
        return float(self.counts[level + 1 :].sum() / self.counts.sum())

    def __repr__(self) -> str:
        parts = [f"{self.above(level):.1e} above {level}" for level in (2, 4)]
        return f"mean {self.mean:.2f}, largest {self.largest}, {', '.join(parts)}"


def shown(sample: dict[str, Pixels]) -> tuple[Pixels, Image.Image]:
    """Returns the pixels with their size, and as PIL takes them."""
    height, width = sample["size"][0]
    pixels = sample["pixels"].reshape(height, width, 3)
    return pixels, Image.fromarray(pixels)


def compare(found: list[dict[str, Pixels]], given: list[tuple[str, bytes]]) -> None:
    """Compares the samples with PIL."""
    assert len(found) == len(given)
    exact, decoded, resized = Differences(), Differences(), Differences()
    bicubic = Image.Resampling.BICUBIC
    for sample, (kind, data) in zip(found, given, strict=True):
        image = by_pil(data)
        pixels, own = shown(sample)
        assert own.size == image.size
        (decoded if kind == "jpg" else exact).add(pixels, image)
        # Resized from the same pixels, so that only the filters are compared.
        width, height = own.size
        short = 48 / min(own.size)
        size = (48, round(height * short)) if width <= height else (round(width * short), 48)
        pairs = [
            (sample["small"].reshape(size[1], size[0], 3), own.resize(size, bicubic)),
            (sample["crop"][0], ImageOps.fit(own, (48, 64), bicubic)),
            (sample["pad"][0], ImageOps.pad(own, (72, 56), bicubic)),
        ]
        for ours, theirs in pairs:
            resized.add(ours, theirs)
        assert sample["exact"].shape == (1, 40, 40, 1)
    print(f"exact: {exact}", f"JPEG: {decoded}", f"resized: {resized}", sep="\n")
    assert exact.largest == 0, exact
    # Edges between strong colours differ more, where the colours are stored at half the size.
    assert decoded.mean <= 0.5, decoded
    assert decoded.above(4) <= 4e-5, decoded
    assert resized.mean <= 0.5, resized
    assert resized.above(2) <= 3e-5, resized


def test_images_of_tars_match_pil(daemons: Daemons, tmp_path: Path) -> None:
    given = files(1)
    with webdataset.TarWriter(str(tmp_path / "a.tar")) as shard:
        for number, (kind, data) in enumerate(given):
            shard.write({"__key__": f"{number:05}", kind: data})
    configure(tmp_path, "a.tar", "jpg;png;webp")
    assert daemons("producer").wait(600) == 0
    compare(received(tmp_path), given)


def test_images_of_parquet_match_pil(daemons: Daemons, tmp_path: Path) -> None:
    given = files(2)[:64]
    images = [{"bytes": data, "path": None} for _, data in given]
    pq.write_table(pa.table({"image": images}), tmp_path / "a.parquet", row_group_size=9)
    configure(tmp_path, "a.parquet", "image.bytes")
    assert daemons("producer").wait(600) == 0
    compare(received(tmp_path), given)


def test_images_of_jsonl_match_pil(daemons: Daemons, tmp_path: Path) -> None:
    given = files(3)[:64]
    with (tmp_path / "a.jsonl").open("w") as lines:
        for _, data in given:
            lines.write(json.dumps({"image": base64.b64encode(data).decode()}) + "\n")
    configure(tmp_path, "a.jsonl", "image", ", base64 = true")
    assert daemons("producer").wait(600) == 0
    compare(received(tmp_path), given)


def deep_png(values: npt.NDArray[np.uint16], colour: int) -> bytes:
    """Returns a PNG of 16 bits, which PIL reads but does not write."""
    height, width = values.shape[:2]
    rows = values.astype(">u2").reshape(height, -1)
    return png(
        width, height, 16, colour, zlib.compress(b"".join(b"\0" + r.tobytes() for r in rows))
    )


def bomb_png() -> bytes:
    """Returns a PNG of 60,000 x 60,000 black pixels of one bit, whose blocks repeat."""
    row, height = 1 + 60_000 // 8, 60_000
    packer = zlib.compressobj(9, wbits=-15)
    block = packer.compress(b"\0" * (row * 100)) + packer.flush(zlib.Z_FULL_FLUSH)
    # The header and the checksum of all these zero bytes by RFC 1950, and an empty last block.
    sums = (row * height % 65521) << 16 | 1
    data = b"\x78\xda" + block * (height // 100) + b"\x03\0" + struct.pack(">I", sums)
    return png(60_000, height, 1, 0, data)


def png(width: int, height: int, bits: int, colour: int, packed: bytes) -> bytes:
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)),
        (b"IDAT", packed),
        (b"IEND", b""),
    ]
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def test_png_of_16_bits_is_that_of_pil(daemons: Daemons, tmp_path: Path) -> None:
    chance = np.random.default_rng(5)
    # By the numbers of the format: RGB, grey with alpha, RGB with alpha.
    given = [
        ("png", deep_png(chance.integers(0, 1 << 16, (60, 70, channels), np.uint16), colour))
        for colour, channels in ((2, 3), (4, 2), (6, 4))
    ]
    with webdataset.TarWriter(str(tmp_path / "a.tar")) as shard:
        for number, (kind, data) in enumerate(given):
            shard.write({"__key__": f"{number:05}", kind: data})
    configure(tmp_path, "a.tar", "jpg;png;webp")
    assert daemons("producer").wait(600) == 0
    for sample, (_, data) in zip(received(tmp_path), given, strict=True):
        assert np.array_equal(shown(sample)[0], np.asarray(by_pil(data)))


def test_bad_images_are_left_out(daemons: Daemons, tmp_path: Path) -> None:
    chance = np.random.default_rng(4)
    image, frames = picture(chance), [picture(chance).resize((32, 32)) for _ in range(3)]
    whole, cut, moving, turning, cmyk = (io.BytesIO() for _ in range(5))
    bomb = io.BytesIO(bomb_png())
    image.save(whole, "JPEG")
    cut.write(whole.getvalue()[: len(whole.getvalue()) // 2])
    frames[0].save(moving, "WEBP", save_all=True, append_images=frames[1:])
    frames[0].save(turning, "PNG", save_all=True, append_images=frames[1:])
    assert len(bomb.getvalue()) < 500_000
    image.convert("CMYK").save(cmyk, "JPEG", quality=95)
    bad = [("jpg", cut), ("webp", moving), ("png", turning), ("png", bomb)]
    given = [*bad, ("jpg", whole), ("jpg", cmyk)]
    with webdataset.TarWriter(str(tmp_path / "a.tar")) as shard:
        for number, (kind, file) in enumerate(given):
            shard.write({"__key__": f"{number:05}", kind: file.getvalue()})
    configure(tmp_path, "a.tar", "jpg;png;webp")
    assert daemons("producer").wait(600) != 0
    with (tmp_path / "producer.toml").open("a") as config:
        config.write('\nsource.on_bad_document = "skip"\n')
    assert daemons("producer").wait(600) == 0
    found = received(tmp_path)
    assert len(found) == 2
    for sample, file, most in zip(found, (whole, cmyk), (0.5, 4), strict=True):
        apart = Differences()
        apart.add(shown(sample)[0], by_pil(file.getvalue()))
        assert apart.mean <= most, apart
