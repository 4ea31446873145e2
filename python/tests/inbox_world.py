"""Inboxes for tests: real stores, stores with faults on request, and what is stored."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import obstore
import obstore.exceptions
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from obstore.store import S3Store
from real_daemons import BINARIES

from batchweave.inbox import Writer
from batchweave.inbox._core import Core, Listing
from batchweave.inbox._drive import Driver
from batchweave.inbox._local import LocalFolder
from batchweave.inbox._store import ExistsError, TransientError, number_of

DEV_S3 = [
    pytest.mark.daemons,
    pytest.mark.skipif(
        not (BINARIES / "batchweave-lab").exists() and os.environ.get("CI") != "true",
        reason=f"no batchweave-lab in {BINARIES}: build it, or set BATCHWEAVE_BIN_DIR",
    ),
]
WORKER = [sys.executable, str(Path(__file__).with_name("inbox_worker.py"))]


class Stored(NamedTuple):
    """One stored file, as pyarrow reads it."""

    number: int
    rows: list[dict[str, Any]]
    metadata: dict[str, str]


def stored(files: dict[str, bytes]) -> list[Stored]:
    """Returns the files of a writer in the order of their numbers."""
    found = []
    for name, data in sorted(files.items()):
        number = number_of(name)
        if number is None:
            continue
        file = pq.ParquetFile(io.BytesIO(data))
        metadata = {
            key.decode().removeprefix("batchweave."): value.decode()
            for key, value in (file.metadata.metadata or {}).items()
            if key.startswith(b"batchweave.")
        }
        found.append(Stored(number, file.read().to_pylist(), metadata))
    return found


def in_folder(folder: Path) -> list[Stored]:
    """Returns the files in a writer's folder."""
    return stored({path.name: path.read_bytes() for path in folder.iterdir()})


def read_as_producer(files: list[Stored]) -> list[dict[str, Any]]:
    """Returns all rows in order, and checks that the files are a writer's without a gap."""
    rows: list[dict[str, Any]] = []
    for at, file in enumerate(files):
        assert file.number == at, [each.number for each in files]
        assert int(file.metadata["first_row"]) == len(rows)
        assert int(file.metadata["rows"]) == len(file.rows)
        rows += file.rows
    return rows


class ScriptedStore:
    """A local folder whose next requests fail or wait as a test says."""

    def __init__(self, folder: Path) -> None:
        self.local = LocalFolder(folder)
        self.place = self.local.place
        self.faults: list[str] = []
        """For the next PUTs: "lost", "failed", "conflict" or "ok"."""
        self.list_faults = 0
        """LISTs that fail from now on."""
        self.replaces = False
        """Whether a PUT replaces an existing object."""
        self.before_put: Callable[[], None] = lambda: None
        self.puts: list[str] = []
        self.lists = 0

    def create(self, name: str, data: bytes) -> None:
        self.puts.append(name)
        self.before_put()
        fault = self.faults.pop(0) if self.faults else "ok"
        if fault == "failed":
            raise TransientError("no answer (test)")
        if fault == "conflict":
            raise ExistsError(name)
        if self.replaces:
            (Path(self.place) / name).unlink(missing_ok=True)
        self.local.create(name, data)
        if fault == "lost":
            raise TransientError("answer lost (test)")

    def numbers(self, after: int | None) -> Listing:
        self.lists += 1
        if self.list_faults:
            self.list_faults -= 1
            raise TransientError("no list (test)")
        return self.local.numbers(after)

    def delete(self, name: str) -> None:
        self.local.delete(name)

    def tail(self, name: str, count: int) -> tuple[bytes, int] | None:
        return self.local.tail(name, count)


def writer_on(
    store: ScriptedStore,
    instance: str = "a" * 16,
    *,
    deadline: float = 60.0,
    linger: float = 60.0,
    probes: bool = False,
) -> Writer:
    """Opens the writer `w` on a scripted store."""
    driver = Driver(store, "w", Core(instance, probes=probes), deadline)
    driver.run()
    return Writer(driver, store.place, "w", file_bytes=1 << 20, linger=linger)


class Held:
    """Holds the next PUT of a store until it is released."""

    def __init__(self, store: ScriptedStore) -> None:
        self.reached, self._released = threading.Event(), threading.Event()
        store.before_put = self._wait

    def _wait(self) -> None:
        self.reached.set()
        assert self._released.wait(60)

    def release(self) -> None:
        self._released.set()


Answer = TypeVar("Answer")


def insist(ask: Callable[[], Answer]) -> Answer:
    """Asks a server with faults until it answers."""
    for _ in range(200):
        with contextlib.suppress(obstore.exceptions.BaseError):
            return ask()
    return ask()


class DevS3:
    """A dev-s3 process, and its address as arguments and environment."""

    def __init__(self, *arguments: str) -> None:
        command = [str(BINARIES / "batchweave-lab"), "dev-s3", "--listen", "127.0.0.1:0", "--json"]
        self.process = subprocess.Popen(
            [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        self.ready = json.loads(self.process.stdout.readline())
        self.arguments: dict[str, Any] = {
            "endpoint": self.ready["endpoint"],
            "access_key": self.ready["access_key"],
            "secret_key": self.ready["secret_key"],
        }
        self.environment = {
            "AWS_ENDPOINT_URL": self.ready["endpoint"],
            "AWS_ACCESS_KEY_ID": self.ready["access_key"],
            "AWS_SECRET_ACCESS_KEY": self.ready["secret_key"],
            "AWS_REGION": self.ready["region"],
        }

    def files(self, prefix: str) -> dict[str, bytes]:
        """Returns the objects below a prefix, in spite of the faults of this server."""
        store = S3Store(
            "batchweave",
            endpoint=self.ready["endpoint"],
            access_key_id=self.ready["access_key"],
            secret_access_key=self.ready["secret_key"],
            region=self.ready["region"],
            client_options={"allow_http": True},
        )
        paths = insist(
            lambda: [meta["path"] for chunk in obstore.list(store, prefix) for meta in chunk]
        )

        def get(path: str) -> bytes:
            return insist(lambda: bytes(obstore.get(store, path).bytes()))

        return {path.rpartition("/")[2]: get(path) for path in paths}

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
