"""`batchweave.open` that fails, and its end: no process, file or message is left."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import eventually
from real_daemons import BINARIES, MARKS
from test_open import MEMORY, runs

import batchweave
from batchweave import _sidecar, errors

pytestmark = [*MARKS, pytest.mark.usefixtures("programs")]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("/data/stream", "file:///"),
        ("data/stream", "file:///"),
        ("file:///nowhere/at/all", "/nowhere/at/all"),
        ("ftp://host/stream", "s3://bucket/prefix"),
    ],
)
def test_a_wrong_url_is_an_error_with_the_right_form(wrong: str, text: str, programs: Path) -> None:
    with pytest.raises(errors.StreamNotOpenedError, match=text) as caught:
        batchweave.open(wrong, memory=MEMORY)
    assert "\n" not in str(caught.value)
    assert list(programs.iterdir()) == []


def test_wrong_arguments_are_refused_at_once() -> None:
    with pytest.raises(errors.BadHelloError, match='for example "256MiB"'):
        batchweave.open("file:///x", memory="lots")
    with pytest.raises(errors.BadHelloError, match="root of a stream"):
        batchweave.open("")
    with pytest.raises(errors.BadHelloError, match="timeout=0"):
        batchweave.open("file:///x", timeout=0)


def test_missing_programs_are_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BATCHWEAVE_BIN_DIR", str(tmp_path))
    with pytest.raises(errors.NoProgramError, match=r"batchweave-consumer is not in .*wheel"):
        batchweave.open("file:///x")
    monkeypatch.delenv("BATCHWEAVE_BIN_DIR")
    monkeypatch.setenv("PATH", str(tmp_path))
    if not (Path(sys.executable).parent / "batchweave-consumer").exists():
        with pytest.raises(errors.NoProgramError, match="nor on PATH"):
            batchweave.open("file:///x")
    # On PATH they are found.
    (tmp_path / "p").mkdir()
    for name in ("batchweave", "batchweave-consumer"):
        (tmp_path / "p" / name).symlink_to(BINARIES / name)
    monkeypatch.setenv("PATH", str(tmp_path / "p"))
    with pytest.raises(errors.StreamNotOpenedError, match="nowhere"):
        batchweave.open("file:///nowhere", memory=MEMORY)


def test_the_last_words_of_a_consumer_are_the_error(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, programs: Path
) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "batchweave").symlink_to(BINARIES / "batchweave")
    program = folder / "batchweave-consumer"
    program.write_text("#!/bin/sh\necho 'batchweave-consumer: no memory left' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("BATCHWEAVE_BIN_DIR", str(folder))
    with pytest.raises(errors.StreamNotOpenedError, match="no memory left"):
        batchweave.open(url)
    program.write_text("not a program")
    with pytest.raises(errors.NoProgramError, match="cannot start"):
        batchweave.open(url)
    assert list(programs.iterdir()) == []


def test_a_consumer_that_ends_is_an_error_that_says_so(url: str) -> None:
    with batchweave.open(url, memory=MEMORY, timeout=2) as stream:
        os.kill(stream._sidecar.pid, signal.SIGKILL)
        assert stream._sidecar._child.ended.wait(20)
        with pytest.raises(errors.StreamNotOpenedError, match="open the stream again"):
            list(stream)


def test_a_thread_that_opens_a_stream_may_end(url: str) -> None:
    """The system's signal follows the thread that starts a child, not the process."""
    opened: list[batchweave.Stream] = []
    thread = threading.Thread(target=lambda: opened.append(batchweave.open(url, memory=MEMORY)))
    thread.start()
    thread.join()
    with opened[0] as stream:
        assert not stream._sidecar._child.ended.wait(0.5)
        found: list[int] = []

        def read(step: int) -> None:
            found.extend(batch.step for batch in stream[step : step + 5])

        threads = [threading.Thread(target=read, args=(5 * k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == list(range(20))


OPENS = f"""
import os, sys, time
import batchweave
stream = batchweave.open(sys.argv[1], memory="{MEMORY}")
batch = stream[3]
print(stream._sidecar.pid, flush=True)
"""
FORKS = """
if os.fork() == 0:
    raise SystemExit(stream[5].step)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 5
assert stream[4].step == 4
"""


def begin(program: str, url: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", program, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise AssertionError(process.communicate()[1])
    return process, int(line)


@pytest.mark.parametrize("more", ["", FORKS, "del stream\n", "os.environ.clear()\n"])
def test_a_program_that_closes_nothing_leaves_nothing(url: str, programs: Path, more: str) -> None:
    process, pid = begin(OPENS + more, url)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")
    eventually(lambda: not runs(pid))
    assert list(programs.iterdir()) == []


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_program_leaves_no_consumer(
    url: str, programs: Path, sign: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, pid = begin(OPENS + "sys.stdin.read()\n", url)
    assert runs(pid)
    process.send_signal(sign)
    assert process.wait(20) == -sign
    process.communicate()
    eventually(lambda: not runs(pid))
    # Its small files are removed when the next stream is opened, and those of the living are not.
    monkeypatch.setattr(_sidecar, "_LEFT_AFTER_SECONDS", -1.0)
    with batchweave.open(url, memory=MEMORY) as one, batchweave.open(url, memory=MEMORY) as two:
        assert len(list(programs.iterdir())) == 2
        assert one[1].step == two[1].step == 1


def test_interrupts_do_not_reach_the_consumer(url: str) -> None:
    wait = """
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print(stream[5].step)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", OPENS + wait, url],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "5\n"
    eventually(lambda: not runs(pid))


def test_a_stream_stays_in_its_process(url: str) -> None:
    with (
        batchweave.open(url, memory=MEMORY) as stream,
        pytest.raises(TypeError, match=r"call batchweave\.open there"),
    ):
        pickle.dumps(stream)
