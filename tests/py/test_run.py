"""`batchweave run`: both daemons from one file, restarted when they die, until training ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import batchweave
import pytest
from site_of_daemons import BINARIES, ROOT, eventually

CONFIG, BAD_INPUT = 64, 65
STEPS = 40
KILLED = "ended with signal: 9 (SIGKILL); starting it again in 1 s; log: "


class Run:
    """A run of one file in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "c.sock"
        self.file = folder / "mine.toml"
        text = "".join(json.dumps({"text": f"word{n} " * 100}) + "\n" for n in range(60))
        (folder / "corpus.jsonl").write_text(text)
        self.configure()
        self.process: subprocess.Popen[bytes] | None = None

    def configure(
        self,
        extra: str = "",
        source: str = "corpus.jsonl",
        stream: str = "{ slices = 2, rows_per_slice = 2, seq_len = 256 }",
    ) -> None:
        """Write the file; the root of the stream does not exist."""
        self.file.write_text(
            f"""
            store.url = "file://{self.folder}/root/stream"
            source.paths = ["{self.folder}/{source}"]
            stream = {stream}
            tokenizer.kind = "bytes"
            arena.bytes = "64MiB"
            {extra}
            """
        )

    def command(self, *options: str) -> list[str]:
        return [str(BINARIES / "batchweave"), "run", str(self.file), *options]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "BATCHWEAVE_SOCKET": str(self.socket), "NO_COLOR": "1"}

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        with (self.folder / "run.out").open("wb") as out:
            self.process = subprocess.Popen(
                self.command(*options),
                stdout=out,
                stderr=subprocess.STDOUT,
                env=self.environment(),
            )
        return self.process

    def complete(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run to the end, and return its output."""
        return subprocess.run(
            self.command(*options),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            env=self.environment(),
        )

    def output(self) -> str:
        return (self.folder / "run.out").read_text()

    def log(self, daemon: str) -> str:
        path = self.folder / "mine.logs" / f"{daemon}.log"
        return path.read_text() if path.exists() else ""

    def everything(self) -> str:
        return "\n".join([self.output(), self.log("producer"), self.log("consumer")])

    def waits(self, what: str) -> None:
        """Wait until the output has these words."""
        eventually(what, lambda: what in self.output(), output=self.everything)

    def train(self, **options: object) -> int:
        """Read to the end of the stream as one rank, and return the number of steps."""
        with batchweave.connect(str(self.socket), job="train", **options) as reader:  # type: ignore[arg-type]
            return sum(1 for _ in reader)

    def count(self) -> tuple[int, int]:
        """Read to the end of the stream as one rank, and return the number of steps and tokens."""
        with batchweave.connect(str(self.socket), job="train") as reader:
            sizes = [batch.inputs.size for batch in reader]
        return len(sizes), sum(sizes)

    def steps(self) -> int:
        """Return the number of steps in the stream."""
        command = [str(BINARIES / "batchweave"), "status", "--json"]
        store = f"--store=file://{self.folder}/root/stream"
        ended = subprocess.run([*command, store], capture_output=True, check=True, timeout=60)
        return int(json.loads(ended.stdout)["head"]["steps"])

    def ends(self) -> int:
        assert self.process
        return self.process.wait(timeout=300)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    try:
        yield run
    finally:
        if run.process and run.process.poll() is None:
            run.process.kill()
            run.process.wait()


def children(process: subprocess.Popen[bytes]) -> dict[str, int]:
    """Return the process ids of the daemons by name."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        parent = int(text.rsplit(")", 1)[1].split()[1])
        if parent == process.pid:
            line = (path.parent / "cmdline").read_bytes()
            found[Path(line.split(b"\0")[0].decode()).name] = int(path.parent.name)
    return found


def test_a_run_ends_by_itself_when_the_job_has_taken_all(run: Run) -> None:
    process = run.start()
    # The trainer may be there first: it waits for the daemon.
    assert run.train() == STEPS
    assert run.ends() == 0, run.everything()
    output = run.output()
    for line in [
        f"stream    file://{run.folder}/root/stream",
        f"logs      {run.folder}/mine.logs",
        f'connect   batchweave.connect("{run.socket}", job="train")',
        f"the producer has finished: {STEPS} batches, {STEPS * 1024} tokens",
        f"done: job train has taken all {STEPS} steps",
    ]:
        assert line in output, output
    assert children(process) == {}
    assert not run.socket.exists()
    # Again: nothing is left to produce, and a second training is served and ends it too.
    run.start()
    run.waits("the producer has finished")
    assert run.train(fresh=True) == STEPS
    assert run.ends() == 0, run.everything()
    assert (run.folder / "mine.logs" / "producer.log.1").exists()


def test_a_daemon_that_dies_is_started_again_and_a_signal_ends_both(run: Run) -> None:
    run.configure("source.epochs = 0\nahead.max_steps = 200\n")
    process = run.start("--until", "stopped")
    with batchweave.connect(str(run.socket), job="train") as reader:
        for batch in reader:
            if batch.step == 20:
                os.kill(children(process)["batchweave-consumer"], signal.SIGKILL)
                run.waits(f"consumer: {KILLED}")
            if batch.step == 300:
                os.kill(children(process)["batchweave-producer"], signal.SIGKILL)
                run.waits(f"producer: {KILLED}")
            if batch.step == 700:
                break
    daemons = children(process)
    assert set(daemons) == {"batchweave-consumer", "batchweave-producer"}
    process.send_signal(signal.SIGINT)
    assert run.ends() == 0, run.everything()
    assert run.output().endswith("stopped; the same command continues\n")
    for pid in daemons.values():
        assert not Path(f"/proc/{pid}").exists()
    assert "stopped; a restart continues from here" in run.log("producer")


