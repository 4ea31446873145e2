"""BatchWeave's side of the comparison with loaders: streams, producers and consumer daemons."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rivals.blob_files import SLICES, STEP_SAMPLES, Input
from rivals.common import FailedError, Program

_RUN_SECONDS = 600.0
_START_SECONDS = 60.0
_BUCKET = "batchweave"
_DAEMON = """\
store.url = {url}
admin.listen = "off"
log.level = "warn"
"""
_PRODUCER = """\
producer.name = "p0"
stream = {{ slices = {slices}, rows_per_slice = {rows}, seq_len = 1, producers = ["p0"] }}
tokenizer.kind = "bytes"
packing.mode = "opaque"
packing.arrays = [{{ name = "blob", dtype = "U8" }}]
source = {{ paths = [{folder}], format = "npy" }}
"""
_CONSUMER = """\
socket.path = {socket}
arena = {{ bytes = "512MiB", segment_bytes = "64MiB" }}
follow.starved = "10ms"
"""


class Programs:
    """The programs of BatchWeave, and a folder for their files."""

    def __init__(self, batchweave: Path, folder: Path, env: Mapping[str, str]) -> None:
        self.batchweave, self.folder, self._env = batchweave, folder, env
        self._started = 0

    def start(
        self, name: str, words: list[str], env: Mapping[str, str], *, piped: bool = False
    ) -> Program:
        """Starts a program with a log of its own."""
        self._started += 1
        log = self.folder / f"{name}-{self._started}.log"
        return Program(name, words, log, {**self._env, **env}, piped=piped)

    def daemon(self, name: str, text: str, stream: Stream) -> Program:
        """Starts `batchweave-NAME` of a stream."""
        config = self.folder / f"{name}-{self._started}.toml"
        config.write_text(_DAEMON.format(url=json.dumps(stream.url)) + text)
        path = self.batchweave.with_name(f"batchweave-{name}")
        return self.start(name, [str(path), "--config", str(config)], stream.env)


class Stream:
    """An empty place for a stream, in a folder or in a `dev-s3` in memory, until it is closed."""

    def __init__(self, programs: Programs, store: str, name: str) -> None:
        self._programs = programs
        self.env: dict[str, str] = {}
        self._server: Program | None = None
        if store == "folder":
            place = programs.folder / name
            place.mkdir()
            self.url = place.as_uri()
        else:
            words = [str(programs.batchweave), "dev-s3", "--listen", "127.0.0.1:0", "--json"]
            self._server = programs.start("dev-s3", words, {}, piped=True)
            self.url = f"s3://{_BUCKET}/{name}"
            self.env = _credentials(self._server)

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        why: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.stop()
        else:
            _remove(Path(self.url.removeprefix("file://")))

    def cpu_seconds(self) -> float:
        """Returns the CPU time of its server until now."""
        return self._server.cpu_seconds() if self._server is not None else 0.0

    def init(self, stored: Stream) -> None:
        """Makes a stream with the parameters of another one."""
        programs = self._programs
        status = [str(programs.batchweave), "status", "--json", "--store", stored.url]
        with programs.start("status", status, stored.env, piped=True) as asked:
            output, _ = asked.process.communicate()
            if asked.process.returncode != 0:
                raise asked.failed("failed")
        shape = json.loads(output)["stream"]
        words = [str(programs.batchweave), "init", "--store", self.url, "--producers", "p0"]
        for name in ("slices", "rows_per_slice", "seq_len"):
            words += [f"--{name.replace('_', '-')}", str(shape[name])]
        for name in ("name", "fingerprint"):
            option = "tokenizer" if name == "name" else name
            words += [f"--{option}", shape["tokenizer"][name]]
        with programs.start("init", words, self.env) as made:
            made.wait(_START_SECONDS)


def _credentials(server: Program) -> dict[str, str]:
    """Returns the variables for clients of a `dev-s3`, once it is ready."""
    assert server.process.stdout is not None
    line = server.process.stdout.readline()
    if not line:
        raise server.failed("has not started")
    found = json.loads(line)
    return {
        "AWS_ENDPOINT_URL": found["endpoint"],
        "AWS_REGION": found["region"],
        "AWS_ACCESS_KEY_ID": found["access_key"],
        "AWS_SECRET_ACCESS_KEY": found["secret_key"],
    }


def _remove(folder: Path) -> None:
    subprocess.run(["rm", "-rf", str(folder)], check=False)


def producer(programs: Programs, stream: Stream, given: Input) -> Program:
    """Starts a producer of the files."""
    text = _PRODUCER.format(
        slices=SLICES, rows=STEP_SAMPLES // SLICES, folder=json.dumps(str(given.folder))
    )
    return programs.daemon("producer", text, stream)


def store(programs: Programs, stream: Stream, given: Input) -> None:
    """Commits all files."""
    with producer(programs, stream, given) as made:
        made.wait(_RUN_SECONDS)


@contextlib.contextmanager
def consumer(
    programs: Programs, stream: Stream, text: str = _CONSUMER
) -> Iterator[tuple[Program, Path]]:
    """Runs a consumer daemon with this configuration; returns it and its socket."""
    socket = programs.folder / "s"
    text = text.format(socket=json.dumps(str(socket)))
    with programs.daemon("consumer", text, stream) as daemon:
        yield daemon, socket
    socket.unlink(missing_ok=True)


def trained(
    programs: Programs, python: str, words: list[str], module: str = "trainer"
) -> Trainer:
    """Starts a trainer, and returns it once it is ready."""
    command = [python, "-m", f"rivals.{module}", *words]
    return Trainer(programs.start("trainer", command, {}, piped=True))


class Trainer:
    """A process that reads batches."""

    def __init__(self, started: Program) -> None:
        self._program = started
        assert started.process.stdout is not None
        try:
            if started.process.stdout.readline() != "ready\n":
                started.process.wait()
                raise FailedError(
                    f"{started.failed('has not started')}; give a Python with numpy, and torch for "
                    "the loaders: --python PROGRAM"
                )
        except BaseException:
            started.stop()
            raise

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        self._program.stop()

    def run(self) -> dict[str, Any]:
        """Lets it read, and returns its figures."""
        try:
            output, _ = self._program.process.communicate("go\n", timeout=_RUN_SECONDS)
        except subprocess.TimeoutExpired:
            raise self._program.failed(f"has not ended in {_RUN_SECONDS:g} s") from None
        if self._program.process.returncode != 0:
            raise self._program.failed(f"ended with {self._program.process.returncode}")
        try:
            found: dict[str, Any] = json.loads(output)
        except ValueError:
            raise FailedError(f"the trainer printed no JSON: {output[:200]!r}") from None
        return found
