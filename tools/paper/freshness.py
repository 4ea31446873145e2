"""Freshness: the time from the commit of a batch to the return of the waiting `next()`."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import select
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from paper import transforms
from paper.experiment import Context, Experiment, Measure, Outcome, in_turns, quantile
from paper.programs import until
from paper.streams import BUCKET, START_SECONDS, Site, Trainer

_APPEARED, _EVENT = 0x100 | 0x80, struct.Struct("iIII")
_MAGIC = b"BWDEVS3\x01"
"""The begin of a file in which `dev-s3 --dir` keeps an object; its key follows."""
WARM = 20


def run(ctx: Context, out: Outcome) -> None:
    """Measures a folder, and a store with the latencies of S3 Standard."""
    out.notes.append(
        "batches of 1 kB, one at a time. The moment of a commit is that at which the record's file "
        "appears, by inotify"
    )
    steps = ctx.of(10, 80, 200)
    s3 = {"store": "dev-s3", "latency": "s3-standard"}
    sides: dict[str, Measure] = {
        "folder": functools.partial(_measured, ctx, 15, steps),
        "dev-s3, s3-standard": functools.partial(_measured, ctx, 4, steps, **s3),
        "the same without quick polls": functools.partial(
            _measured, ctx, 4, steps, **s3, follow="follow.quick_polls = 0\n"
        ),
    }
    found = in_turns(1, sides)
    out.rows += [{"store": name, **values} for name, values in found.items()]
    late = sum(int(values["noticed_late"]) for values in found.values())
    if late:
        out.notes.append(
            f"{late} commits were noticed after the rank had their batch, since other programs had "
            "the cores: their times are too short; repeat it on an idle machine"
        )
    out.at_most("folder, p50, ms", found["folder"]["p50_ms"], 15)


def _measured(ctx: Context, rate: float, steps: int, **more: str) -> dict[str, float]:
    times = waits(ctx, (1, 1000), rate, WARM + steps, **more)[WARM:]
    return {
        "p50_ms": 1e3 * quantile(times, 0.5),
        "p99_ms": 1e3 * quantile(times, 0.99),
        "noticed_late": sum(time < 0 for time in times),
    }


def waits(
    ctx: Context,
    shape: tuple[int, int],
    rate: float,
    steps: int,
    *,
    store: str = "folder",
    latency: str = "none",
    follow: str = "",
) -> Sequence[float]:
    """Returns the seconds of each step. A batch has `shape[0]` slices of `shape[1]` bytes."""
    (slices, blob), given = shape, ctx.sub("blobs") / "input"
    transforms.make(given, "blob", steps * slices, steps * slices)
    pace = {"lead": 10_000, "wait_ms": 1e3 / rate / slices, "linger": "1ms"}
    with Site(ctx, store=store, latency=latency, on_disk=True) as site:
        site.producer(0, 1, given, "blob", workers=1, slices=slices, blob=blob, **pace)  # type: ignore[arg-type]
        folder, prefix = site.folder / "stream" / "log", ""
        if store != "folder":
            folder, prefix = site.folder / "objects" / BUCKET, "stream/log/"
        with noted(folder, prefix) as commits:
            _, socket = site.consumer(more=follow)
            words = ["batchweave", "--place", str(socket), "--steps", str(steps)]
            made = Trainer(ctx, site.folder, words).trained(600, site)
        return [float(step["wall"]) - commits[step["step"]] for step in made]


@contextlib.contextmanager
def noted(folder: Path, prefix: str) -> Iterator[list[float]]:
    """Notes the moment at which each step of one producer is committed, until the end.

    `prefix`: that of the log's keys in the bucket whose objects are in `folder`; without it, the
    folder is the log.
    """
    commits: list[float] = []
    stop, known = threading.Event(), set[str]()

    def watch() -> None:
        for name, now in _appearing(folder, stop):
            if name not in known:
                known.add(name)
                commits.extend([now] * _steps(folder / name, prefix))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield commits
    finally:
        stop.set()
        watching.join()


def _appearing(folder: Path, stop: threading.Event) -> Iterator[tuple[str, float]]:
    """Yields the names of files as they appear, with the moment; some twice."""
    libc, path = ctypes.CDLL(None, use_errno=True), os.fsencode(folder)
    events = libc.inotify_init1(os.O_CLOEXEC)
    # The first commit makes the folder.
    added = functools.partial(libc.inotify_add_watch, events, path, _APPEARED)
    until(lambda: stop.is_set() or added() >= 0, START_SECONDS, f"cannot watch {folder}")
    ready = select.poll()
    ready.register(events, select.POLLIN)
    yield from ((path.name, time.time()) for path in sorted(folder.glob("*")))
    while not stop.is_set():
        if ready.poll(50):
            now, data = time.time(), os.read(events, 1 << 16)
            while data:
                end = _EVENT.size + _EVENT.unpack_from(data)[3]
                yield os.fsdecode(data[_EVENT.size : end].rstrip(b"\0")), now
                data = data[end:]
    os.close(events)


def _steps(path: Path, prefix: str) -> int:
    """Returns the steps of the log record in a file; none of other files, also of those gone."""
    if path.suffix not in (".json", ".obj") or not path.exists():
        return 0
    data = path.read_bytes()
    if prefix:
        at = len(_MAGIC) + 4
        end = at + int.from_bytes(data[at - 4 : at], "little")
        if not data.startswith(_MAGIC) or not json.loads(data[at:end])["key"].startswith(prefix):
            return 0
        data = data[end:]
    return sum(len(entry.get("tgbs", [])) for entry in json.loads(data).get("entries", []))


EXPERIMENT = Experiment(
    "freshness", "commits to waiting ranks", "a goal of this project: 15 ms in a folder", run
)
