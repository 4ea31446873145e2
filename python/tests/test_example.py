"""examples/train_loop.py as a process: killed, started again, it counts every token once. And
examples/plot_losses.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from conftest import eventually
from examples_run import EXAMPLES, daemons_of
from fake_daemon import ROWS, SEQ_LEN, FakeDaemon
from real_daemons import BINARIES, MARKS

EXAMPLE = EXAMPLES / "train_loop.py"


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
            command, env=environment, capture_output=True, text=True, check=True, timeout=300
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


@pytest.mark.parametrize("_", [pytest.param(None, marks=MARKS, id="real")])
def test_the_training_loop_reads_the_stream_of_its_own_daemons(_: None, tmp_path: Path) -> None:
    environment = {**os.environ, "BATCHWEAVE_SOCKET": str(tmp_path / "s")}
    command = [sys.executable, str(EXAMPLE), str(tmp_path)]
    with daemons_of("train_loop", tmp_path) as daemons:
        rank = subprocess.Popen(command, env=environment)
        checkpoint = tmp_path / "checkpoint.json"
        eventually(lambda: checkpoint.exists() or rank.poll() is not None, 120)
        rank.send_signal(signal.SIGKILL)
        rank.wait(10)
        said = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=120
        ).stdout
        assert daemons.wait(120) == 0, (tmp_path / "daemons.log").read_text()
    asked = [str(BINARIES / "batchweave"), "status", "--json", f"--store=file://{tmp_path}/stream"]
    status = json.loads(subprocess.run(asked, capture_output=True, check=True).stdout)
    assert said == f"rank 0: {status['head']['steps'] * 4 * 3 * 64} tokens\n"
    assert status["head"]["steps"] > 200


def test_losses_are_drawn_with_a_mark_where_another_process_went_on(tmp_path: Path) -> None:
    runs = {"calm": [1] * 6, "hurt": [1, 1, 1, 1, 2, 2, 2]}
    for name, pids in runs.items():
        steps = [0, 1, 2, 3, 3, 4, 5] if name == "hurt" else range(6)
        lines = [
            json.dumps({"step": step, "loss": 6 - step, "pid": pid}) + "\n"
            for step, pid in zip(steps, pids, strict=True)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    out = tmp_path / "losses.svg"
    words = [f"{name}={tmp_path}/{name}.jsonl" for name in runs]
    subprocess.run([sys.executable, str(EXAMPLES / "plot_losses.py"), str(out), *words], check=True)
    drawn = ElementTree.parse(out).getroot()
    kinds = [each.tag.rpartition("}")[2] for each in drawn]
    assert (kinds.count("polyline"), kinds.count("line")) == (2, 1)
    first, second = (each.get("points") for each in drawn if each.tag.endswith("polyline"))
    assert first == second
    assert {"calm", "hurt", "step (0 to 5)", "6.00", "1.00"} <= {each.text for each in drawn}
