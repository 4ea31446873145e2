"""Copies from the arena to a device, and small models trained beside a DataLoader.

    PYTHON=venv/bin/python tests/gpu/run --out target/gpu

With CUDA: each copy is held up behind a long kernel while the batch is dropped and the reader goes
on, so a frame that is given back before its copy has ended shows as another step's stamp; then the
rate of copies, alone and beside computation. Then a GPT and a small model of images and text train
from BatchWeave and from a DataLoader, in turns; losses stay on the device until the end. Prints one
JSON object.
"""

# mypy: ignore-errors
# PyTorch is not installed where types are checked.

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import batchweave
import numpy as np
from batchweave import _device, _programs
from batchweave.torch import in_flight, to_device
from paper.handover import MIB, feeding

CHECKED_STEPS, COPIES = 200, 50
IMAGE, PATCH, CAPTION, ACTION = 224, 16, 64, 7


class Size:
    """The sizes of a run."""

    def __init__(self, tiny: bool) -> None:
        self.rows, self.length = (4, 64) if tiny else (32, 1024)
        self.width, self.layers, self.heads = (32, 1, 2) if tiny else (768, 8, 12)
        self.images, self.image = (2, 32) if tiny else (64, IMAGE)
        self.steps, self.warm = (12, 4) if tiny else (250, 30)
        self.rounds = 1 if tiny else 2


def picture(row):
    """Returns an image and its caption: noise, smoothed as an augmentation would."""
    side = int(os.environ.get("MEASURE_IMAGE", IMAGE))
    chance = np.random.default_rng(row["id"])
    image = chance.integers(0, 256, (side, side, 3), dtype=np.uint8).astype(np.float32)
    for axis in (0, 1):
        image = (image + np.roll(image, 1, axis) + np.roll(image, -1, axis)) / 3
    caption = chance.integers(0, 256, CAPTION + 1).astype(np.int32)
    return {"id": row["id"], "image": image.astype(np.uint8), "caption": caption}


def held_until_copied(torch, path: Path) -> int:
    """Every stamp arrives as it was when its batch was handed out."""
    side, wanted, given = torch.cuda.Stream(), [], []
    with batchweave.connect(path, credits=4, timeout=60) as reader:
        for _ in range(CHECKED_STEPS):
            batch = next(reader)
            wanted.append(int(batch.slices[0]["stamp"][0]))
            with torch.cuda.stream(side):
                torch.cuda._sleep(2_000_000)
            given.append(to_device(batch, side)["stamp"])
            del batch
        side.synchronize()
        assert in_flight() == 0
    found = [int(stamp[0]) for stamp in given]
    wrong = [step for step in range(CHECKED_STEPS) if found[step] != wanted[step]]
    if wrong:
        raise SystemExit(f"steps {wrong[:8]} show another step's frame")
    return CHECKED_STEPS


def copies(torch, path: Path, slice_bytes: int, cuda: bool) -> dict:
    """Returns the rate of copies alone, and the part of their time that computation hides."""
    wait = torch.cuda.synchronize if cuda else (lambda: None)
    side = torch.cuda.Stream() if cuda else None
    matrix = torch.rand(
        4096 if cuda else 128, 4096 if cuda else 128, device="cuda" if cuda else "cpu"
    )

    def timed(copy: bool, compute: bool) -> float:
        wait()
        began = time.perf_counter()
        for _ in range(COPIES):
            if copy:
                to_device(next(reader), side)
            if compute:
                for _ in range(4):
                    matrix @ matrix
        wait()
        return time.perf_counter() - began

    with batchweave.connect(path, credits=4, timeout=60) as reader:
        timed(True, True)
        copy, compute, both = timed(True, False), timed(False, True), timed(True, True)
    return {
        "gigabytes_per_second": COPIES * slice_bytes / copy / 1e9,
        "copy_seconds": copy,
        "compute_seconds": compute,
        "both_seconds": both,
        "hidden_share": max(0.0, copy + compute - both) / min(copy, compute),
    }


