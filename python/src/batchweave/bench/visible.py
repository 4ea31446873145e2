"""From `put` of a row to the trainer's `next()`: a writer, a producer, a consumer and a trainer.

Rows flow at a steady rate; each carries its number. Of each row four instants are noted: its
`put`, the one when it is durable, the one when a batch with it is in the stream's log, and the one
when `next()` has returned that batch.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import batchweave
from batchweave import _programs, inbox
from batchweave.errors import BatchWeaveError
from batchweave.inbox._location import folder_of
from batchweave.inbox._store import DIGITS, Store, TransientError

ROW_BYTES = 1000
_RECORD_BYTES_MAX = 1 << 20
_START_SECONDS = 120.0
_WARM_STEPS = 20
"""Steps before the measured ones, in which everything starts and catches up."""

_PRODUCER = """\
store.url = {stream}
stream = {{ slices = 1, rows_per_slice = {step_rows}, seq_len = 1 }}
producer.name = "p0"
source = {{ paths = [{inbox}], inbox = true, follow_every = "{follow_every_ms}ms" }}
packing.mode = "opaque"
packing.arrays = [{{ name = "number", dtype = "I64" }}, {{ name = "body", dtype = "U8" }}]
commit.linger = "{commit_linger_ms}ms"
tokenizer.threads = 1
log.level = "warn"
"""
_CONSUMER = """\
store.url = {stream}
job = {{ name = "bench", open = true }}
socket.path = {socket}
arena = {{ bytes = "32MiB", segment_bytes = "8MiB" }}
follow.starved = "{starved_ms}ms"
admin.listen = "off"
log.level = "warn"
"""


class Setting(NamedTuple):
    """The settings that the latency depends on."""

    linger: float = 0.2
    """Seconds for which the writer waits for more rows."""
    rate: float = 40.0
    """Rows per second."""
    step_rows: int = 4
    """Rows per step: the last ones of a file wait for those of the next."""
    follow_every_ms: int = 100
    """Interval between the producer's polls."""
    commit_linger_ms: int = 1
    """Time that a batch waits for others to share an object."""
    starved_ms: int = 50
    """Interval between polls of the log by the consumer."""


class Instants:
    """The four instants of each row, by the clock of this machine, in seconds."""

    def __init__(self) -> None:
        self.put: list[float] = []
        self.durable: list[float] = []
        self.committed: dict[int, float] = {}
        """By step."""
        self.next: dict[int, float] = {}
        self.step: dict[int, int] = {}
        """The step of each row."""

    def waits(self, rows: range) -> dict[str, list[float]]:
        """Returns milliseconds of these rows, by the part of the way."""

        def committed(row: int) -> float:
            # The poll of the log may see a record later than the trainer has its batch.
            seen = self.committed.get(self.step[row], self.next[row])
            return min(seen, self.next[row])

        ways = {
            "put_to_durable_ms": [self.durable[row] - self.put[row] for row in rows],
            "durable_to_committed_ms": [committed(row) - self.durable[row] for row in rows],
            "committed_to_next_ms": [self.next[row] - committed(row) for row in rows],
            "put_to_committed_ms": [committed(row) - self.put[row] for row in rows],
            "put_to_next_ms": [self.next[row] - self.put[row] for row in rows],
        }
        return {name: [seconds * 1e3 for seconds in values] for name, values in ways.items()}


Watch = Callable[[str, Instants, threading.Event], None]
"""Notes the instants of the commits of a stream until the event is set."""


