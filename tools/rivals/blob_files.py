"""The input of the comparison with loaders: samples of bytes, a `.npy` file each."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

STEP_SAMPLES = 64
"""Samples of a step, of all ranks together."""
SLICES = 16
LEAST_BYTES, MOST_BYTES = 256 << 10, 1 << 20
HEADER_BYTES = 128
"""Of each file, before its bytes."""
_WORD_BYTES = 8
_POOL_BYTES = 64 << 20
_SEED = 20_261_126


class Input(NamedTuple):
    """The files, whole steps of them."""

    folder: Path
    steps: int
    bytes: int


def make(folder: Path, files: int) -> Input:
    """Writes files of random bytes, of 256 KiB to 1 MiB in whole words."""
    chance = random.Random(_SEED)
    pool = memoryview(chance.randbytes(_POOL_BYTES))
    folder.mkdir()
    steps, total = files // STEP_SAMPLES, 0
    for number in range(steps * STEP_SAMPLES):
        words = chance.randint(LEAST_BYTES // _WORD_BYTES, MOST_BYTES // _WORD_BYTES)
        length = words * _WORD_BYTES
        at = chance.randrange(0, _POOL_BYTES - length, _WORD_BYTES)
        with (folder / f"{number:06}.npy").open("wb") as file:
            file.write(_header(length))
            file.write(pool[at : at + length])
        total += length
    return Input(folder, steps, total)


def _header(length: int) -> bytes:
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({length},), }}"
    before = b"\x93NUMPY\x01\x00" + (HEADER_BYTES - 10).to_bytes(2, "little")
    return before + text.ljust(HEADER_BYTES - 11).encode() + b"\n"


def parts(files: list[Path], slices: int) -> list[list[Path]]:
    """Returns the files of each step that are in the first `slices` of its slices."""
    mine = STEP_SAMPLES * slices // SLICES
    return [files[at : at + mine] for at in range(0, len(files), STEP_SAMPLES)]
