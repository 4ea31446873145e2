"""The parts of `batchweave bench images` in Python: pictures, a trainer, a PyTorch DataLoader.

    python -m batchweave.bench.images make FOLDER --images 4000
    python -m batchweave.bench.images read SOCKET --images 4000 --out FILE
    python -m batchweave.bench.images dataloader FOLDER --images 4000

`make` writes shards of generated JPEGs (needs Pillow). `read` is a trainer of one rank.
`dataloader` decodes the shards with webdataset and Pillow in the workers of a torch DataLoader.
Both print or write one JSON object with `images` and `ended`, the time of the last batch in
seconds since 1970.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import io
import json
import os
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import batchweave

WIDTH, HEIGHT = 500, 375
SIDE = 224
"""Sides of the pictures that trainers get."""
_DISTINCT = 256
"""Pictures that differ; more images repeat them."""
_OCTAVES = ((4, 1.0), (12, 0.6), (40, 0.35), (120, 0.2))
"""Columns of a grid of random colours, and their weight."""
_SHARDS = 8
_CLASSES = 1000
_START_SECONDS = 120.0


def picture(seed: int) -> bytes:
    """Returns a JPEG like a photograph in size and detail: smooth colours, edges and grain."""
    image: Any = importlib.import_module("PIL.Image")
    bicubic, chance = image.Resampling.BICUBIC, np.random.default_rng(seed)
    pixels = np.full((HEIGHT, WIDTH, 3), 128, np.float32)
    for columns, weight in _OCTAVES:
        grid = chance.normal(0, 1, (columns * 3 // 4 + 1, columns, 3)).astype(np.float32)
        planes = [image.fromarray(grid[:, :, n]).resize((WIDTH, HEIGHT), bicubic) for n in range(3)]
        noise = np.stack([np.asarray(plane) for plane in planes], 2)
        # Brightness varies more than colour.
        pixels += 45 * weight * (0.35 * noise + noise.mean(2, keepdims=True))
    pixels += chance.normal(0, 4, (HEIGHT, WIDTH, 1)).astype(np.float32)
    file = io.BytesIO()
    made = image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    made.save(file, "JPEG", quality=int(chance.integers(88, 95)), subsampling=2)
    return file.getvalue()


def make(folder: Path, images: int) -> dict[str, Any]:
    """Writes `images` pictures with labels into shards."""
    distinct = [picture(seed) for seed in range(min(images, _DISTINCT))]
    shards = min(_SHARDS, images)
    size = 0
    for shard in range(shards):
        with tarfile.open(folder / f"images-{shard:03}.tar", "w") as tar:
            for number in range(images * shard // shards, images * (shard + 1) // shards):
                data = distinct[number % len(distinct)]
                size += len(data)
                for field, content in (("jpg", data), ("cls", b"%d" % (number % _CLASSES))):
                    member = tarfile.TarInfo(f"{number:08}.{field}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    return {"images": images, "distinct": len(distinct), "jpeg_bytes": size}


def read(socket: Path, images: int, out: Path) -> None:
    """Reads that many images as a trainer does, and writes the time of the last one."""
    # From here on its start costs nothing.
    print("ready", flush=True)
    deadline = time.monotonic() + _START_SECONDS
    while not socket.exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    found = 0
    with batchweave.connect(
        socket, job="bench", dp_rank=0, dp_size=1, connect_timeout=_START_SECONDS
    ) as reader:
        for batch in reader:
            found += _count(batch["image"])
            del batch
            if found >= images:
                break
    out.write_text(json.dumps({"images": found, "ended": time.time()}))


def _count(pixels: Any) -> int:
    """Returns the number of images in a batch, of either side."""
    if pixels.shape[1:] != (SIDE, SIDE, 3):
        raise ValueError(f"images of shape {pixels.shape}")
    return int(pixels.shape[0])


def dataloader(folder: Path, images: int, workers: int, batch: int) -> dict[str, Any]:
    """Decodes all images in a DataLoader; returns `missing` where a package is."""
    for name in ("torch", "webdataset", "PIL"):
        if importlib.util.find_spec(name) is None:
            return {"missing": name}
    torch: Any = importlib.import_module("torch")
    data: Any = importlib.import_module("torch.utils.data")
    webdataset: Any = importlib.import_module("webdataset")
    shards = sorted(str(path) for path in folder.glob("*.tar"))
    samples = webdataset.WebDataset(shards, shardshuffle=False, empty_check=False)
    loader = data.DataLoader(
        samples.map(_sample),
        batch_size=batch,
        num_workers=workers,
        prefetch_factor=2,
        persistent_workers=True,
    )
    began, found = time.time(), 0
    for pixels, _ in loader:
        found += _count(pixels)
    ended = time.time()
    if found != images:
        raise ValueError(f"{found} images instead of {images}")
    return {"images": found, "began": began, "ended": ended, "torch": torch.__version__}


def _sample(sample: dict[str, bytes]) -> tuple[Any, int]:
    """Decodes a sample to the pixels that the producer makes: cropped, bicubic, in one step."""
    torch: Any = importlib.import_module("torch")
    image: Any = importlib.import_module("PIL.Image")
    ops: Any = importlib.import_module("PIL.ImageOps")
    opened = image.open(io.BytesIO(sample["jpg"])).convert("RGB")
    fitted = ops.fit(opened, (SIDE, SIDE), image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(fitted)), int(sample["cls"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one part."""
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m batchweave.bench.images",
        description=about,
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", choices=("make", "read", "dataloader"))
    parser.add_argument("path", type=Path, help="the folder of the shards, or the socket")
    parser.add_argument("--images", type=int, required=True, help="their number")
    parser.add_argument("--out", type=Path, help="file for the times of `read`")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="workers (default: one per core)"
    )
    parser.add_argument("--batch", type=int, default=64, help="images per batch (default 64)")
    args = parser.parse_args(arguments)
    if args.images < 1:
        parser.error("at least 1 image")
    if args.part == "read":
        if args.out is None:
            parser.error("read needs --out")
        read(args.path, args.images, args.out)
    elif args.part == "make":
        print(json.dumps(make(args.path, args.images)))
    else:
        print(json.dumps(dataloader(args.path, args.images, args.workers, args.batch)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
