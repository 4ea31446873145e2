"""The input of the streams that `make_upgrade_streams.py` makes: the same bytes each time."""

from __future__ import annotations

import base64
import io
import json
import random
import struct
import tarfile
import zlib
from typing import Any

import numpy

# The seed of all inputs.
SEED = 22
# The time of all files in archives, in seconds.
OLD = 1_764_000_000


def words(seed: int, count: int, longest: int = 24) -> list[str]:
    """Return texts of any length, with characters of one to four bytes."""
    rng = random.Random(seed * 1000 + SEED)
    syllables = ["ba", "weave ", "zu", "ki ", "é", "日本", "lo", "\n", "🧵", "mi "]
    return ["".join(rng.choices(syllables, k=rng.randint(1, longest))) for _ in range(count)]


def lines(documents: list[Any]) -> bytes:
    """Return documents as JSON lines."""
    return "".join(json.dumps(one) + "\n" for one in documents).encode()


def texts(seed: int, count: int, longest: int = 24) -> bytes:
    """Return texts as JSON lines."""
    return lines([{"text": text} for text in words(seed, count, longest)])


def tar(files: dict[str, bytes]) -> bytes:
    """Return an archive with a fixed time, so that the same files make the same bytes."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(content), OLD
            archive.addfile(entry, io.BytesIO(content))
    return whole.getvalue()


def picture(seed: int, side: int) -> bytes:
    """Return a PNG of random pixels."""
    rng = random.Random(seed)

    def chunk(kind: bytes, body: bytes) -> bytes:
        named = kind + body
        return struct.pack(">I", len(body)) + named + struct.pack(">I", zlib.crc32(named))

    pixels = b"".join(b"\0" + rng.randbytes(3 * side) for _ in range(side))
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def npy(array: Any) -> bytes:
    """Return an array as a .npy file."""
    whole = io.BytesIO()
    numpy.save(whole, array)
    return whole.getvalue()


def byte_level_tokenizer() -> bytes:
    """Return a small tokenizer.json with the 256 bytes, three merges and an end token."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain}
    letters |= {byte: chr(256 + place) for place, byte in enumerate(others)}
    vocabulary = {letters[byte]: byte for byte in range(256)}
    merges = [["b", "a"], ["k", "i"], ["ki", letters[32]]]
    for left, right in merges:
        vocabulary[left + right] = len(vocabulary)
    end = {"id": len(vocabulary), "content": "<|endoftext|>", "special": True}
    end |= {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    level["use_regex"] = True
    model: dict[str, Any] = {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False}
    model |= {"continuing_subword_prefix": None, "end_of_word_suffix": None}
    model |= {"byte_fallback": False, "vocab": vocabulary, "merges": merges}
    whole: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [end],
    }
    whole |= {"normalizer": None, "pre_tokenizer": level, "post_processor": None}
    whole |= {"decoder": level, "model": model}
    return json.dumps(whole, ensure_ascii=False).encode()


def conversations(count: int) -> list[dict[str, Any]]:
    """Return conversations of one to three turns, some of which spell a special token."""
    said = words(5, 6 * count, 6)
    talks = []
    for number in range(count):
        turns = said[6 * number : 6 * number + 2 * (1 + number % 3)]
        messages = [
            {"role": ("user", "assistant")[place % 2], "content": text}
            for place, text in enumerate(turns)
        ]
        if number % 5 == 4:
            messages[0]["content"] += " <|im_end|>"
        talks.append({"messages": messages})
    return talks


def pairs(count: int) -> list[dict[str, Any]]:
    """Return preferred and rejected answers."""
    said = words(6, 3 * count, 5)
    return [
        {
            "prompt": [{"role": "user", "content": said[3 * number]}],
            "chosen": [{"role": "assistant", "content": "yes " + said[3 * number + 1]}],
            "rejected": [{"role": "assistant", "content": "no " + said[3 * number + 2]}],
        }
        for number in range(count)
    ]


def id_lists(count: int) -> list[dict[str, Any]]:
    """Return lists of ids with a mark for each, a reward and a version."""
    rng = random.Random(7)
    rows = []
    for number in range(count):
        ids = [rng.randrange(1, 5000) for _ in range(rng.randint(1, 40))]
        marks = [rng.randrange(2) for _ in ids]
        rows.append({"ids": ids, "mask": marks, "reward": number / 8, "version": number * 2**33})
    return rows


def samples(count: int) -> dict[str, bytes]:
    """Return the files of a shard in which samples have a picture, actions and a class."""
    files = {}
    rng = numpy.random.default_rng(8)
    for number in range(count):
        actions = rng.standard_normal((number % 4, 3)).astype("<f4")
        files[f"{number:04}.png"] = picture(number, 4)
        files[f"{number:04}.npy"] = npy(actions)
        files[f"{number:04}.cls"] = str(number % 10).encode()
    return files


def illustrated(count: int) -> list[dict[str, Any]]:
    """Return texts with an array and a picture each."""
    said = words(9, count, 8)
    return [
        {
            "text": text,
            "where": [[number, place] for place in range(number % 3)],
            "image": base64.b64encode(picture(number, 4)).decode(),
        }
        for number, text in enumerate(said)
    ]
