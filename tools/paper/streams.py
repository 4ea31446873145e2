"""BatchWeave's side: stores, producers and consumer daemons of a training run."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from paper.experiment import Context
from paper.programs import FailedError, Program, until
from paper.transforms import WORKLOADS

BUCKET, JOB = "batchweave", "train"
_DAEMON = """\
store.url = {url}
admin.listen = "{admin}"
log.level = "warn"
"""
_CONSUMER = """\
socket.path = {socket}
arena = {{ bytes = "{arena}MiB", segment_bytes = "64MiB", ranks = {ranks} }}
prefetch.bytes = "{prefetch}MiB"
job = {{ name = "{job}", open = true, progress_steps = 8 }}
"""
START_SECONDS = 60.0


def bound_to(cores: Sequence[int] | None) -> list[str]:
    """Returns the words that confine a command to these cores."""
    return ["taskset", "-c", ",".join(map(str, cores))] if cores else []


class Site:
    """A store with a stream and the daemons around it, until it is closed."""

    def __init__(
        self, ctx: Context, *, store: str = "folder", latency: str = "none", on_disk: bool = False
    ) -> None:
        """`store`: a folder, or a `dev-s3`, whose objects survive it with `on_disk`."""
        self.ctx, self.folder = ctx, ctx.sub("site")
        self.env: dict[str, str] = dict(ctx.env)
        self.server: Program | None = None
        self._programs: list[Program] = []
        self._words: list[str] = []
        if store == "folder":
            self.url = (self.folder / "stream").as_uri()
            return
        self._words = [ctx.batchweave, "dev-s3", "--latency", latency, "--json", "--listen"]
        self._disk = ["--dir", str(self.folder / "objects")] if on_disk else []
        self.start_server("127.0.0.1:0")

    def start_server(self, listen: str = "") -> None:
        """Starts the `dev-s3`, after its death at the same address."""
        listen = listen or self.env["AWS_ENDPOINT_URL"].removeprefix("http://")
        words = [*self._words, listen, *self._disk]
        self.server = Program("dev-s3", words, self.folder / "dev-s3.log", self.env, piped=True)
        self._programs.append(self.server)
        assert self.server.process.stdout is not None
        line = self.server.process.stdout.readline()
        if not line:
            raise self.server.failed("has not started")
        found = json.loads(line)
        self.env |= {
            "AWS_ENDPOINT_URL": found["endpoint"],
            "AWS_REGION": found["region"],
            "AWS_ACCESS_KEY_ID": found["access_key"],
            "AWS_SECRET_ACCESS_KEY": found["secret_key"],
        }
        self.url = f"s3://{BUCKET}/stream"

    def __enter__(self) -> Site:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        why: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for program in self._programs:
            program.signal(signal.SIGCONT)
        for program in reversed(self._programs):
            if program is not self.server:
                program.kill()
        if self.server is not None:
            self.server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(
        self,
        name: str,
        words: Sequence[str],
        env: Mapping[str, str] | None = None,
        cores: Sequence[int] | None = None,
    ) -> Program:
        """Starts a program that ends with the site."""
        words = [*bound_to(cores), *words]
        program = Program(name, words, self.folder / f"{name}.log", {**self.env, **(env or {})})
        self._programs.append(program)
        return program

    def daemon(
        self,
        kind: str,
        name: str,
        text: str,
        env: Mapping[str, str] | None = None,
        cores: Sequence[int] | None = None,
        admin: str = "off",
    ) -> Program:
        """Starts `batchweave-KIND` of the stream with this configuration."""
        config = self.folder / f"{name}.toml"
        config.write_text(_DAEMON.format(url=json.dumps(self.url), admin=admin) + text)
        path = str(self.ctx.bin_dir / f"batchweave-{kind}")
        return self.start(name, [path, "--config", str(config)], env, cores)

    def producer(
        self,
        index: int,
        of: int,
        given: Path,
        workload: str,
        *,
        workers: int,
        wait_ms: float = 0.0,
        lead: int = 64,
        slices: int = 8,
        blob: int = 0,
        linger: str = "200ms",
        cores: Sequence[int] | None = None,
    ) -> Program:
        """Starts a producer of rows through the workload's function; `lead` 0: no bound."""
        names = ", ".join(f'"p{n}"' for n in range(of))
        kind = WORKLOADS[workload]
        function = f"""\
transform.function = "paper.transforms:{kind.function}"
transform.python = {json.dumps(self.ctx.python)}
transform.workers = {workers}
"""
        function = function if kind.function else ""
        text = f"""\
producer = {{ name = "p{index}", index = {index}, of = {of} }}
stream = {{ slices = {slices}, rows_per_slice = 1, seq_len = 1, producers = [{names}] }}
tokenizer = {{ kind = "bytes", threads = {workers} }}
packing = {{ mode = "opaque", provenance = false, arrays = [{kind.arrays}] }}
commit.linger = "{linger}"
source = {{ paths = [{json.dumps(str(given / "rows"))}], format = "jsonl" }}
{function}
ahead = {{ max_steps = {lead}, when_no_job = "{"wait" if lead else "run"}" }}
"""
        env = {"PAPER_INPUT": str(given), "PAPER_WAIT_MS": f"{wait_ms:g}"}
        env["PAPER_BYTES"] = str(blob)
        return self.daemon("producer", f"p{index}", text, env, cores)

    def consumer(
        self,
        name: str = "s",
        *,
        job: str = JOB,
        arena_mib: int = 512,
        prefetch_mib: int = 256,
        ranks: int = 1,
        cores: Sequence[int] | None = None,
        admin: str = "off",
    ) -> tuple[Program, Path]:
        """Starts a consumer daemon once there is a stream; returns it and its socket."""
        self.until_stream()
        socket = self.folder / name
        text = _CONSUMER.format(
            socket=json.dumps(str(socket)),
            arena=arena_mib,
            prefetch=prefetch_mib,
            ranks=ranks,
            job=job,
        )
        program = self.daemon("consumer", f"consumer-{name}", text, None, cores, admin)
        return program, socket

    def status(self) -> dict[str, Any] | None:
        """Returns the state of the stream; None: there is none, or no answer."""
        words = [self.ctx.batchweave, "status", "--json", "--store", self.url]
        log = self.folder / "status.log"
        with Program("status", words, log, self.env, piped=True) as asked:
            output, _ = asked.process.communicate()
            if asked.process.returncode != 0:
                return None
        found: dict[str, Any] = json.loads(output)
        return found

    def until_stream(self) -> None:
        """Waits for the first producer to make the stream."""
        if self.url.startswith("file://"):
            made = (self.folder / "stream" / "stream.json").exists
            until(made, START_SECONDS, "no producer has made a stream")
        else:
            until(lambda: self.status() is not None, START_SECONDS, "no stream")

    def messages(self) -> str:
        """Returns the last lines of all logs, for failures."""
        found = []
        for log in sorted(self.folder.glob("*.log")):
            last = log.read_text(errors="replace").strip().splitlines()[-3:]
            found += [f"{log.stem}: {line}" for line in last]
        return " | ".join(found)[-2000:]


