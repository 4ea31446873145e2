"""What the comparisons share: arguments, programs that end with the tool, and running in turns."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "python" / "src"
"""The folder of the Python client."""
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
STOP_SECONDS = 10.0
"""The longest wait for the end of a program that has nothing more to do."""
_POLL_SECONDS = 0.01
_TICKS = os.sysconf("SC_CLK_TCK")
_LOG_LINES = 5
STORES = ("folder", "dev-s3")


class FailedError(Exception):
    """A comparison that cannot go on; the message has the cause and the remedy."""


def size(text: str) -> int:
    """Returns the bytes of a size with a unit, for argparse."""
    found = re.fullmatch(r"(\d+)(B|KiB|MiB|GiB)", text)
    if found is None or int(found[1]) == 0:
        raise argparse.ArgumentTypeError(
            f'invalid size "{text}": expected a number with a unit, for example "64MiB"'
        )
    return int(found[1]) * _UNITS[found[2]]


def sizes(text: str) -> list[str]:
    """Returns the sizes in a list with commas, as texts."""
    found = text.split(",")
    for each in found:
        size(each)
    return found


def count(text: str) -> int:
    """Returns a whole number of at least 1, for argparse."""
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'invalid number "{text}": expected at least 1')
    return int(text)


def choices(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    """Returns a function for argparse that splits a list of these words."""

    def split(text: str) -> list[str]:
        found = text.split(",")
        for each in found:
            if each not in allowed:
                raise argparse.ArgumentTypeError(f'"{each}" is not one of {", ".join(allowed)}')
        return found

    return split


def parser_of(about: str, rounds: int) -> argparse.ArgumentParser:
    """Returns a parser with the options that all comparisons have."""
    first, _, more = about.partition("\n")
    parser = argparse.ArgumentParser(
        description=first, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--batchweave",
        type=Path,
        metavar="PROGRAM",
        default=ROOT / "target" / "release" / "batchweave",
        help="built for release, beside its daemons (default: target/release/batchweave)",
    )
    add("--dir", type=Path, help="parent of the temporary folder (default: TMPDIR, or /tmp)")
    add("--rounds", type=count, default=rounds, help=f"of each side, in turns (default {rounds})")
    add("--json", action="store_true", help="one JSON object instead of a table")
    return parser


def add_stores(parser: argparse.ArgumentParser, about: str) -> None:
    """Adds the option for the stores of BatchWeave's sides."""
    parser.add_argument(
        "--stores",
        type=choices(STORES),
        default=list(STORES),
        metavar="STORES",
        help=f"{about}, of {','.join(STORES)} (default: both)",
    )


@contextlib.contextmanager
def temporary(name: str, parent: Path | None) -> Iterator[Path]:
    """Makes a folder for all files of a tool, and removes it."""
    if parent is not None and not parent.is_dir():
        raise FailedError(f"--dir {parent}: not a folder: make it, or name another one")
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=parent) as made:
        yield Path(made).absolute()


def program(path: Path) -> Path:
    """Returns the absolute path of the program `batchweave`."""
    if not os.access(path, os.X_OK):
        raise FailedError(
            f"cannot find the program {path}: build it (`make build`), or name it: "
            "--batchweave PROGRAM"
        )
    return path.absolute()


def environment(batchweave: Path, folder: Path) -> dict[str, str]:
    """Returns the environment of programs: the client, the daemons, and the temporary folder."""
    paths = [str(CLIENT), str(ROOT / "tools"), os.environ.get("PYTHONPATH", "")]
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "BATCHWEAVE_BIN_DIR": str(batchweave.parent),
        "TMPDIR": str(folder),
    }


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
        with log.open("wb") as messages:
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
            self._signal(signal.SIGTERM)
            deadline = time.monotonic() + STOP_SECONDS
            while not self.ended() and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
        self._signal(signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


def report(words: Sequence[str], env: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """Runs a program that prints one JSON object, and returns that."""
    name = " ".join([Path(words[0]).name, *words[1:3]])
    with Program(name, words, folder / "messages.log", env, piped=True) as started:
        output, _ = started.process.communicate()
        if started.process.returncode != 0:
            raise started.failed(f"ended with {started.process.returncode}")
    try:
        found: dict[str, Any] = json.loads(output)
    except ValueError as why:
        raise FailedError(f"{name} printed no JSON ({why}): {output[:200]!r}") from None
    return found


def note(text: str) -> None:
    """Writes a line about the progress."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Turns signals that end the tool into exceptions, so that all programs are stopped."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, leave) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def run(body: Callable[[], None]) -> int:
    """Runs a tool, and returns its exit code."""
    try:
        with _signals():
            body()
    except FailedError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    except OSError as failure:
        print(f"error: {failure}; is there space and a right to write?", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: all programs are stopped", file=sys.stderr)
        return 130
    return 0
