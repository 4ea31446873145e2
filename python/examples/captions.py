"""A small model learns to describe images from pairs of an image and a caption, packed into rows.

    python python/examples/captions.py make /tmp/batchweave-captions
    batchweave run python/examples/captions.toml
    python python/examples/captions.py train

`make` draws the images and writes WebDataset shards, or with --parquet a file as Hugging Face's
datasets writes it. `train` predicts each byte of a caption from the three before it and from the
image, and beside it trains a model with the images of other captions: only the first one learns to
name the colours. It needs numpy and Pillow, and pyarrow for Parquet.
"""

from __future__ import annotations

import argparse
import io
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

import batchweave

COLOURS = {
    "black": (16, 16, 16),
    "blue": (32, 64, 224),
    "green": (32, 160, 64),
    "red": (224, 32, 32),
    "white": (240, 240, 240),
    "yellow": (240, 208, 32),
}
PAIRS, PER_SHARD = 1200, 300
CONTEXT, WIDTH, HIDDEN, BYTES = 3, 16, 64, 257
FEATURES = 12
"""The mean colour of each quarter of an image."""
RATE = 0.01

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


def draw(chance: np.random.Generator) -> tuple[str, bytes]:
    """Returns a caption and its image: two colours, one above the other."""
    above, below = chance.choice(list(COLOURS), 2)
    height, width = chance.integers(24, 64, 2)
    pixels = np.empty((height, width, 3))
    pixels[: height // 2], pixels[height // 2 :] = COLOURS[above], COLOURS[below]
    noisy = np.clip(pixels + chance.normal(0, 8, pixels.shape), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(noisy).save(file, "PNG")
    return f"{above} over {below}", file.getvalue()


def make(folder: Path, parquet: bool) -> None:
    """Writes the input of the stream."""
    chance = np.random.default_rng(0)
    pairs = [draw(chance) for _ in range(PAIRS)]
    folder.mkdir(parents=True, exist_ok=True)
    if parquet:
        import pyarrow as pa  # type: ignore[import-untyped]
        import pyarrow.parquet as pq  # type: ignore[import-untyped]

        images = [{"bytes": image, "path": None} for _, image in pairs]
        table = pa.table({"image": images, "text": [text for text, _ in pairs]})
        pq.write_table(table, folder / "pairs.parquet", row_group_size=PER_SHARD)
        return
    for first in range(0, PAIRS, PER_SHARD):
        with tarfile.open(folder / f"pairs-{first // PER_SHARD:04}.tar", "w") as shard:
            for number, (text, image) in enumerate(pairs[first : first + PER_SHARD], first):
                for extension, data in (("png", image), ("txt", text.encode())):
                    member = tarfile.TarInfo(f"{number:06}.{extension}")
                    member.size = len(data)
                    shard.addfile(member, io.BytesIO(data))


def examples(batch: batchweave.Batch) -> tuple[Ints, Ints, Floats, Ints]:
    """Returns the bytes to predict, those before each, the features of all images, and for each
    byte the number of its image."""
    segments = batch["segments.offsets"]
    offsets = batch["image.offsets"]
    assert (np.diff(offsets) == 1).all(), "each caption has one image"
    quarters = batch["image"].reshape(-1, 2, 16, 2, 16, 3).mean((2, 4), np.float32)
    tokens, ids = batch["tokens"].astype(np.int64), batch["segment_ids"].astype(np.int64)
    before = np.full((*tokens.shape, CONTEXT), BYTES - 1)
    for back in range(1, CONTEXT + 1):
        same = ids[:, back:] == ids[:, :-back]
        before[:, back:, back - 1] = np.where(same, tokens[:, :-back], BYTES - 1)
    image = segments[:-1, None] + ids - 1
    real = ids > 0
    return tokens[real], before[real], quarters.reshape(-1, FEATURES) / 127.5 - 1, image[real]


class Model:
    """One hidden layer over the bytes before and the image; trained by Adam."""

    def __init__(self) -> None:
        chance = np.random.default_rng(1)
        shapes = [
            (BYTES, WIDTH),
            (CONTEXT * WIDTH + FEATURES, HIDDEN),
            (HIDDEN,),
            (HIDDEN, BYTES),
            (BYTES,),
        ]
        self.weights = [chance.normal(0, 0.2, shape).astype(np.float32) for shape in shapes]
        self.moments = [(np.zeros_like(each), np.zeros_like(each)) for each in self.weights]
        self.steps = 0

    def learn(self, labels: Ints, before: Ints, features: Floats) -> float:
        """Makes one step, and returns the mean loss of the labels before it."""
        table, inner, inner_bias, outer, outer_bias = self.weights
        inputs = np.concatenate([table[before].reshape(len(labels), -1), features], 1)
        hidden = np.tanh(inputs @ inner + inner_bias)
        logits = hidden @ outer + outer_bias
        logits -= logits.max(1, keepdims=True)
        chances = np.exp(logits)
        chances /= chances.sum(1, keepdims=True)
        rows = np.arange(len(labels))
        loss = -float(np.log(chances[rows, labels] + 1e-12).mean())
        chances[rows, labels] -= 1
        of_logits = chances / len(labels)
        of_hidden = (of_logits @ outer.T) * (1 - hidden**2)
        of_inputs = of_hidden @ inner.T
        of_table = np.zeros_like(table)
        np.add.at(of_table, before, of_inputs[:, : CONTEXT * WIDTH].reshape(*before.shape, WIDTH))
        self._step(
            [
                of_table,
                inputs.T @ of_hidden,
                of_hidden.sum(0),
                hidden.T @ of_logits,
                of_logits.sum(0),
            ]
        )
        return loss

    def _step(self, gradients: Sequence[Floats]) -> None:
        self.steps += 1
        for weights, gradient, (mean, square) in zip(
            self.weights, gradients, self.moments, strict=True
        ):
            mean += 0.1 * (gradient - mean)
            square += 0.01 * (gradient**2 - square)
            first = mean / (1 - 0.9**self.steps)
            weights -= RATE * first / (np.sqrt(square / (1 - 0.99**self.steps)) + 1e-8)


def train(socket: str | None) -> Iterator[tuple[int, float, float]]:
    """Yields step, loss, and the loss of the model that sees wrong images."""
    model, other = Model(), Model()
    with batchweave.connect(socket, job="train", dp_rank=0, dp_size=1, credits=2) as reader:
        for batch in reader:
            labels, before, features, image = examples(batch)
            del batch
            wrong = np.roll(features, 1, 0)
            loss = model.learn(labels, before, features[image])
            yield model.steps, loss, other.learn(labels, before, wrong[image])


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the input, or trains."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parts = parser.add_subparsers(dest="part", required=True)
    making = parts.add_parser("make", help="write images and captions")
    making.add_argument("folder", type=Path, help="gets the folder data")
    making.add_argument("--parquet", action="store_true", help="write Parquet in place of tars")
    training = parts.add_parser("train", help="train on the stream")
    training.add_argument(
        "--socket", help="of the consumer; default: as batchweave.connect finds it"
    )
    args = parser.parse_args(arguments)
    if args.part == "make":
        make(args.folder / "data", args.parquet)
        return
    line = ""
    for step, loss, wrong in train(args.socket):
        line = f"step {step}: loss {loss:.3f}, with wrong images {wrong:.3f}"
        if step % 20 == 1:
            print(line, flush=True)
    print(line)


if __name__ == "__main__":
    main()