class Trainer:
    """A training process, whose steps are lines of a file."""

    def __init__(self, program: Program, record: Path) -> None:
        self.program, self.record = program, record

    def steps(self) -> list[dict[str, Any]]:
        """Returns the steps until now."""
        return read_steps(self.record)

    def wait(self, seconds: float, site: Site | None = None) -> list[dict[str, Any]]:
        """Waits for its success, and returns its steps."""
        try:
            self.program.wait(seconds)
        except FailedError as why:
            raise FailedError(f"{why} | {site.messages() if site else ''}") from None
        return self.steps()


def read_steps(record: Path) -> list[dict[str, Any]]:
    """Returns the steps in a record; a killed trainer's last line may be cut."""
    if not record.exists():
        return []
    whole, _, _ = record.read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def trainer(
    ctx: Context,
    folder: Path,
    words: Sequence[str],
    *,
    given: Path | None = None,
    wait_ms: float = 0.0,
    env: Mapping[str, str] | None = None,
    cores: Sequence[int] | None = None,
    name: str = "trainer",
) -> Trainer:
    """Starts a trainer; `words` are those of `python -m paper.trainer`."""
    record = folder / f"{name}-{time.monotonic_ns()}.jsonl"
    command = [*bound_to(cores), ctx.python, "-m", "paper.trainer", *words, "--record", str(record)]
    more = {"PAPER_INPUT": str(given or ""), "PAPER_WAIT_MS": f"{wait_ms:g}"}
    all_env = {**ctx.env, **(env or {}), **more}
    return Trainer(Program(name, command, folder / f"{name}.log", all_env), record)
