"""Programs that end with the harness, and the environment in which they run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_POLL_SECONDS, _LOG_LINES = 0.01, 5
_TICKS = os.sysconf("SC_CLK_TCK")


class FailedError(Exception):
    """An experiment that cannot go on; the message has the cause and the remedy."""


class WrongError(FailedError):
    """A result that contradicts what BatchWeave promises, as a lost sample."""


def environment(bin_dir: Path, folder: Path) -> dict[str, str]:
    """Returns the environment of programs: the client, the harness and the temporary folder."""
    paths = [str(ROOT / "python" / "src"), str(ROOT / "tools"), os.environ.get("PYTHONPATH", "")]
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "BATCHWEAVE_BIN_DIR": str(bin_dir),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(folder),
    }


def note(text: str) -> None:
    """Writes a line about the progress."""
    print(text, file=sys.stderr, flush=True)


class Program:
    """A program in a session of its own, which ends with all that it has started."""

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        log: Path,
        env: Mapping[str, str] | None = None,
        *,
        piped: bool = False,
    ) -> None:
        """Starts it, with its messages in the file `log`; `piped`: with pipes to and from it."""
        self.name, self.log = name, log
        pipe = subprocess.PIPE if piped else None
        with log.open("ab") as messages:
            self.process: subprocess.Popen[str] = subprocess.Popen(
                words,
                env=dict(env) if env is not None else None,
                stdin=pipe or subprocess.DEVNULL,
                stdout=pipe or messages,
                stderr=messages,
                text=True,
                start_new_session=True,
            )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def ended(self) -> bool:
        """Returns whether it has ended. It stays a zombie, so that its CPU time can be read."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        done = self.process.returncode is not None
        return done or os.waitid(os.P_PID, self.process.pid, options) is not None

    def cpu_seconds(self) -> float:
        """Returns its CPU time until now, with that of processes that it has waited for."""
        text = Path(f"/proc/{self.process.pid}/stat").read_text()
        return sum(map(int, text.rpartition(")")[2].split()[11:15])) / _TICKS

    def wait(self, seconds: float) -> None:
        """Waits for its end, which must be a success."""
        until(self.ended, seconds, self.name, self)
        found = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        if found is not None and (found.si_code != os.CLD_EXITED or found.si_status != 0):
            raise self.failed(f"failed ({found.si_status})")

    def answer(self) -> str:
        """Returns what a piped program prints until its end, which must be a success."""
        output, _ = self.process.communicate()
        if self.process.returncode != 0:
            raise self.failed(f"ended with {self.process.returncode}")
        return output

    def failed(self, what: str) -> FailedError:
        """Returns an error with the last lines of its messages."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        said = " | ".join(lines[-_LOG_LINES:]) or "it wrote no message"
        return FailedError(f"{self.name} {what}: {said}")

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
    """Runs a program that prints JSON objects, a line for each, and returns them."""
    name = " ".join([Path(words[0]).name, *words[1:3]])
    with Program(name, words, log, env, piped=True) as started:
        return [json.loads(line) for line in started.answer().splitlines()]


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
        raise FailedError(f"{python} does not run: {run.stderr.strip()[-300:]}")
    found: dict[str, str] = json.loads(run.stdout)
    return found


def until(
    done: Callable[[], bool], seconds: float, what: str, program: Program | None = None
) -> None:
    """Polls until something is true."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            late = f"not within {seconds:g} s"
            raise program.failed(late) if program else FailedError(f"{what}: {late}")
        time.sleep(_POLL_SECONDS)
