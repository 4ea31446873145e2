"""BatchWeave's side: stores, producers and consumer daemons of a training run; and trainers."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paper.experiment import Context
from paper.programs import FailedError, Program, until
from paper.transforms import WORKLOADS

BUCKET, JOB = "batchweave", "train"
START_SECONDS = 60.0
_DAEMON = """\
store.url = {url}
admin.listen = "{admin}"
log.level = "warn"
"""
_PRODUCER = """\
producer = {{ name = "p{index}", index = {index}, of = {of} }}
stream = {{ slices = {slices}, rows_per_slice = 1, seq_len = 1, producers = [{names}] }}
tokenizer = {{ kind = "bytes", threads = {workers} }}
packing = {{ mode = "opaque", provenance = false, arrays = [{arrays}] }}
commit.linger = "{linger}"
source = {{ paths = ["{rows}"], format = "jsonl" }}
ahead = {{ max_steps = {lead}, when_no_job = "{when}" }}
"""
_TRANSFORM = """\
transform.function = "paper.transforms:{workload}"
transform.python = "{python}"
transform.workers = {workers}
"""
_CONSUMER = """\
socket.path = "{socket}"
arena = {{ bytes = "{arena}MiB", segment_bytes = "64MiB", ranks = {ranks} }}
prefetch.bytes = "{prefetch}MiB"
job = {{ name = "{job}", open = true, progress_steps = 8 }}
"""
Cores = Sequence[int] | None


def bound_to(cores: Cores) -> list[str]:
    """Returns the words that confine a command to these cores."""
    return ["taskset", "-c", ",".join(map(str, cores))] if cores else []


class Site:
    """A store with a stream and the daemons around it, until it is closed."""

    def __init__(
        self, ctx: Context, *, store: str = "folder", latency: str = "none", on_disk: bool = False
    ) -> None:
        """`store`: a folder, or a `dev-s3`, whose objects survive it with `on_disk`."""
        self.ctx, self.folder, self.env = ctx, ctx.sub("site"), dict(ctx.env)
        self._programs: list[Program] = []
        self.url = (self.folder / "stream").as_uri()
        if store != "folder":
            self._words = [ctx.batchweave, "dev-s3", "--json", "--latency", latency]
            self._words += ["--dir", str(self.folder / "objects")] if on_disk else []
            self.url = f"s3://{BUCKET}/stream"
            self.start_server("127.0.0.1:0")

    def start_server(self, listen: str = "") -> None:
        """Starts the `dev-s3`, after its death at the same address."""
        listen = listen or self.env["AWS_ENDPOINT_URL"].removeprefix("http://")
        words, log = [*self._words, "--listen", listen], self.folder / "dev-s3.log"
        self.server = Program("dev-s3", words, log, self.env, piped=True)
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

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        for program in reversed(self._programs):
            program.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def daemon(
        self,
        kind: str,
        name: str,
        text: str,
        env: Mapping[str, str] | None = None,
        cores: Cores = None,
        admin: str = "off",
    ) -> Program:
        """Starts `batchweave-KIND` of the stream with this configuration."""
        config = self.folder / f"{name}.toml"
        config.write_text(_DAEMON.format(url=json.dumps(self.url), admin=admin) + text)
        words = [str(self.ctx.bin_dir / f"batchweave-{kind}"), "--config", str(config)]
        log, all_env = self.folder / f"{name}.log", {**self.env, **(env or {})}
        self._programs.append(Program(name, [*bound_to(cores), *words], log, all_env))
        return self._programs[-1]

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
        cores: Cores = None,
    ) -> Program:
        """Starts a producer of rows through the workload's function; `lead` 0: no bound."""
        text = _PRODUCER.format(
            index=index,
            of=of,
            names=", ".join(f'"p{n}"' for n in range(of)),
            slices=slices,
            workers=workers,
            arrays=WORKLOADS[workload].arrays,
            linger=linger,
            rows=given / "rows",
            lead=lead,
            when="wait" if lead else "run",
        )
        if WORKLOADS[workload].function:
            python = self.ctx.python
            text += _TRANSFORM.format(workload=workload, python=python, workers=workers)
        env = {"PAPER_INPUT": str(given), "PAPER_WAIT_MS": f"{wait_ms:g}", "PAPER_BYTES": str(blob)}
        return self.daemon("producer", f"p{index}", text, env, cores)

    def consumer(
        self,
        name: str = "s",
        *,
        job: str = JOB,
        arena: int = 512,
        prefetch: int = 256,
        ranks: int = 1,
        cores: Cores = None,
        admin: str = "off",
        more: str = "",
    ) -> tuple[Program, Path]:
        """Starts a consumer daemon once there is a stream; returns it and its socket.

        `more`: further lines of its configuration.
        """
        until(lambda: self.status() is not None, START_SECONDS, "no producer has made a stream")
        socket = self.folder / name
        text = _CONSUMER.format(socket=socket, arena=arena, prefetch=prefetch, ranks=ranks, job=job)
        return self.daemon("consumer", f"consumer-{name}", text + more, None, cores, admin), socket

    def status(self) -> dict[str, Any] | None:
        """Returns the state of the stream; None: there is none, or no answer."""
        words = [self.ctx.batchweave, "status", "--json", "--store", self.url]
        with Program("status", words, self.folder / "s.log", self.env, piped=True) as asked:
            try:
                found: dict[str, Any] = json.loads(asked.answer())
            except FailedError:
                return None
        return found

    def check(self) -> None:
        """Fails when a daemon has."""
        for program in self._programs:
            if program.process.returncode is None and program.ended():
                program.wait(1)

    def messages(self) -> str:
        """Returns the last lines of all logs, for failures."""
        found = []
        for log in sorted(self.folder.glob("*.log")):
            last = log.read_text(errors="replace").strip().splitlines()[-3:]
            found += [f"{log.stem}: {line}" for line in last]
        return " | ".join(found)[-2000:]


class Trainer(Program):
    """A training process, whose steps are lines of a file."""

    def __init__(
        self,
        ctx: Context,
        folder: Path,
        words: Sequence[str],
        *,
        given: Path | None = None,
        wait_ms: float = 0.0,
        cores: Cores = None,
        name: str = "trainer",
    ) -> None:
        """Starts it; `words` are those of `python -m paper.trainer`."""
        self.record = folder / f"{name}-{time.monotonic_ns()}.jsonl"
        command = [*bound_to(cores), ctx.python, "-m", "paper.trainer", *words]
        command += ["--record", str(self.record)]
        env = {**ctx.env, "PAPER_INPUT": str(given or ""), "PAPER_WAIT_MS": f"{wait_ms:g}"}
        super().__init__(name, command, folder / f"{name}.log", env)

    def steps(self) -> list[dict[str, Any]]:
        """Returns the steps until now; a killed trainer's last line may be cut."""
        whole = self.record.read_text() if self.record.exists() else ""
        return [json.loads(line) for line in whole.rpartition("\n")[0].splitlines()]

    def trained(self, seconds: float = 600.0, site: Site | None = None) -> list[dict[str, Any]]:
        """Waits for its success, and returns its steps."""

        def done() -> bool:
            if site is not None:
                site.check()
            return self.ended()

        with self:
            try:
                until(done, seconds, "", self)
                self.wait(1)
            except FailedError as why:
                raise FailedError(f"{why} | {site.messages() if site else ''}") from None
        return self.steps()