def measure(
    location: str, samples: int, setting: Setting, watch: Watch | None = None
) -> dict[str, Any]:
    """Returns p50 and p99 of every part of the way, in milliseconds.

    Without `watch`, the log is polled for commits.
    """
    root = f"{location.rstrip('/')}-visible/{secrets.token_hex(4)}"
    place, stream = f"{root}/inbox", f"{root}/stream"
    seen, stop = Instants(), threading.Event()
    with (
        tempfile.TemporaryDirectory(prefix="batchweave-bench-") as made,
        _daemons(Path(made), place, stream, setting) as socket,
        inbox.open(place, "w", linger=setting.linger) as writer,
    ):
        threads = [
            threading.Thread(target=_write, args=(writer, setting, seen, stop)),
            threading.Thread(target=_watch_writer, args=(writer, seen, stop)),
            threading.Thread(target=watch or watch_log, args=(stream, seen, stop)),
        ]
        try:
            for thread in threads:
                thread.start()
            rows = _train(socket, samples, seen)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    return {
        "rows": len(rows),
        **setting._asdict(),
        **{name: quantiles(values) for name, values in seen.waits(rows).items()},
    }


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Returns p50, p99 and the maximum."""
    ordered = sorted(values)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 1)

    return {"p50": at(0.5), "p99": at(0.99), "max": round(ordered[-1], 1)}


def _train(socket: Path, samples: int, seen: Instants) -> range:
    """Reads the rows of a number of batches, and then those that are measured."""
    measured = range(0)
    with _connected(socket) as reader:
        for batch in reader:
            now, step = time.monotonic(), batch.step
            for number in batch["number"].tolist():
                seen.next[number], seen.step[number] = now, step
            del batch
            if step == _WARM_STEPS:
                measured = range(len(seen.put), len(seen.put) + samples)
            if measured and number >= measured[-1]:
                return measured
    raise BatchWeaveError("the stream ended before the measurement")


@contextlib.contextmanager
def _connected(socket: Path) -> Iterator[batchweave.Reader]:
    deadline = time.monotonic() + _START_SECONDS
    while not socket.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    with batchweave.connect(
        socket, job="bench", dp_rank=0, dp_size=1, connect_timeout=_START_SECONDS
    ) as reader:
        yield reader


def _write(writer: inbox.Writer, setting: Setting, seen: Instants, stop: threading.Event) -> None:
    body = os.urandom(ROW_BYTES)
    due = time.monotonic()
    while not stop.is_set():
        seen.put.append(time.monotonic())
        writer.put({"number": len(seen.put) - 1, "body": body})
        due += 1 / setting.rate
        stop.wait(max(0.0, due - time.monotonic()))


def _watch_writer(writer: inbox.Writer, seen: Instants, stop: threading.Event) -> None:
    while not stop.wait(0.001):
        durable, now = writer.durable_rows, time.monotonic()
        seen.durable += [now] * (durable - len(seen.durable))


def watch_log(stream: str, seen: Instants, stop: threading.Event) -> None:
    """Polls the log of a stream, and notes when each step is in it."""
    none = dict.fromkeys(("endpoint", "region", "access_key", "secret_key", "session_token"))
    log = folder_of(stream, "log", None, _RECORD_BYTES_MAX, **none)
    version = step = 0
    while not stop.wait(0.003):
        record = _record(log, version)
        if record is None:
            continue
        now = time.monotonic()
        version += 1
        for entry in record["entries"]:
            for _ in entry.get("tgbs", []):
                # One producer, so steps are in the order of its batches.
                seen.committed[step] = now
                step += 1


def _record(log: Store, version: int) -> dict[str, Any] | None:
    try:
        found = log.tail(f"{version:0{DIGITS}}.json", _RECORD_BYTES_MAX)
    except TransientError:
        return None
    if found is None:
        return None
    record: dict[str, Any] = json.loads(found[0])
    return record


@contextlib.contextmanager
def _daemons(folder: Path, place: str, stream: str, setting: Setting) -> Iterator[Path]:
    """Runs a producer of this writer's files, and a consumer of its stream."""
    socket = folder / "s"
    root = stream if "://" in stream else Path(stream).absolute().as_uri()
    if root.startswith("file://"):
        Path(root.removeprefix("file://")).mkdir(parents=True, exist_ok=True)
    places = {
        "stream": json.dumps(root),
        "socket": json.dumps(str(socket)),
        "inbox": json.dumps(place),
    }
    started: list[subprocess.Popen[bytes]] = []
    try:
        for program, text in (("producer", _PRODUCER), ("consumer", _CONSUMER)):
            config = folder / f"{program}.toml"
            config.write_text(text.format(**places, **setting._asdict()))
            command = [_programs.find(f"batchweave-{program}"), "--config", str(config)]
            if program == "consumer":
                _await_stream(root, started[0])
            started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))
        yield socket
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def _await_stream(root: str, producer: subprocess.Popen[bytes]) -> None:
    """Waits until the producer has made the stream."""
    none = dict.fromkeys(("endpoint", "region", "access_key", "secret_key", "session_token"))
    parent, _, last = root.rpartition("/")
    folder = folder_of(parent, last, None, _RECORD_BYTES_MAX, **none)
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if producer.poll() is not None:
            raise BatchWeaveError(
                f"the producer of {root} has ended with {producer.returncode}: see its message"
            )
        with contextlib.suppress(TransientError):
            if folder.tail("stream.json", 1) is not None:
                return
        time.sleep(0.02)
    raise BatchWeaveError(f"the producer has not made {root} in {_START_SECONDS:g} s")
