"""Inputs of training runs, and the functions that turn their rows into samples.

The same function runs in producers (`transform.function`) and in DataLoader workers. PAPER_INPUT
is the folder of the episodes. With PAPER_WAIT_MS a sample waits for that time in place of the work
and takes its frames from a pool, so that two cores imitate machines with more.
"""

from __future__ import annotations

import functools
import importlib
import io
import json
import os
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Row = Mapping[str, Any]
ROBOT_FRAMES, ROBOT_SIDE, SIDE = 48, 224, 96
"""A robot's sample: 3 cameras x 16 frames, and their size before and after."""
CLIP_FRAMES, CLIP_SIDE, PATCH = 8, 336, 14
"""A video's sample: frames, their size, and the size of a patch."""
STATE, CHUNK, CHAT = 7, 16, 512
EPISODES, _POOL, CAMERAS = 8, 4, 3
SEQ_LEN, TEXT_ROWS, END = 2048, 8, 100_257
_SHAPES = {
    "robot": (ROBOT_FRAMES, SIDE, SIDE, 3),
    "robot_h264": (ROBOT_FRAMES, SIDE, SIDE, 3),
    "video": (CLIP_FRAMES * (CLIP_SIDE // PATCH) ** 2, PATCH * PATCH * 3),
}


class Workload(NamedTuple):
    """A kind of samples: the arrays of one, as in `packing.arrays`, and whether a function runs."""

    about: str
    arrays: str
    function: bool = True


_ID = '{ name = "id", dtype = "I64" }'
_FRAMES = {
    kind: f'{_ID}, {{ name = "frames", dtype = "U8", shape = {list(shape)} }}'
    for kind, shape in _SHAPES.items()
}
_ROBOT = (
    f'{_FRAMES["robot"]}, {{ name = "state", dtype = "F32", shape = [{STATE}] }}, '
    f'{{ name = "action", dtype = "F32", shape = [{CHUNK}, {STATE}] }}'
)
_MOVES = f"of {ROBOT_SIDE} x {ROBOT_SIDE}, resized to {SIDE}; state and a chunk of {CHUNK} actions"
WORKLOADS = {
    "robot": Workload(f"3 cameras x 16 JPEG frames {_MOVES}", _ROBOT),
    "robot_h264": Workload(f"3 cameras x 16 frames of H.264 {_MOVES}", _ROBOT),
    "video": Workload(
        f"{CLIP_FRAMES} JPEG frames of {CLIP_SIDE} x {CLIP_SIDE} in patches of {PATCH}; a chat of "
        f"{CHAT} bytes as tokens",
        f'{_FRAMES["video"]}, {{ name = "tokens", dtype = "U16", shape = [{CHAT}] }}, '
        f'{{ name = "loss_mask", dtype = "U8", shape = [{CHAT}] }}',
    ),
    "ids": Workload("a number", _ID),
    "blob": Workload("PAPER_BYTES bytes", f'{_ID}, {{ name = "blob", dtype = "U8" }}'),
    "plain": Workload("a number", '{ name = "id", from = "id", dtype = "I64" }', False),
}


def _jpegs(chance: np.random.Generator, count: int, side: int) -> list[bytes]:
    """Returns smooth random pictures that move, as JPEG."""
    from PIL import Image

    small = Image.fromarray(chance.integers(0, 256, (8, 8, 3), dtype=np.uint8))
    large = small.resize((side * 2, side * 2), Image.Resampling.BICUBIC)
    noise = chance.integers(0, 24, (side, side, 3), dtype=np.uint8)
    found = []
    for at in range(0, side, -(-side // count)):
        frame = np.asarray(large.crop((at, at // 2, at + side, at // 2 + side)))
        file = io.BytesIO()
        Image.fromarray(frame // 2 + noise).save(file, "JPEG", quality=85)
        found.append(file.getvalue())
    return (found * count)[:count]


def _film(path: Path, jpegs: list[bytes]) -> None:
    """Writes pictures as H.264."""
    from PIL import Image

    av: Any = importlib.import_module("av")
    with av.open(str(path), "w") as film:
        stream = film.add_stream("libx264", rate=16)
        stream.width = stream.height = ROBOT_SIDE
        stream.pix_fmt = "yuv420p"
        for jpeg in jpegs:
            with Image.open(io.BytesIO(jpeg)) as picture:
                film.mux(stream.encode(av.VideoFrame.from_image(picture)))
        film.mux(stream.encode())


def make(folder: Path, workload: str, samples: int, files: int) -> None:
    """Writes episodes, and rows that name them: row n has the id n, in file n % files.

    Producers make the rows of a file in chunks, each by one process, so that rows of slow samples
    belong into files of their own.
    """
    (folder / "rows").mkdir(parents=True)
    robot, clip = (ROBOT_FRAMES, ROBOT_SIDE), (CLIP_FRAMES, CLIP_SIDE)
    frames = {"robot": robot, "robot_h264": robot, "video": clip}.get(workload)
    if frames:
        chance = np.random.default_rng(20_261_128)
        for number in range(EPISODES):
            (folder / f"episode-{number}").mkdir()
            jpegs, own = _jpegs(chance, *frames), folder / f"episode-{number}"
            if workload == "robot_h264":
                each = ROBOT_FRAMES // CAMERAS
                for camera in range(CAMERAS):
                    _film(own / f"{camera}.mp4", jpegs[camera * each : (camera + 1) * each])
                continue
            for place, jpeg in enumerate(jpegs):
                (own / f"{place:02}.jpg").write_bytes(jpeg)
    for file in range(files):
        rows = (f'{{"id": {n}, "episode": {n % EPISODES}}}\n' for n in range(file, samples, files))
        (folder / "rows" / f"part-{file:06}.jsonl").write_text("".join(rows))


def make_text(folder: Path, enough: int) -> int:
    """Writes this many bytes of documents of the Python library, in rows; returns the steps."""
    (folder / "rows").mkdir(parents=True)
    sources, total = sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")), 0
    for number in range(1 << 30):
        text = sources[number % len(sources)].read_text("utf-8", errors="ignore")[: 1 << 14]
        if text:
            with (folder / "rows" / f"part-{number % 16:06}.jsonl").open("a") as out:
                out.write(json.dumps({"text": text}) + "\n")
        total += len(text.encode())
        if total >= enough:
            break
    return total // (5 * TEXT_ROWS * SEQ_LEN)


@functools.cache
def _episode(number: int) -> list[bytes]:
    folder = Path(os.environ["PAPER_INPUT"]) / f"episode-{number}"
    return [path.read_bytes() for path in sorted(folder.iterdir())]


def _opened(jpegs: list[bytes]) -> Iterator[Any]:
    from PIL import Image

    for jpeg in jpegs:
        with Image.open(io.BytesIO(jpeg)) as image:
            yield image.convert("RGB")


def _filmed(number: int) -> Iterator[Any]:
    av: Any = importlib.import_module("av")
    for encoded in _episode(number):
        with av.open(io.BytesIO(encoded)) as film:
            for frame in film.decode(video=0):
                yield frame.to_image()


def _decoded(pictures: Iterator[Any], count: int, side: int) -> Bytes:
    """Decodes and resizes frames, and evens out the mean and the contrast of each."""
    from PIL import Image

    out = np.empty((count, side, side, 3), np.uint8)
    for number, picture in enumerate(pictures):
        small = picture.resize((side, side), Image.Resampling.BICUBIC)
        frame = np.asarray(small, np.float32)
        frame = (frame - frame.mean()) * (64 / (frame.std() + 1)) + 128
        out[number] = np.clip(frame, 0, 255).astype(np.uint8)
    return out


@functools.cache
def _pooled(shape: tuple[int, ...], place: int) -> Bytes:
    return np.random.default_rng(place).integers(0, 256, shape, dtype=np.uint8)


def _waited() -> bool:
    """Waits for PAPER_WAIT_MS; returns whether that was in place of the work."""
    wait = float(os.environ.get("PAPER_WAIT_MS", "0"))
    time.sleep(wait / 1e3)
    return wait > 0


def _frames(kind: str, row: Row) -> Bytes:
    frames = _pooled(_SHAPES[kind], row["id"] % _POOL)
    if _waited():
        return frames
    if kind == "robot_h264":
        return _decoded(_filmed(row["episode"]), ROBOT_FRAMES, SIDE)
    pictures = _opened(_episode(row["episode"]))
    if kind == "robot":
        return _decoded(pictures, ROBOT_FRAMES, SIDE)
    across, frames = CLIP_SIDE // PATCH, _decoded(pictures, CLIP_FRAMES, CLIP_SIDE)
    cut = frames.reshape(CLIP_FRAMES, across, PATCH, across, PATCH, 3).transpose(0, 1, 3, 2, 4, 5)
    return np.ascontiguousarray(cut).reshape(_SHAPES["video"])


def robot(row: Row, kind: str = "robot") -> dict[str, Any]:
    """Returns the sample of a robot's episode, with normalised state and actions."""
    chance = np.random.default_rng(row["id"])
    moves = chance.standard_normal(((1 + CHUNK), STATE), np.float32) * 2 - 1
    frames = _frames(kind, row)
    return {"id": row["id"], "frames": frames, "state": moves[0], "action": moves[1:]}


def robot_h264(row: Row) -> dict[str, Any]:
    """Returns the same from films, one per camera."""
    return robot(row, "robot_h264")


def video(row: Row) -> dict[str, Any]:
    """Returns the sample of a clip with a chat about it."""
    tokens = np.random.default_rng(row["id"]).integers(0, 256, CHAT).astype(np.uint16)
    mask = (np.arange(CHAT) >= CHAT // 2).astype(np.uint8)
    frames = _frames("video", row)
    return {"id": row["id"], "frames": frames, "tokens": tokens, "loss_mask": mask}


def ids(row: Row) -> dict[str, Any]:
    """Returns the number of the row alone."""
    _waited()
    return {"id": row["id"]}


def blob(row: Row) -> dict[str, Any]:
    """Returns the number of the row with PAPER_BYTES bytes."""
    _waited()
    return {"id": row["id"], "blob": _pooled((int(os.environ["PAPER_BYTES"]),), 0)}


FUNCTIONS: Mapping[str, Callable[[Row], dict[str, Any]]] = {
    "robot": robot,
    "robot_h264": robot_h264,
    "video": video,
    "ids": ids,
    "blob": blob,
}


def main(kind: str, samples: int) -> None:
    """Prints the median CPU time of a sample."""
    times = []
    for number in range(samples):
        began = time.process_time()
        FUNCTIONS[kind]({"id": number, "episode": number % EPISODES})
        times.append(time.process_time() - began)
    print(sorted(times)[len(times) // 2])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
