"""Inputs of training runs, and the functions that turn their rows into samples.

The same function runs in producers (`transform.function`) and in DataLoader workers. PAPER_INPUT
is the folder of the episodes. With PAPER_WAIT_MS a sample waits for that time in place of the work
and takes its frames from a pool, so that two cores imitate machines with more.
"""

from __future__ import annotations

import functools
import io
import json
import os
import random
import sysconfig
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Sample = dict[str, Any]
CAMERAS, FRAMES, SOURCE, SIDE = 3, 16, 224, 96
"""A robot's sample: frames of each camera, and their size before and after."""
CLIP, CLIP_SIDE, PATCH = 8, 336, 14
"""A video's sample: frames, their size, and the size of a patch."""
STATE, CHUNK = 7, 16
EPISODES = 8
SEQ_LEN, TEXT_ROWS, END = 2048, 8, 100_257
_POOL = 4
_MEAN, _SCALE = np.float32(0.5), np.float32(2.0)


class Workload(NamedTuple):
    """A kind of samples: the arrays of one, and the function that makes it."""

    name: str
    about: str
    arrays: str
    function: str


_ID = '{ name = "id", dtype = "I64" }'
_ROBOT = f"{FRAMES * CAMERAS}, {SIDE}, {SIDE}, 3"
_PATCHES = f"{CLIP * (CLIP_SIDE // PATCH) ** 2}, {PATCH * PATCH * 3}"
WORKLOADS = {
    "robot": Workload(
        "robot",
        f"{CAMERAS} cameras x {FRAMES} JPEG frames of {SOURCE} x {SOURCE}, resized to {SIDE}; "
        f"state and a chunk of {CHUNK} actions",
        f'{_ID}, {{ name = "frames", dtype = "U8", shape = [{_ROBOT}] }}, '
        f'{{ name = "state", dtype = "F32", shape = [{STATE}] }}, '
        f'{{ name = "action", dtype = "F32", shape = [{CHUNK}, {STATE}] }}',
        "robot",
    ),
    "video": Workload(
        "video",
        f"{CLIP} JPEG frames of {CLIP_SIDE} x {CLIP_SIDE} in patches of {PATCH}; a chat of 512 "
        "bytes as tokens",
        f'{_ID}, {{ name = "frames", dtype = "U8", shape = [{_PATCHES}] }}, '
        '{ name = "tokens", dtype = "U16", shape = [512] }, '
        '{ name = "loss_mask", dtype = "U8", shape = [512] }',
        "video",
    ),
    "ids": Workload("ids", "a number alone", _ID, "ids"),
    "blob": Workload("blob", "bytes", f'{_ID}, {{ name = "blob", dtype = "U8" }}', "blob"),
    "plain": Workload(
        "plain", "a number alone, no function", '{ name = "id", from = "id", dtype = "I64" }', ""
    ),
}


