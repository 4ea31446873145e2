"""Shards that the webdataset package writes: ranks receive what the package reads, byte by byte."""

from __future__ import annotations

import io
import itertools
import json
import random
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset  # type: ignore[import-untyped]
from real_daemons import BINARIES, END, MARKS, Daemons

import batchweave

# The package leaves its files to the garbage collector.
pytestmark = [*MARKS, pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")]

SAMPLES = 50
NAMES = ("image", "cls", "points", "box", "note", "seg.png")

STREAM = """
store.url = "file://{root}/stream"
producer.name = "p0"
source.paths = ["{root}/{shards}"]
tokenizer.kind = "bytes"
{more}
"""
ARRAYS = """
stream = { slices = 2, rows_per_slice = 3, seq_len = 1, producers = ["p0"] }
packing.mode = "opaque"
packing.last_batch = "pad"
packing.arrays = [
    { name = "image", from = "jpg;png", dtype = "U8" },
    { name = "cls", dtype = "I64" },
    { name = "points", from = "points.npy", dtype = "F32", shape = [3] },
    { name = "box", from = "json", dtype = "F64" },
    { name = "note", from = "txt", dtype = "U8" },
    { name = "seg.png", dtype = "U8" },
]
"""


def samples() -> Iterator[dict[str, Any]]:
    """Samples with keys of any length; what is in them is drawn."""
    chance = np.random.default_rng(8)
    for number in range(SAMPLES):
        folder = "ein langer Ordner 数据/" * (number % 9)
        points = chance.standard_normal((int(chance.integers(0, 5)), 3)).astype(np.float32)
        yield {
            "__key__": f"{folder}{number:04}",
            ("jpg" if number % 3 else "png"): chance.bytes(int(chance.integers(0, 3000))),
            "cls": int(chance.integers(-9, 1000)),
            "points.npy": points,
            "json": chance.standard_normal(4).tolist(),
            "txt": f"Sample {number} über 数据",
            "seg.png": chance.bytes(number),
            "unused.bin": chance.bytes(9000),
        }


def write(folder: Path) -> list[str]:
    """Writes three shards, the last one with gzip. Returns their paths in order."""
    given = list(samples())
    paths = [str(folder / name) for name in ("s-0.tar", "s-1.tar", "s-2.tar.gz")]
    for number, path in enumerate(paths):
        with webdataset.TarWriter(path) as shard:
            for sample in given[number * SAMPLES // 3 : (number + 1) * SAMPLES // 3]:
                shard.write(sample)
    return paths


def read_back(paths: list[str]) -> list[dict[str, Any]]:
    """Returns what webdataset makes of the shards: fields as they are, numbers decoded."""
    raw = list(webdataset.WebDataset(paths, shardshuffle=False))
    decoded = list(webdataset.WebDataset(paths, shardshuffle=False).decode())
    assert len(raw) == SAMPLES
    return [
        {
            "image": r.get("jpg", r.get("png")),
            "cls": np.array([d["cls"]], np.int64).tobytes(),
            "points": d["points.npy"].astype(np.float32).tobytes(),
            "box": np.array(d["json"]).tobytes(),
            "note": r["txt"],
            "seg.png": r["seg.png"],
        }
        for r, d in zip(raw, decoded, strict=True)
    ]


def received(socket: Path) -> list[dict[str, Any]]:
    found = []
    with batchweave.connect(socket, dp_rank=0, dp_size=1, timeout=120) as reader:
        for batch in reader:
            for piece in batch.slices:
                offsets = {name: piece[f"{name}.offsets"] for name in NAMES}
                for row in range(len(offsets["cls"]) - 1):
                    ends = {name: (o[row], o[row + 1]) for name, o in offsets.items()}
                    parts = {name: piece[name][a:b].tobytes() for name, (a, b) in ends.items()}
                    found.append(parts)
    return found


def configure(folder: Path, shards: str, more: str) -> None:
    text = STREAM.format(root=folder, shards=shards, more=more)
    (folder / "producer.toml").write_text(text)


def command(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [BINARIES / "batchweave", "--store", f"file://{folder}/stream", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_rank_receives_what_webdataset_reads(daemons: Daemons, tmp_path: Path) -> None:
    expected = read_back(write(tmp_path))
    configure(tmp_path, "s-*", ARRAYS)
    assert daemons("producer").wait(300) == 0
    daemons("consumer")
    found = received(tmp_path / "s.sock")
    assert len(found) == SAMPLES
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert one == other, number
    # Each sample is found by its shard and number.
    shown = json.loads(command(tmp_path, "show", "3", "--decode", "--json"))
    sources = [Path(row["documents"][0]["source"]).name for row in shown["rows"]]
    assert sources == [f"s-1.tar:{n}" for n in range(3, 9)]
    assert "s-1.tar:3" in command(tmp_path, "where", "s-1.tar:3")


@pytest.mark.parametrize("shuffled", [False, True], ids=["in-order", "shuffled"])
def test_texts_of_shards_match_webdataset(daemons: Daemons, tmp_path: Path, shuffled: bool) -> None:
    paths = write(tmp_path)
    raw = webdataset.WebDataset(paths, shardshuffle=False)
    texts = sorted(sample["txt"].decode() for sample in raw)
    more = 'stream = { slices = 1, rows_per_slice = 1, seq_len = 60, producers = ["p0"] }\n'
    more += 'packing = { mode = "best_fit", last_batch = "pad" }\n'
    configure(tmp_path, "s-*", more)
    if shuffled:
        config = (tmp_path / "producer.toml").read_text()
        config = config.replace("source.paths", "# source.paths")
        config += f'[[sources]]\nname = "a"\npaths = ["{tmp_path}/s-*"]\n'
        config += 'shuffle = { seed = 3, window = "1MiB" }\n'
        (tmp_path / "producer.toml").write_text(config)
    assert daemons("producer").wait(300) == 0
    found, text = [], []
    for batch in batchweave.open(f"file://{tmp_path}/stream"):
        for token in batch.slices[0]["tokens"].ravel().tolist():
            if token != END:
                text.append(token)
            elif text:
                found.append(bytes(text).decode())
                text = []
    assert sorted(found) == texts


def odd_names(seed: int) -> list[str]:
    """Names of files in a drawn order, with the files of most keys side by side."""
    chance = random.Random(seed)
    long = "very long folder/" * 9
    keys = [
        f"{folder}{base}"
        for folder in ("", "a/", "./b/", "x.y/", "__m__/", "__m/", "a/__n__/", long)
        for base in ("0", "1", "__k", "__k__", "数据")
    ]
    ends = [".txt", ".seg.txt", ".cls", "", ".tx.t", ".t xt", "."]
    names: list[str] = []
    for key in chance.sample(keys, len(keys)):
        some = chance.sample(ends, chance.randrange(1, len(ends)))
        names += [key + (end.upper() if chance.random() < 0.2 else end) for end in some]
    return names


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_names_are_grouped_as_by_webdataset(daemons: Daemons, tmp_path: Path, form: int) -> None:
    path = tmp_path / "s-0.tar"
    with tarfile.open(path, "w", format=form, pax_headers={"comment": "global"}) as tar:
        for number, name in enumerate(odd_names(form)):
            member = tarfile.TarInfo(name)
            member.size = len(data := f"text {number}".encode())
            tar.addfile(member, io.BytesIO(data))
            if number % 7 == 0:
                other = tarfile.TarInfo(f"{name}.txt")
                other.type = (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE)[number % 3]
                other.linkname = "0.txt"
                tar.addfile(other)
    read = webdataset.WebDataset([str(path)], shardshuffle=False)
    expected = [sample["txt"] for sample in read if "txt" in sample]
    assert len(expected) > 12
    more = ARRAYS[: ARRAYS.index("packing.arrays")]
    more += 'packing.arrays = [{ name = "txt", dtype = "U8" }]\n'
    configure(tmp_path, "s-*", more + 'source.on_bad_document = "skip"\n')
    assert daemons("producer").wait(300) == 0
    found = []
    for batch in batchweave.open(f"file://{tmp_path}/stream"):
        for piece in batch.slices:
            ends = piece["txt.offsets"].tolist()
            data = piece["txt"].tobytes()
            found += [data[a:b] for a, b in itertools.pairwise(ends)]
    assert found == expected
