"""The demo's rank as a process: killed at any instant, its file has every step once."""

from __future__ import annotations

import json
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from fake_daemon import SHAPE, FakeDaemon, tokens_of


def records(data: bytes) -> list[tuple[int, int, bytes]]:
    found, at = [], 0
    while at < len(data):
        step, number, size = struct.unpack_from("<QII", data, at)
        at += 16
        found.append((step, number, data[at : at + size]))
        at += size
    assert at == len(data)
    return found


def test_a_rank_that_is_killed_goes_on_from_its_state(path: Path, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    out, state, end = tmp_path / "out", tmp_path / "state", 2_990
    command = [sys.executable, "-m", "batchweave.demo_rank", "--socket", str(path), "--job", "demo"]
    command += ["--rank", "1", "--world", "2", "--steps", str(end), "--save-every", "3"]
    command += ["--attempt", "ab" * 16, "--mark-every", "1000"]
    command += ["--state-file", str(state), "--out", str(out), "--timeout", "30"]
    with FakeDaemon(path, slices=2) as daemon:
        kills = 0
        while kills < 3:
            rank = subprocess.Popen(command, stdout=subprocess.PIPE)
            before = out.stat().st_size if out.exists() else 0
            due = before + chance.randrange(1, 100_000)
            deadline = time.monotonic() + 30
            while not out.exists() or out.stat().st_size < due:
                assert rank.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.001)
            rank.send_signal(signal.SIGKILL)
            rank.communicate()
            kills += 1
        last = json.loads(state.read_text())
        assert out.stat().st_size >= last["bytes"] > 0
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=300, check=True)
        marked = {step for peer in daemon.peers for step, _ in peer.checkpoints}
    assert marked == {1000, 2000, end}
    report = json.loads(done.stdout)
    first = json.loads(last["state"]["batchweave"])["next_step"]
    assert report == {"rank": 1, "first_step": first, "steps": end - first}
    found = records(out.read_bytes())
    assert [(step, number) for step, number, _ in found] == [
        (step, number) for step in range(end) for number in (2, 3)
    ]
    for step, number, data in found:
        tokens = np.frombuffer(data, np.uint16).reshape(SHAPE)
        assert (tokens == tokens_of(step, number)).all()


def test_a_rank_without_a_daemon_says_so(path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "batchweave.demo_rank", "--socket", str(path), "--rank", "0"]
    command += ["--world", "1", "--steps", "1", "--timeout", "0.2"]
    command += ["--state-file", str(tmp_path / "state"), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("rank 0: no consumer daemon answers at ")