def _jpegs(chance: np.random.Generator, count: int, side: int) -> list[bytes]:
    """Returns smooth random pictures that move, as JPEG."""
    from PIL import Image

    small = chance.integers(0, 256, (8, 8, 3), dtype=np.uint8)
    large = Image.fromarray(small).resize((side * 2, side * 2), Image.Resampling.BICUBIC)
    noise = chance.integers(0, 24, (side, side, 3), dtype=np.uint8)
    found = []
    for number in range(count):
        at = number * side // max(1, count)
        frame = np.asarray(large.crop((at, at // 2, at + side, at // 2 + side)))
        file = io.BytesIO()
        Image.fromarray(np.clip(frame // 2 + noise, 0, 255).astype(np.uint8)).save(
            file, "JPEG", quality=85
        )
        found.append(file.getvalue())
    return found


def make(folder: Path, workload: str, samples: int, files: int) -> None:
    """Writes episodes, and rows that name them: row n has the id n, in file n % files."""
    chance = np.random.default_rng(20_261_128)
    folder.mkdir(parents=True)
    frames = {"robot": (CAMERAS * FRAMES, SOURCE), "video": (CLIP, CLIP_SIDE)}.get(workload)
    for number in range(EPISODES if frames else 0):
        assert frames is not None
        blobs = _jpegs(chance, *frames)
        sizes = np.array([len(blob) for blob in blobs], np.int64)
        (folder / f"episode-{number}.bin").write_bytes(sizes.tobytes() + b"".join(blobs))
    (folder / "rows").mkdir()
    for file in range(files):
        rows = ({"id": n, "episode": n % EPISODES} for n in range(file, samples, files))
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "rows" / f"part-{file:06}.jsonl").write_text(text)


def make_text(folder: Path, enough: int) -> int:
    """Writes this many bytes of documents of the Python library, in rows; returns the steps."""
    (folder / "rows").mkdir(parents=True)
    total, file = 0, 0
    while total < enough:
        for source in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
            text = source.read_text(encoding="utf-8", errors="ignore")[: 1 << 14]
            with (folder / "rows" / f"part-{file:03}.jsonl").open("a", encoding="utf-8") as out:
                out.write(json.dumps({"text": text}) + "\n")
            total, file = total + len(text.encode()), (file + 1) % 16
            if total >= enough:
                break
    return total // (5 * TEXT_ROWS * SEQ_LEN)


@functools.cache
def _blobs(episode: int) -> list[bytes]:
    data = (Path(os.environ["PAPER_INPUT"]) / f"episode-{episode}.bin").read_bytes()
    count = CAMERAS * FRAMES if len(data) and _kind(data) == "robot" else CLIP
    sizes, found, at = np.frombuffer(data, np.int64, count), [], 8 * count
    for size in sizes:
        found.append(data[at : at + int(size)])
        at += int(size)
    return found


def _kind(data: bytes) -> str:
    """Returns the workload of an episode, whose sizes end where its bytes begin."""
    sizes = np.frombuffer(data, np.int64, CLIP)
    return "video" if int(sizes.sum()) + 8 * CLIP == len(data) else "robot"


def _decoded(blob: bytes, side: int) -> Bytes:
    from PIL import Image

    with Image.open(io.BytesIO(blob)) as image:
        picture = image.convert("RGB")
        if picture.size != (side, side):
            picture = picture.resize((side, side), Image.Resampling.BICUBIC)
        return np.asarray(picture, np.uint8)


def _normalised(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return (values - _MEAN) * _SCALE


def _frames(blobs: list[bytes], side: int) -> Bytes:
    """Decodes and resizes frames, and evens out the mean and the contrast of each."""
    out = np.empty((len(blobs), side, side, 3), np.uint8)
    for number, blob in enumerate(blobs):
        frame = _decoded(blob, side).astype(np.float32)
        frame = (frame - frame.mean()) * (64 / (frame.std() + 1)) + 128
        out[number] = np.clip(frame, 0, 255).astype(np.uint8)
    return out


def _patches(frames: Bytes) -> Bytes:
    across = CLIP_SIDE // PATCH
    cut = frames.reshape(len(frames), across, PATCH, across, PATCH, 3).transpose(0, 1, 3, 2, 4, 5)
    return np.ascontiguousarray(cut).reshape(len(frames) * across * across, -1)


def _made(kind: str, episode: int) -> Bytes:
    if kind == "robot":
        return _frames(_blobs(episode), SIDE)
    return _patches(_frames(_blobs(episode), CLIP_SIDE))


@functools.cache
def _pooled(kind: str, place: int) -> Bytes:
    """Returns frames of the shape of a real sample, made without decoding."""
    shape = (CAMERAS * FRAMES, SIDE, SIDE, 3)
    if kind == "video":
        shape = (CLIP * (CLIP_SIDE // PATCH) ** 2, PATCH * PATCH * 3)  # type: ignore[assignment]
    return np.random.default_rng(place).integers(0, 256, shape, dtype=np.uint8)


def _work(kind: str, row: Mapping[str, Any]) -> Bytes:
    wait = float(os.environ.get("PAPER_WAIT_MS", "0"))
    if not wait:
        return _made(kind, row["episode"])
    frames = _pooled(kind, row["id"] % _POOL)
    time.sleep(wait / 1e3)
    return frames


def robot(row: Mapping[str, Any]) -> Sample:
    """Returns the sample of a robot's episode."""
    frames = _work("robot", row)
    chance = random.Random(row["id"])
    state = np.array([chance.random() for _ in range(STATE)], np.float32)
    action = np.array([chance.random() for _ in range(CHUNK * STATE)], np.float32)
    return {
        "id": row["id"],
        "frames": frames,
        "state": _normalised(state),
        "action": _normalised(action).reshape(CHUNK, STATE),
    }


def video(row: Mapping[str, Any]) -> Sample:
    """Returns the sample of a clip with a chat about it."""
    patches = _work("video", row)
    tokens = np.random.default_rng(row["id"]).integers(0, 256, 512).astype(np.uint16)
    mask = (np.arange(512) >= 256).astype(np.uint8)
    return {"id": row["id"], "frames": patches, "tokens": tokens, "loss_mask": mask}


def ids(row: Mapping[str, Any]) -> Sample:
    """Returns the number of the row alone."""
    wait = float(os.environ.get("PAPER_WAIT_MS", "0"))
    if wait:
        time.sleep(wait / 1e3)
    return {"id": row["id"]}


def blob(row: Mapping[str, Any]) -> Sample:
    """Returns the number of the row with PAPER_BYTES bytes."""
    wait = float(os.environ.get("PAPER_WAIT_MS", "0"))
    if wait:
        time.sleep(wait / 1e3)
    return {"id": row["id"], "blob": _zeros(int(os.environ["PAPER_BYTES"]))}


@functools.cache
def _zeros(size: int) -> Bytes:
    return np.random.default_rng(1).integers(0, 256, size, dtype=np.uint8)


FUNCTIONS: Mapping[str, Callable[[Mapping[str, Any]], Sample]] = {
    "robot": robot,
    "video": video,
    "ids": ids,
    "blob": blob,
}


def seconds_per_sample(folder: Path, kind: str, samples: int) -> float:
    """Returns the median CPU time of the real work."""
    os.environ["PAPER_INPUT"] = str(folder)
    times = []
    for number in range(samples):
        began = time.process_time()
        FUNCTIONS[kind]({"id": number, "episode": number % EPISODES})
        times.append(time.process_time() - began)
    return sorted(times)[len(times) // 2]


if __name__ == "__main__":
    import sys

    print(seconds_per_sample(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
