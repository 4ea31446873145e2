"""Programs that end with the harness, and the environment in which they run."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "python" / "src"
"""The folder of the Python client."""
STOP_SECONDS = 10.0
_POLL_SECONDS = 0.01
_TICKS = os.sysconf("SC_CLK_TCK")
_LOG_LINES = 5


class FailedError(Exception):
    """An experiment that cannot go on; the message has the cause and the remedy."""


class WrongError(FailedError):
    """A result that contradicts what BatchWeave promises, as a lost sample."""


def environment(bin_dir: Path, folder: Path) -> dict[str, str]:
    """Returns the environment of programs: the client, the harness and the temporary folder."""
    paths = [str(CLIENT), str(ROOT / "tools"), os.environ.get("PYTHONPATH", "")]
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "BATCHWEAVE_BIN_DIR": str(bin_dir),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(folder),
    }


def bound_to(cores: Sequence[int] | None) -> list[str]:
    """Returns the words that confine a command to these cores."""
    return ["taskset", "-c", ",".join(map(str, cores))] if cores else []


class Program:
    """A program in a session of its own, which ends with all that it has started."""

    def __init__(
        self,
        name: str,
        words: Sequence[str | os.PathLike[str]],
        log: Path,
        env: Mapping[str, str] | None = None,
        *,
        piped: bool = False,
    ) -> None:
        """Starts it, with its messages in the file `log`; `piped`: with pipes to and from it."""
        self.name, self.log = name, log
        pipe = subprocess.PIPE if piped else None
        with log.open("ab") as messages:
            try:
                self.process: subprocess.Popen[str] = subprocess.Popen(
                    [os.fspath(word) for word in words],
                    env=dict(env) if env is not None else None,
                    stdin=pipe or subprocess.DEVNULL,
                    stdout=pipe or messages,
                    stderr=messages,
                    text=True,
                    start_new_session=True,
                )
            except OSError as why:
                raise FailedError(f"cannot start {name}: {why}") from None

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def ended(self) -> bool:
        """Returns whether it has ended. It stays a zombie, so that its CPU time can be read."""
        if self.process.returncode is not None:
            return True
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.process.pid, options) is not None

    def cpu_seconds(self) -> float:
        """Returns its CPU time until now, with that of processes that it has waited for."""
        text = Path(f"/proc/{self.process.pid}/stat").read_text()
        fields = text.rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS

    def wait(self, seconds: float) -> None:
        """Waits for its end, which must be a success."""
        deadline = time.monotonic() + seconds
        while not self.ended():
            if time.monotonic() > deadline:
                raise self.failed(f"has not ended in {seconds:g} s")
            time.sleep(_POLL_SECONDS)
        found = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        if found is not None and (found.si_code != os.CLD_EXITED or found.si_status != 0):
            raise self.failed(f"failed ({found.si_status})")

    def failed(self, what: str) -> FailedError:
        """Returns an error with the last lines of its messages."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        said = " | ".join(lines[-_LOG_LINES:]) or "it wrote no message"
        return FailedError(f"{self.name} {what}: {said}")

    def stop(self) -> None:
        """Ends it and its group, first with SIGTERM."""
        if self.process.returncode is None:
            self.signal(signal.SIGTERM)
            deadline = time.monotonic() + STOP_SECONDS
            while not self.ended() and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Kills it and its group."""
        self.signal(signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def signal(self, number: int) -> None:
        """Sends a signal to its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


def lines(words: Sequence[str], env: Mapping[str, str], log: Path) -> list[dict[str, Any]]:
    """Runs a program that prints JSON objects, and returns them."""
    name = " ".join([Path(words[0]).name, *words[1:3]])
    with Program(name, words, log, env, piped=True) as started:
        output, _ = started.process.communicate()
        if started.process.returncode != 0:
            raise started.failed(f"ended with {started.process.returncode}")
    decoder, found, at = json.JSONDecoder(), [], 0
    output = output.strip()
    try:
        while at < len(output):
            value, at = decoder.raw_decode(output, at)
            found.append(value)
            while at < len(output) and output[at].isspace():
                at += 1
    except ValueError as why:
        raise FailedError(f"{name} printed no JSON ({why}): {output[:200]!r}") from None
    return found


def packages(python: str, names: Mapping[str, str]) -> dict[str, str]:
    """Returns the versions of those packages, by their import, that a Python has."""
    program = (
        "import importlib.metadata as m, importlib.util as u, json, sys\n"
        "names = json.loads(sys.argv[1])\n"
        "has = [n for n in names if u.find_spec(n.split('.')[0])]\n"
        "print(json.dumps({n: m.version(names[n]) for n in has}))\n"
    )
    words = [python, "-c", program, json.dumps(names)]
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise FailedError(f"--python {python} does not run: {run.stderr.strip()[-300:]}")
    found: dict[str, str] = json.loads(run.stdout)
    return found


def has(name: str) -> bool:
    """Returns whether this Python has a package."""
    return importlib.util.find_spec(name) is not None


def note(text: str) -> None:
    """Writes a line about the progress."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def signals_end() -> Iterator[None]:
    """Turns signals that end the harness into exceptions, so that all programs are stopped."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, leave) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def until(done: Callable[[], bool], seconds: float, what: str) -> None:
    """Polls until something is true."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise FailedError(f"{what}: not within {seconds:g} s")
        time.sleep(_POLL_SECONDS)
