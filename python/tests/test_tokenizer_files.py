"""Tokens of a producer with a tiktoken rank file, compared with the tiktoken package.

BATCHWEAVE_LONG=1 compares 100,000 strings in place of 10,000.
"""

from __future__ import annotations

import base64
import json
import os
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import tiktoken
from real_daemons import MARKS, Daemons

import batchweave

pytestmark = MARKS

STRINGS = 100_000 if os.environ.get("BATCHWEAVE_LONG") == "1" else 10_000
SEED = 20261126
END = "<|endoftext|>"
PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
"""That of cl100k_base in the package."""
OWN = r"\p{N}| ?\p{L}+|[^\p{L}\p{N}]"
RANGES = [
    *[(0x20, 0x7E), (0x61, 0x7A), (0x00, 0x1F), (0x80, 0xFF), (0x100, 0x24F), (0x300, 0x36F)],
    *[(0x370, 0x4FF), (0x590, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x2000, 0x206F)],
    *[(0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1FAFF)],
    (0x10000, 0x10FFFF),
]
PIECES = [" ", "  ", "\n", "\r\n", "\t", "'s", "'LL", "12345", END, "<|a|>", "\u200d", "\ufe0f"]
WORDS = ["batch", " weave", " the", "ing", " data", "über", "数据", "loss", "token", "0123456789"]


def strings() -> list[str]:
    chance = random.Random(SEED)

    def part() -> str:
        kind = chance.random()
        if kind < 0.3:
            return chance.choice(PIECES)
        if kind < 0.6:
            return chance.choice(WORDS)
        first, last = chance.choice(RANGES)
        return "".join(chr(chance.randint(first, last)) for _ in range(chance.randrange(1, 6)))

    texts = ["".join(part() for _ in range(chance.randrange(1, 20))) for _ in range(STRINGS)]
    # Very long words, and a run of spaces.
    return [*texts, "batchweave" * 300, "数据" * 500, " " * 999, "x"]


def ranks() -> dict[bytes, int]:
    """Returns bytes, and tokens that grow from pairs of known ones, so each can be merged."""
    chance = random.Random(SEED)
    made = {bytes([byte]): byte for byte in range(256)}
    for word in [*WORDS, "  ", "\r\n", "<|", "|>", " batch"]:
        raw = word.encode()
        for end in range(2, len(raw) + 1):
            made.setdefault(raw[:end], len(made))
    for text in chance.choices(strings(), k=400):
        for left, right in pairwise(text.encode()):
            made.setdefault(bytes([left, right]), len(made))
    return made


def rank_file(made: dict[bytes, int]) -> str:
    return "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in made.items())


@pytest.mark.parametrize(("named", "pattern"), [("cl100k_base", PATTERN), (OWN, OWN)])
def test_a_rank_file_gives_the_tokens_of_tiktoken(
    tmp_path: Path, daemons: Daemons, named: str, pattern: str
) -> None:
    made = ranks()
    (tmp_path / "tokenizer.model").write_text(rank_file(made))
    special = {END: len(made), "<|a|>": len(made) + 5}
    table = ", ".join(f"{json.dumps(text)} = {token}" for text, token in special.items())
    config = tmp_path / "producer.toml"
    lines = [
        'kind = "file"',
        f'path = "{tmp_path}/tokenizer.model"',
        f"pattern = '''{named}'''",
        f"special_tokens = {{ {table} }}",
        "[packing]",
        'last_batch = "pad"',
    ]
    config.write_text(config.read_text().replace('kind = "bytes"', "\n".join(lines)))
    texts = strings()
    with (tmp_path / "corpus.jsonl").open("w") as corpus:
        corpus.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    assert daemons("producer").wait(300) == 0

    library = tiktoken.Encoding("t", pat_str=pattern, mergeable_ranks=made, special_tokens=special)
    expected: list[int] = []
    for text in texts:
        expected += [*library.encode_ordinary(text), special[END]]
    daemons("consumer")
    ids: list[int] = []
    with batchweave.connect(tmp_path / "s.sock", timeout=60) as reader:
        assert reader.info.vocabulary == len(made) + 6
        for batch in reader:
            # The last token of a row is the first of the next.
            ids += batch.inputs.reshape(-1).tolist()
        assert len(ids) >= len(expected) - 1
        count = min(len(ids), len(expected))
        ours, theirs = np.array(ids[:count]), np.array(expected[:count])
        assert ours.tolist() == theirs.tolist(), int(np.argmax(ours != theirs))
        assert reader.tokenizer.decode(expected[:5000]) == library.decode(expected[:5000])
