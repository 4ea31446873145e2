"""Ctrl-C at any instant: no batch is lost, repeated, or of another stream.

BATCHWEAVE_LONG=1 reads 20,000 steps in place of 4,000, and interrupts at each instruction in place
of every other line; a handler calls the reader at each line in place of every third.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import preempted
import pytest
from conftest import eventually
from fake_daemon import FakeDaemon

LONG = bool(os.environ.get("BATCHWEAVE_LONG"))


def test_interrupts_lose_and_double_nothing(path: Path) -> None:
    seed, end = random.randrange(1 << 32), 20_000 if LONG else 4_000
    print("seed", seed)
    program = [sys.executable, str(Path(__file__).with_name("interrupted.py"))]
    with FakeDaemon(path, end=end) as daemon:
        rank = subprocess.Popen(
            [*program, str(path), str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert rank.stdout is not None
        # A rank that waits for ever fails only this test.
        stuck = threading.Timer(900, rank.kill)
        stuck.start()
        try:
            got, interrupts = json.loads(rank.stdout.readline())
            assert got == list(range(end))
            assert interrupts > 20
            eventually(lambda: all(peer.gone.is_set() for peer in daemon.peers))
            assert rank.poll() is None, "the sockets closed before the process ended"
        finally:
            stuck.cancel()
            rank.communicate()


def test_an_interrupt_at_any_line_loses_nothing(path: Path) -> None:
    program = [sys.executable, str(Path(__file__).with_name("interrupted_once.py"))]
    moments = ("opcode", "1") if LONG else ("line", "2")
    with FakeDaemon(path, end=2, slots=4096):
        run = subprocess.run(
            [*program, str(path), "2", *moments], stdout=subprocess.PIPE, timeout=900
        )
    lines, wrong = json.loads(run.stdout)
    assert wrong == []
    assert lines > 500


@pytest.mark.parametrize("mode", ["marks", "closes", "exits", "stops"])
def test_a_handler_calls_the_reader_at_any_line(path: Path, mode: str) -> None:
    """A preempted rank marks its checkpoint, closes and exits, wherever the signal finds it."""
    program = [sys.executable, str(Path(__file__).with_name("interrupted_calls.py"))]
    # Sessions are torn at every second line, so the stride is odd.
    stride = "1" if LONG else "3"
    with FakeDaemon(path, end=2, slots=4096):
        run = subprocess.run(
            [*program, str(path), mode, stride], stdout=subprocess.PIPE, timeout=900
        )
    lines, wrong = json.loads(run.stdout)
    assert wrong == []
    assert lines > 200


@pytest.mark.parametrize("way", ["main", "thread", "dataset"])
def test_a_rank_that_is_preempted_while_it_waits_marks_its_checkpoint(path: Path, way: str) -> None:
    program = [sys.executable, str(Path(__file__).with_name("preempted.py"))]
    with FakeDaemon(path) as daemon:
        daemon.ready, daemon.marks_after = preempted.STEPS, 0.3
        with subprocess.Popen(
            [*program, str(path), way], stdout=subprocess.PIPE, text=True
        ) as rank:
            assert rank.stdout is not None
            steps = [int(rank.stdout.readline()) for _ in range(preempted.STEPS)]
            eventually(lambda: any(peer.progress for peer in daemon.peers))
            rank.send_signal(signal.SIGTERM)
            assert rank.wait(300) == preempted.CODE
        assert steps == [*range(preempted.STEPS)]
        marks = [step for peer in daemon.peers for step, _ in peer.checkpoints]
        assert set(marks) == {preempted.STEPS}
