"""Real producers of balanced streams for tests: documents, configurations, and what bins hold."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from real_daemons import BINARIES

import batchweave
from batchweave import MicroBatch

SLICES, BINS, TOKENS, WINDOW = 8, 3, 256, 4
LINEAR, QUADRATIC = 1.0, 0.003
END = 256
"""The token that ends a document, by the tokenizer of bytes."""

Piece = tuple[int, ...]
"""The tokens of a document, or of a part of a long one."""

KEYS: dict[str, Any] = {
    "store.url": "file://{root}/stream",
    "producer.name": "p0",
    "source.paths": ["{root}/documents.jsonl"],
    "tokenizer.kind": "bytes",
    "admin.listen": "off",
    "commit.linger": "0ms",
    "stream.slices": SLICES,
    "stream.producers": ["p0"],
    "packing.mode": "balanced",
    "packing.last_batch": "pad",
    "packing.balanced.tokens": TOKENS,
    "packing.balanced.micro_batches": BINS,
    "packing.balanced.window": WINDOW,
    "packing.balanced.cost": {"linear": LINEAR, "quadratic": QUADRATIC},
}


def texts(count: int, seed: int = 29, most: int = 900) -> list[str]:
    """Returns texts of many lengths, some above the tokens of a bin, none like another."""
    chance = random.Random(seed)
    lengths = [min(most, int(chance.lognormvariate(4.5, 1.0))) for _ in range(count)]
    return [
        f"{number}:" + "".join(chance.choices("abcdefgh \n", k=n))
        for number, n in enumerate(lengths)
    ]


def write(folder: Path, documents: list[Any]) -> None:
    """Writes documents as JSON lines; a string is the text of one."""
    with (folder / "documents.jsonl").open("w") as lines:
        for document in documents:
            line = {"text": document} if isinstance(document, str) else document
            lines.write(json.dumps(line) + "\n")


def toml(value: object) -> str:
    """Returns a value as TOML."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {toml(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(toml(each) for each in value) + "]"
    return json.dumps(value)


def configure(folder: Path, **changed: Any) -> None:
    """Writes producer.toml; `balanced__window=1` sets packing.balanced.window."""
    keys = dict(KEYS)
    for name, value in changed.items():
        whole = name.replace("__", ".")
        keys[f"packing.{whole}" if whole.startswith("balanced.") else whole] = value
    lines = [f"{name} = {toml(value)}\n" for name, value in keys.items() if value is not None]
    (folder / "producer.toml").write_text("".join(lines).replace("{root}", str(folder)))


def produce(folder: Path, code: int = 0) -> str:
    """Runs the producer to its end and returns its output."""
    command = [str(BINARIES / "batchweave-producer"), "--config", str(folder / "producer.toml")]
    done = subprocess.run(command, timeout=300, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    assert done.returncode == code, output
    return output


def operate(folder: Path, *arguments: str) -> str:
    """Runs `batchweave` on the stream and returns its output."""
    command = [str(BINARIES / "batchweave"), *arguments, "--store", str(folder / "stream")]
    done = subprocess.run(command, timeout=300, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def digests(folder: Path) -> list[str]:
    """Returns the digests of all steps, in order."""
    lines = operate(folder, "log", "--from", "0", "--limit", "100000", "--json").splitlines()
    entries = [
        found["entry"]
        for line in lines
        for found in json.loads(line)["entries"]
        if found["kind"] == "batch" and found["verdict"] == "applies"
    ]
    return [tgb["digest"] for entry in entries for tgb in entry["tgbs"]]


def batches(folder: Path) -> Iterator[batchweave.Batch]:
    """Reads all steps as the only rank."""
    return iter(batchweave.open(f"file://{folder}/stream"))


def pieces(micro: MicroBatch) -> list[Piece]:
    """Returns the tokens of each document of a bin."""
    tokens, borders = micro.tokens.tolist(), micro.documents.tolist()
    return [tuple(tokens[a:b]) for a, b in itertools.pairwise(borders)]


def split(tokens: Piece, most: int = TOKENS) -> list[Piece]:
    """Returns the pieces of a document; neighbours share a token."""
    found = [tokens[:most]]
    while len(tokens) > most:
        tokens = tokens[most - 1 :]
        found.append(tokens[:most])
    return found


def of_text(text: str) -> Piece:
    """Returns the tokens of a document of this text."""
    return (*text.encode(), END)


def cost_of(bin_pieces: list[Piece]) -> float:
    """Returns the cost of a bin by the formula."""
    return sum(LINEAR * len(piece) + QUADRATIC * len(piece) ** 2 for piece in bin_pieces)