def test_daemons_end_with_a_run_that_is_killed(run: Run) -> None:
    run.configure("source.epochs = 0\nahead.max_steps = 200\n")
    process = run.start()
    eventually("both", lambda: len(children(process)) == 2, output=run.everything)
    eventually("serving", lambda: "serving" in run.log("consumer"), output=run.everything)
    daemons = children(process)
    process.kill()
    process.wait()
    eventually(
        "their end",
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in daemons.values()),
        output=run.everything,
    )
    assert "stopping" in run.log("consumer")


def test_a_run_is_bounded_until_ranks_read(run: Run) -> None:
    run.configure(stream="{ slices = 1, rows_per_slice = 1, seq_len = 16 }")
    run.start()
    eventually(
        "a hold", lambda: "held back by job train" in run.log("producer"), output=run.everything
    )
    words = (
        r"lead      at most 1,000 steps and .* ahead of the slowest rank; ahead.max_steps in the"
    )
    assert re.search(words, run.output()), run.output()
    # The hold counts batches whose commit is under way, so the stream may grow a little after it.
    eventually("700 steps", lambda: run.steps() > 700, output=run.everything)
    assert run.steps() <= 1000
    steps, tokens = run.count()
    assert run.ends() == 0, run.everything()
    assert steps == run.steps() > 2000
    finished = re.search(r"finished: .* batches=(\d+) .* tokens=(\d+)", run.log("producer"))
    assert finished
    assert (int(finished[1]), int(finished[2])) == (steps, tokens)


def test_a_bound_of_the_file_wins(run: Run) -> None:
    run.configure("ahead.max_steps = 0", stream="{ slices = 1, rows_per_slice = 1, seq_len = 16 }")
    run.start("--until", "stopped")
    run.waits("the producer has finished")
    assert "lead      no bound: all input is stored as fast as it can be\n" in run.output()
    assert run.steps() > 2000


def test_nothing_starts_with_a_file_that_a_daemon_refuses(run: Run) -> None:
    run.configure('arena.segment_bytes = "65MiB"\n')
    failed = run.complete()
    assert failed.returncode == CONFIG, failed
    assert "65MiB is more than arena.bytes (64MiB): not one segment fits; lower it" in failed.stderr
    assert not run.folder.joinpath("root").exists()
    assert not run.folder.joinpath("mine.logs").exists()
    run.file.write_text(run.file.read_text().replace("64MiB", "16MiB").replace("65MiB", "16MiB"))
    assert run.complete("--check").returncode == 0
    run.file.unlink()
    absent = run.complete()
    assert absent.returncode == CONFIG, absent
    assert "--config" not in absent.stderr
    assert "give the path of the configuration file" in absent.stderr


def test_progress_is_printed_for_programs_too(run: Run) -> None:
    run.start("--json")
    assert run.train() == STEPS
    assert run.ends() == 0, run.everything()
    lines = [json.loads(line) for line in run.output().splitlines()]
    assert lines[0]["run"]["stream"].endswith("/root/stream")
    assert {"ended": f"done: job train has taken all {STEPS} steps"} == lines[-1]
    for line in lines:
        assert len(line) == 1, line
        assert set(line) <= {"run", "progress", "event", "ended"}


def test_a_second_run_of_the_file_is_refused(run: Run) -> None:
    run.start("--until", "stopped")
    run.waits("the producer has finished")
    second = run.complete()
    assert second.returncode == 1, second
    assert "mine.toml is run by another process" in second.stderr
    assert "is locked" in second.stderr


def test_mistakes_of_both_daemons_are_reported_with_their_lines(run: Run) -> None:
    run.configure("source.feild = 'x'\njob.kep = 3\n")
    for options in [["--check"], []]:
        failed = run.complete(*options)
        assert failed.returncode == CONFIG, failed
        assert f"{run.file}:7:20: source.feild: unknown key; did you mean `source.field`?" in (
            failed.stderr
        )
        assert f"{run.file}:8:5: job.kep: unknown key; did you mean `job.keep`?" in failed.stderr
    run.file.write_text("[sorce]\npaths = ['x']\n")
    failed = run.complete()
    assert failed.returncode == CONFIG, failed
    assert "sorce: unknown key; did you mean `source`?" in failed.stderr
    assert "store.url: must be given" in failed.stderr
    assert not run.folder.joinpath("root").exists()


def test_an_unusable_input_ends_the_run_with_its_code(run: Run) -> None:
    run.configure(source="absent/*.jsonl")
    failed = run.complete()
    assert failed.returncode == BAD_INPUT, failed
    assert re.search(r"error: producer: source\.paths: .* matches no file", failed.stderr), failed
    assert "mine.logs/producer.log" in failed.stderr


def test_the_shipped_file_is_correct(run: Run) -> None:
    shipped = (ROOT / "config" / "run.toml").read_text()
    (run.folder / "corpus").mkdir()
    (run.folder / "corpus" / "a.jsonl").write_text('{"text": "a"}\n')
    text = shipped.replace("/var/tmp/my-stream", f"{run.folder}/stream")
    # Its commented keys are right too.
    text = re.sub(r"(?m)^# (\[\w+\]|\w+ = .*)$", r"\1", text)
    text = text.replace("/run/batchweave/", f"{run.folder}/")
    run.file.write_text(text.replace("corpus/", f"{run.folder}/corpus/"))
    checked = run.complete("--check")
    assert checked.returncode == 0, checked
    assert checked.stdout.endswith(f"{run.file}: ok\n")
    assert "no folder yet: a producer creates it" in checked.stdout
    assert not (run.folder / "stream").exists()
