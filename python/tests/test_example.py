"""examples/train_loop.py as a process: killed, started again, it counts every token once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from conftest import eventually
from fake_daemon import ROWS, SEQ_LEN, FakeDaemon

EXAMPLE = Path(__file__).parents[1] / "examples" / "train_loop.py"


def test_the_training_loop_goes_on_from_its_checkpoint(path: Path, tmp_path: Path) -> None:
    end = 4_000
    environment = {**os.environ, "BATCHWEAVE_SOCKET": str(path)}
    command = [sys.executable, str(EXAMPLE), str(tmp_path)]
    with FakeDaemon(path, end=end, slices=2) as daemon:
        for kills in range(2):
            rank = subprocess.Popen(command, env=environment)
            eventually(lambda n=kills: len(daemon.peers) > n and bool(daemon.peers[n].checkpoints))  # type: ignore[misc]
            rank.send_signal(signal.SIGKILL)
            rank.wait(10)
        said = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=60
        ).stdout
    assert said == f"rank 0: {end * 2 * ROWS * SEQ_LEN} tokens\n"
    hellos = [peer.hello for peer in daemon.peers]
    assert [hello["mode"] for hello in hellos] == ["join"] * 3
    assert len({hello["attempt"] for hello in hellos}) == 3
    for before, after in zip(daemon.peers, hellos[1:], strict=False):
        assert after["next_step"] >= before.checkpoints[0][0]
        assert after["parent"] == {
            "attempt": 0,
            "id": before.hello["attempt"],
            "step": after["next_step"],
        }
    assert daemon.peers[-1].checkpoints[-1][0] == end