def models(torch, size: Size):
    """Returns a GPT, and a model of an image and its caption."""
    nn, functional = torch.nn, torch.nn.functional

    class Model(nn.Module):
        def __init__(self, length: int, seen: int = 0) -> None:
            super().__init__()
            self.tokens = nn.Embedding(257, size.width)
            self.places = nn.Embedding(length + seen, size.width)
            layer = nn.TransformerEncoderLayer(
                size.width, size.heads, 4 * size.width, 0.0, batch_first=True, norm_first=True
            )
            self.layers = nn.TransformerEncoder(layer, size.layers, enable_nested_tensor=False)
            self.head = nn.Linear(size.width, 257)
            self.eye = nn.Conv2d(3, size.width, PATCH, PATCH) if seen else None
            mask = torch.full((length + seen, length + seen), float("-inf")).triu(1)
            self.register_buffer("mask", mask)

        def forward(self, tokens, labels, image=None):
            x = self.tokens(tokens)
            if image is not None:
                seen = self.eye(image.permute(0, 3, 1, 2).float() / 127.5 - 1)
                x = torch.cat([seen.flatten(2).transpose(1, 2), x], 1)
            x = x + self.places.weight[: x.shape[1]]
            x = self.layers(x, mask=self.mask, is_causal=True)[:, -tokens.shape[1] :]
            return functional.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())

    return Model(size.length), Model(CAPTION, (size.image // PATCH) ** 2)


class Text:
    """Rows of bytes of a file, as a map-style dataset."""

    def __init__(self, path: Path, length: int) -> None:
        self._bytes, self._length = np.memmap(path, np.uint8, "r"), length

    def __len__(self) -> int:
        return (len(self._bytes) - 1) // self._length

    def __getitem__(self, index: int):
        at = index * self._length
        return {"tokens": self._bytes[at : at + self._length + 1].astype(np.int32)}


class Pictures:
    """The samples of `picture`."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int):
        return picture({"id": index})


def inputs(folder: Path, size: Size) -> dict[str, str]:
    """Writes the inputs, and returns the configurations of `batchweave run` for both models."""
    steps = size.steps + 80
    needed = steps * size.rows * size.length + (1 << 20)
    library, text = Path(os.__file__).parent, bytearray()
    while len(text) < needed:
        for path in sorted(library.glob("*.py")):
            text += path.read_bytes()
    (folder / "text").mkdir()
    (folder / "text" / "all.txt").write_text(text.decode("utf-8", "ignore"))
    (folder / "rows").mkdir()
    for number in range(steps * size.images):
        (folder / "rows" / f"{number:07}.jsonl").write_text(f'{{"id": {number}}}\n')
    side = size.image
    tokens = f"""
stream = {{ slices = 1, rows_per_slice = {size.rows}, seq_len = {size.length} }}
tokenizer.kind = "bytes"
source = {{ paths = ["{folder}/text"], format = "text" }}
"""
    pictures = f"""
stream = {{ slices = 1, rows_per_slice = {size.images}, seq_len = 1 }}
tokenizer.kind = "bytes"
source = {{ paths = ["{folder}/rows"], format = "jsonl" }}
transform.function = "measure:picture"
transform.path = "{Path(__file__).parent}"
transform.python = "{sys.executable}"
[packing]
mode = "opaque"
arrays = [
    {{ name = "id", dtype = "I64" }},
    {{ name = "image", dtype = "U8", shape = [{side}, {side}, 3] }},
    {{ name = "caption", dtype = "I32", shape = [{CAPTION + 1}] }},
]
"""
    return {"gpt": tokens, "images and text": pictures}


@contextlib.contextmanager
def daemons(folder: Path, config: str, number: int):
    """Runs a producer and a consumer; yields the socket."""
    socket = folder / f"s{number}"
    head = f'store.url = "file://{folder}/stream-{number}"\nsocket.path = "{socket}"\n'
    head += 'job = { name = "train" }\nahead.max_steps = 64\nadmin.listen = "127.0.0.1:0"\n'
    file = folder / f"run-{number}.toml"
    file.write_text(head + config)
    words = [_programs.find("batchweave"), "run", str(file), "--until", "stopped", "--ui", "off"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not socket.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise SystemExit(f"the daemons did not start: {process.communicate()[1].decode()}")
        time.sleep(0.05)
    try:
        yield socket
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()


def from_batchweave(socket: Path, steps: int, device: str, side):
    """Yields the tensors of each step on the device, whose copies overlap with computation."""
    torch = importlib.import_module("torch")
    with batchweave.connect(
        socket, job="train", dp_rank=0, dp_size=1, limit=steps, timeout=120, connect_timeout=120
    ) as reader:
        for batch in reader:
            if "tokens" in batch:
                found = to_device(batch, side, device=device, labels="shifted")
                yield {"tokens": found["input_ids"], "labels": found["labels"]}
            else:
                found = to_device(batch, side, device=device)
                words = found["caption"].view(-1, CAPTION + 1)
                image = found["image"].view(len(words), -1)
                edge = int((image.shape[1] // 3) ** 0.5)
                image = image.view(len(words), edge, edge, 3)
                yield {
                    "tokens": words[:, :-1].long(),
                    "labels": words[:, 1:].long(),
                    "image": image,
                }
            if side is not None:
                torch.cuda.current_stream().wait_stream(side)
            del batch


def from_dataloader(dataset, batch: int, steps: int, workers: int, device: str):
    """Yields the tensors of each step on the device, from pinned memory."""
    torch = importlib.import_module("torch")
    loader = torch.utils.data.DataLoader(
        dataset,
        batch_size=batch,
        num_workers=workers,
        persistent_workers=True,
        prefetch_factor=4,
        pin_memory=device == "cuda",
    )
    for _, found in zip(range(steps), loader, strict=False):
        moved = {name: value.to(device, non_blocking=True) for name, value in found.items()}
        words = moved.get("caption", moved.get("tokens"))
        given = {"tokens": words[:, :-1].long(), "labels": words[:, 1:].long()}
        yield {**given, "image": moved["image"]} if "image" in moved else given


def train(torch, model, batches, size: Size, device: str) -> dict:
    """Trains, and returns the times; the loss of each step is read at the end."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    waits, times, losses, source = [], [], [], iter(batches)
    ended = time.perf_counter()
    while True:
        asked = time.perf_counter()
        given = next(source, None)
        waits.append(time.perf_counter() - asked)
        if given is None:
            break
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = model(**given)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if device == "cuda" and len(losses) % 8 == 0:
            # Bounds the queue of the device, so that a step's time is that of a step.
            torch.cuda.current_stream().synchronize()
        times.append(time.perf_counter() - ended)
        ended = time.perf_counter()
    read = [float(loss) for loss in losses]
    if len(read) != size.steps or not all(np.isfinite(read)):
        raise SystemExit(f"{len(read)} of {size.steps} steps, the last loss {read[-1:]}")
    some, waited = times[size.warm :], waits[size.warm : -1]
    return {
        "step_ms": 1e3 * statistics.mean(some),
        "step_p99_ms": 1e3 * sorted(some)[int(len(some) * 0.99)],
        "wait_p50_ms": 1e3 * statistics.median(waited),
        "wait_p99_ms": 1e3 * sorted(waited)[int(len(waited) * 0.99)],
        "waiting_percent": 100 * sum(waited) / sum(some),
        "steps_per_second": len(some) / sum(some),
        "first_loss": read[0],
        "last_loss": read[-1],
    }


def trained(torch, size: Size, device: str, workers: int) -> list[dict]:
    """Trains both models from both systems, in turns."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="gpu-") as made:
        folder, number = Path(made), 0
        os.environ["MEASURE_IMAGE"] = str(size.image)
        configs = inputs(folder, size)
        datasets = {
            "gpt": (Text(folder / "text" / "all.txt", size.length), size.rows),
            "images and text": (Pictures((size.steps + 1) * size.images), size.images),
        }
        for place, (name, config) in enumerate(configs.items()):
            for turn in range(size.rounds):
                for system in ("BatchWeave", "DataLoader"):
                    torch.manual_seed(1)
                    model = models(torch, size)[place].to(device)
                    side = torch.cuda.Stream() if device == "cuda" else None
                    number += 1
                    if system == "BatchWeave":
                        with daemons(folder, config, number) as socket:
                            source = from_batchweave(socket, size.steps, device, side)
                            found = train(torch, model, source, size, device)
                    else:
                        source = from_dataloader(*datasets[name], size.steps, workers, device)
                        found = train(torch, model, source, size, device)
                    if rows and rows[-1]["model"] == name:
                        drift = abs(found["first_loss"] / rows[-1]["first_loss"] - 1)
                        if drift > 0.01:
                            raise SystemExit(f"{name}: the systems' first losses differ: {drift}")
                    rows.append({"model": name, "system": system, "round": turn, **found})
                    print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def main() -> int:
    """Checks, then measures; one JSON object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="small models and few steps, for a CPU")
    parser.add_argument("--out", type=Path, help="also write the JSON into this folder")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    args = parser.parse_args()
    torch = importlib.import_module("torch")
    cuda = torch.cuda.is_available()
    if not cuda and not args.tiny:
        print("no CUDA device here: --tiny runs the script on CPUs", file=sys.stderr)
        return 2
    size, began = Size(args.tiny), time.monotonic()
    slice_bytes = 16 * MIB if cuda else MIB
    report: dict = {
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
        "missing": [] if cuda else ["CUDA: copies by DMA, and their overlap"],
    }
    with feeding(1, slice_bytes, 4, 0) as path:
        if cuda:
            report["steps_checked"] = held_until_copied(torch, path)
        report["copies"] = copies(torch, path, slice_bytes, cuda)
    segments = list(_device._second.values())
    report["registered"] = bool(segments) and not _device._told
    report["rows"] = trained(torch, size, "cuda" if cuda else "cpu", args.workers)
    report["seconds"] = round(time.monotonic() - began, 1)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "gpu.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
