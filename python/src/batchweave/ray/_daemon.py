"""One producer daemon as the child of a Ray actor's process: its start, its end, its last words.

The daemon stops when the actor's process ends, however that happens (the option `--end-with`).
That signal follows the end of the thread that started the child, so this thread waits for it.
"""

from __future__ import annotations

import collections
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from batchweave import _programs
from batchweave.errors import BatchWeaveError

PROGRAM = "batchweave-producer"
PERMANENT = (64, 65, 73, 75)
"""Exit codes after which a start changes nothing, as in deploy/systemd."""
_LINES = 12
_LINE_CHARS_MAX = 500


class ProducerFailedError(BatchWeaveError):
    """A producer daemon ended with a code after which a start changes nothing."""

    name = "producer_failed"


class ProducerEndedError(BatchWeaveError):
    """A producer daemon ended, and is started again."""

    name = "producer_ended"


class Daemon:
    """A producer daemon; `run` in one thread, `stop` in any other."""

    def __init__(self, producer: str, config: str, settings: list[str]) -> None:
        self._producer, self._config, self._settings = producer, config, settings
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._is_stopped = False
        self._paused = threading.Event()

    @property
    def pid(self) -> int | None:
        """The process id of the daemon, None while none runs."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def run(self, pause: float) -> bool:
        """Runs the daemon to its end; returns whether its input has ended, and not by `stop`.

        Raises a ProducerFailedError for an end after which a start changes nothing, and after
        `pause` seconds a ProducerEndedError for any other.
        """
        with tempfile.TemporaryDirectory(prefix="batchweave-ray-") as folder:
            file = Path(folder) / "producer.toml"
            file.write_text(self._config, encoding="utf-8")
            command = [_programs.find(PROGRAM), "--config", str(file)]
            for setting in self._settings:
                command += ["--set", setting]
            command += ["--end-with", str(os.getpid())]
            with self._lock:
                if self._is_stopped:
                    return False
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "NO_COLOR": "1"},
                )
            last = self._repeat_output(self._process)
            code = self._process.wait()
        if code == 0:
            return not self._is_stopped
        said = " | ".join(last).replace(str(file), "the configuration") or "it wrote nothing"
        if code in PERMANENT:
            raise ProducerFailedError(
                f"the producer {self._producer} has ended with exit code {code} and is not started "
                f"again: {said}"
            )
        how = f"was killed by {_signal(-code)}" if code < 0 else f"has ended with exit code {code}"
        self._paused.wait(pause)
        raise ProducerEndedError(f"the producer {self._producer} {how}, starting again: {said}")

    def stop(self) -> None:
        """Lets the daemon commit what is in flight and end; `run` then returns."""
        with self._lock:
            self._is_stopped = True
            self._paused.set()
            if self._process is not None:
                self._process.terminate()

    def _repeat_output(self, process: subprocess.Popen[bytes]) -> collections.deque[str]:
        """Copies the daemon's log into that of the actor, and keeps its end."""
        last: collections.deque[str] = collections.deque(maxlen=_LINES)
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                text = line.decode(errors="replace").rstrip()
                print(f"{self._producer}: {text}", file=sys.stderr, flush=True)
                last.append(text.strip()[:_LINE_CHARS_MAX])
        return last


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
