"""A consumer daemon as a child of this process, for `batchweave.open`.

It stops when this process ends, however that happens: the system sends it a signal (the option
`--end-with`). That signal follows the end of the *thread* that has started it, so a thread starts
it, waits for its end, and thereby reaps it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
import weakref
from pathlib import Path

from batchweave import _programs
from batchweave._launch import SOCKET_PATH_BYTES_MAX
from batchweave.errors import BadHelloError, NoProgramError, StreamNotOpenedError

PROGRAM = "batchweave-consumer"
_PREFIX = "batchweave-open-"
_LOG_TAIL_BYTES = 8192
# A daemon without a job has nothing to store when it stops.
_STOP_SECONDS = 3.0
# Folders of processes that were killed: not of one that is about to lock its own.
_LEFT_AFTER_SECONDS = 60.0

_CONFIG = """\
[store]
url = {url}
[arena]
{arena}
[socket]
path = {socket}
mode = "0600"
[prefetch]
steps = 16
[shutdown]
deadline = "1s"
[admin]
listen = "off"
[log]
level = "warn"
"""


class Sidecar:
    """A running consumer daemon without a job, and the private folder of its files."""

    def __init__(self, url: str, memory: str | None) -> None:
        program = _programs.find(PROGRAM)
        _remove_left()
        self._child = _Child(Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_base())))
        # Also when nobody closes the stream, and at the interpreter's exit.
        self._finalizer = weakref.finalize(self, _Child.stop, self._child)
        self.socket = str(self._child.folder / "consumer.sock")
        config = self._child.folder / "consumer.toml"
        config.write_text(_config(url, memory, self.socket), encoding="utf-8")
        self._child.start([program, "--config", str(config), "--end-with", str(os.getpid())])

    @property
    def pid(self) -> int:
        """The process id of the daemon."""
        process = self._child.process
        assert process is not None
        return process.pid

    @property
    def ended(self) -> bool:
        """Whether the daemon has ended."""
        return self._child.ended.is_set()

    def check(self) -> None:
        """Raises an error with the daemon's last words if it has ended."""
        if self.ended:
            raise StreamNotOpenedError(self.last_words() or "its consumer ended without a message")

    def last_words(self) -> str:
        """Returns the last lines of the daemon's log."""
        return self._child.last_words()

    def stop(self) -> None:
        """Ends the daemon and removes its folder."""
        self._finalizer()


class _Child:
    """The process, its folder, and the thread that waits for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        self.ended = threading.Event()
        self._owner = os.getpid()
        self._failure: OSError | None = None
        # Held until this process ends: see `_remove_left`.
        self._lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def start(self, command: list[str]) -> None:
        started = threading.Event()
        thread = threading.Thread(
            target=self._run, args=(command, started), name=PROGRAM, daemon=True
        )
        thread.start()
        started.wait()
        if self._failure is not None:
            raise NoProgramError(f"cannot start {command[0]}: {self._failure}") from None

    def _run(self, command: list[str], started: threading.Event) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in _WITHOUT}
        try:
            with (self.folder / "log").open("ab") as log:
                self.process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    env=environment,
                    # Ctrl-C in a terminal is for this process alone.
                    start_new_session=True,
                )
        except OSError as error:
            self._failure = error
            self.ended.set()
            started.set()
            return
        started.set()
        self.process.wait()
        self.ended.set()

    def last_words(self) -> str:
        try:
            with (self.folder / "log").open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
                tail = log.read(_LOG_TAIL_BYTES)
        except OSError:
            return ""
        return _programs.last_lines(tail, f"{PROGRAM}: ")

    def stop(self) -> None:
        # A forked process inherits the object, but not the child.
        if os.getpid() != self._owner:
            return
        if self.process is not None and not self.ended.is_set():
            self.process.terminate()
            if not self.ended.wait(_STOP_SECONDS):
                self.process.kill()
                self.ended.wait(_STOP_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


# RUST_LOG would fill the log; a service manager's socket is this process's.
_WITHOUT = ("NOTIFY_SOCKET", "RUST_LOG")


def _config(url: str, memory: str | None, socket: str) -> str:
    arena = ""
    if memory is not None:
        mib = _mib(memory)
        # A segment must fit in the arena.
        arena = f'bytes = "{mib}MiB"\nsegment_bytes = "{min(mib, 64)}MiB"'
    return _CONFIG.format(url=_text(url), arena=arena, socket=_text(socket))


def _mib(memory: str) -> int:
    found = re.fullmatch(r"(\d{1,9})(MiB|GiB)", memory)
    size = int(found[1]) * {"MiB": 1, "GiB": 1024}[found[2]] if found else 0
    if not size:
        raise BadHelloError(f'memory={memory!r}: give whole MiB or GiB, for example "256MiB"')
    return size


def _text(value: str) -> str:
    """Returns a TOML string: JSON's, but for characters that only TOML needs escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def _base() -> str:
    """Returns the folder of temporary files, or /tmp where a socket's path would be too long."""
    base = tempfile.gettempdir()
    longest = len(os.fsencode(base)) + len(f"/{_PREFIX}12345678/consumer.sock")
    return base if longest <= SOCKET_PATH_BYTES_MAX else "/tmp"


def _remove_left() -> None:
    """Removes the folders of this user's processes that were killed: nothing locks them."""
    old = time.time() - _LEFT_AFTER_SECONDS
    for folder in Path(_base()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid != os.getuid() or folder.lstat().st_mtime > old:
                continue
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
