"""Images that come along with their captions: each is in the row of its text, also after kills."""

from __future__ import annotations

import base64
import io
import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
import webdataset  # type: ignore[import-untyped]
from PIL import Image
from real_daemons import MARKS, Daemons

import batchweave

# The webdataset package leaves its files to the garbage collector.
pytestmark = [*MARKS, pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")]

Pixels = npt.NDArray[np.uint8]
Pair = tuple[str, Pixels]

CONFIG = """
store.url = "file://{root}/stream"
producer.name = "p0"
tokenizer.kind = "bytes"
admin.listen = "off"
stream = {{ slices = 2, rows_per_slice = 3, seq_len = 128, producers = ["p0"] }}
packing.mode = "best_fit"
packing.fields = ["segment_ids"]
packing.last_batch = "pad"
commit.linger = "0ms"
source.paths = ["{root}/{paths}"]
packing.arrays = [
    {{ name = "pixels", from = "{field}", dtype = "U8", shape = [3], image = "pixels"{more} }},
    {{ name = "size", from = "{field}", dtype = "I32", shape = [2], image = "size"{more} }},
]
"""


def configure(folder: Path, paths: str, field: str, more: str = "", besides: str = "") -> None:
    text = CONFIG.format(root=folder, paths=paths, field=field, more=more)
    (folder / "producer.toml").write_text(text + besides)


def given(count: int = 60) -> list[Pair]:
    """Returns captions with images, which PNG keeps bit by bit."""
    chance = np.random.default_rng(26)
    pairs = []
    for number in range(count):
        height, width = chance.integers(1, 40, 2)
        image = chance.integers(0, 256, (height, width, 3), np.uint8)
        pairs.append((f"{number}: " + "a cat " * int(chance.integers(0, 18)), image))
    return pairs


def png(pixels: Pixels) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def write_tar(folder: Path, pairs: list[Pair]) -> None:
    with webdataset.TarWriter(str(folder / "a.tar")) as shard:
        for number, (text, image) in enumerate(pairs):
            shard.write({"__key__": f"{number:05}", "png": png(image), "txt": text})


def write_parquet(folder: Path, pairs: list[Pair]) -> None:
    images = [{"bytes": png(image), "path": None} for _, image in pairs]
    table = pa.table({"image": images, "text": [text for text, _ in pairs]})
    pq.write_table(table, folder / "a.parquet", row_group_size=7)


def write_lines(folder: Path, pairs: list[Pair]) -> None:
    with (folder / "a.jsonl").open("w") as lines:
        for text, image in pairs:
            line = {"text": text, "image": base64.b64encode(png(image)).decode()}
            lines.write(json.dumps(line) + "\n")


def write_files(folder: Path, pairs: list[Pair]) -> None:
    """Writes an image folder as Hugging Face's datasets reads it."""
    (folder / "images").mkdir()
    with (folder / "metadata.jsonl").open("w") as lines:
        for number, (text, image) in enumerate(pairs):
            (folder / "images" / f"{number}.png").write_bytes(png(image))
            lines.write(json.dumps({"file_name": f"images/{number}.png", "text": text}) + "\n")


def write_paths(folder: Path, pairs: list[Pair]) -> None:
    """Writes Parquet whose image structs have a path in place of bytes."""
    write_files(folder, pairs)
    images = [{"bytes": None, "path": f"images/{number}.png"} for number in range(len(pairs))]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.table({"image": pa.array(images, kind), "text": [text for text, _ in pairs]})
    pq.write_table(table, folder / "a.parquet", row_group_size=7)


def received(folder: Path) -> list[Pair]:
    """Returns the captions with their images, in the order of the rows."""
    pairs: list[Pair] = []
    for batch in batchweave.open(f"file://{folder}/stream"):
        segments, offsets = batch["segments.offsets"], batch["pixels.offsets"]
        assert len(segments) == len(batch["tokens"]) + 1
        assert len(offsets) == segments[-1] + 1
        assert offsets[-1] == len(batch["pixels"])
        for row, (tokens, ids) in enumerate(
            zip(batch["tokens"], batch["segment_ids"], strict=True)
        ):
            assert ids.max() == segments[row + 1] - segments[row]
            for document in range(segments[row], segments[row + 1]):
                text = bytes(tokens[ids == document - segments[row] + 1][:-1].astype(np.uint8))
                pixels = batch["pixels"][offsets[document] : offsets[document + 1]]
                height, width = batch["size"][document]
                pairs.append((text.decode(), pixels.reshape(height, width, 3)))
    return pairs


def same(found: list[Pair], pairs: list[Pair]) -> None:
    """Rows are filled with what fits, so the order of documents is another one."""
    wanted = dict(pairs)
    assert len(found) == len(pairs) == len(wanted)
    assert {text for text, _ in found} == set(wanted)
    for text, image in found:
        assert np.array_equal(image, wanted[text]), text


@pytest.mark.parametrize(
    ("write", "paths", "field", "more"),
    [
        (write_tar, "a.tar", "png", ""),
        (write_parquet, "a.parquet", "image.bytes", ""),
        (write_lines, "a.jsonl", "image", ", base64 = true"),
        (write_files, "metadata.jsonl", "file_name", ", path = true"),
        (write_paths, "a.parquet", "image.path", ", path = true"),
    ],
)
def test_each_image_is_in_the_row_of_its_caption(
    daemons: Daemons,
    tmp_path: Path,
    write: Callable[[Path, list[Pair]], None],
    paths: str,
    field: str,
    more: str,
) -> None:
    pairs = given()
    write(tmp_path, pairs)
    configure(tmp_path, paths, field, more)
    assert daemons("producer").wait(300) == 0
    same(received(tmp_path), pairs)


@pytest.mark.parametrize(("write", "paths"), [(write_tar, "a.tar"), (write_parquet, "a.parquet")])
def test_a_function_changes_captions_and_images(
    daemons: Daemons, tmp_path: Path, write: Callable[[Path, list[Pair]], None], paths: str
) -> None:
    pairs = given()
    write(tmp_path, pairs)
    code = """
def changed(document):
    tar = "txt" in document
    text, image = document["txt" if tar else "text"], document["png" if tar else "image"]
    if len(text) % 3 == 0:
        return None
    image = image if tar else image["bytes"]
    return {"text": text + "!", "pixels": image, "size": image}
"""
    (tmp_path / "captions.py").write_text(code)
    besides = f'transform = {{ function = "captions:changed", path = "{tmp_path}" }}\n'
    configure(tmp_path, paths, "png" if paths == "a.tar" else "image", besides=besides)
    assert daemons("producer").wait(300) == 0
    same(received(tmp_path), [(text + "!", image) for text, image in pairs if len(text) % 3])


def test_a_producer_that_is_killed_makes_the_same_rows(daemons: Daemons, tmp_path: Path) -> None:
    pairs = given(900)
    write_tar(tmp_path, pairs)
    small = 'packing.object_bytes = "64KiB"\n'
    configure(tmp_path, "a.tar", "png", besides=small)
    assert daemons("producer").wait(300) == 0
    whole = received(tmp_path)
    same(whole, pairs)
    (tmp_path / "stream").rename(tmp_path / "whole")
    chance, kills = random.Random(7), 0
    producer = daemons("producer")
    while kills < 12 and producer.poll() is None:
        time.sleep(chance.random() * 0.3)
        producer.kill()
        producer.wait()
        kills += 1
        producer = daemons("producer")
    assert producer.wait(300) == 0
    for (text, image), (other, pixels) in zip(whole, received(tmp_path), strict=True):
        assert text == other
        assert np.array_equal(image, pixels)


def test_a_caption_longer_than_a_row_is_named(daemons: Daemons, tmp_path: Path) -> None:
    pairs = given(20)
    write_lines(tmp_path, [*pairs, ("x" * 129, pairs[0][1])])
    configure(tmp_path, "a.jsonl", "image", ", base64 = true")
    producer = daemons("producer")
    assert producer.wait(300) == 65
    skip = 'source.on_bad_document = "skip"\n'
    configure(tmp_path, "a.jsonl", "image", ", base64 = true", skip)
    assert daemons("producer").wait(300) == 0
    same(received(tmp_path), pairs)
