"""examples/rollouts.py with real daemons: both processes are killed, and no sample is too old.

BATCHWEAVE_LONG=1 kills each of them three times in place of once.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import eventually
from real_daemons import BINARIES, MARKS

pytestmark = MARKS

EXAMPLES = Path(__file__).parents[1] / "examples"
STEPS, KILLS, OLDEST = 40, 3 if os.environ.get("BATCHWEAVE_LONG") else 1, 4
LINE = re.compile(r"step (\d+): reward [\d.]+, age (\d+)")


class Example:
    """Both processes of the example and the daemons, with their output in files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.socket = folder, folder / "s"
        text = (EXAMPLES / "rollouts.toml").read_text()
        places = f'socket.path = "{self.socket}"\n'
        config = folder / "rollouts.toml"
        config.write_text(places + text.replace("/tmp/batchweave-rollouts", str(folder)))
        command = [str(BINARIES / "batchweave"), "run", str(config), "--until", "stopped"]
        self.started: list[subprocess.Popen[bytes]] = []
        # The writer finds `batchweave`, which reads its lag.
        self.environment = {**os.environ, "BATCHWEAVE_BIN_DIR": str(BINARIES)}
        self.daemons = self._start("daemons", command)

    def start(self, process: str) -> subprocess.Popen[bytes]:
        words = [str(self.folder), "--steps", str(STEPS), "--socket", str(self.socket)]
        return self._start(
            process, [sys.executable, str(EXAMPLES / "rollouts.py"), process, *words]
        )

    def _start(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment
            )
        self.started.append(process)
        return process

    def version(self) -> int:
        path = self.folder / "policy.json"
        return int(json.loads(path.read_text())["version"]) if path.exists() else 0

    def ended(self) -> bool:
        """Whether a process has ended that was not killed."""
        codes = [process.poll() for process in self.started]
        return any(code not in (None, -signal.SIGKILL) for code in codes)

    def texts(self) -> str:
        return "\n".join(self.text(name) for name in ("daemons", "rollout", "train"))

    def text(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()


@pytest.fixture
def example(tmp_path: Path) -> Iterator[Example]:
    made = Example(tmp_path)
    yield made
    made.daemons.terminate()
    for process in reversed(made.started):
        if process is not made.daemons:
            process.kill()
        process.wait(60)


def test_no_sample_is_older_than_its_bound_through_kills_of_both(example: Example) -> None:
    seed = int(os.environ.get("BATCHWEAVE_SEED") or random.randrange(1 << 20))
    print(f"BATCHWEAVE_SEED={seed}")
    chance = random.Random(seed)
    running = {name: example.start(name) for name in ("rollout", "train")}
    for kill in range(2 * KILLS):
        # In turns, at random steps.
        due = kill * STEPS // (2 * KILLS) + chance.randrange(STEPS // (2 * KILLS))
        eventually(lambda due=due: example.version() >= due or example.ended(), 120)  # type: ignore[misc]
        assert not example.ended(), example.texts()
        name = ("rollout", "train")[kill % 2]
        running[name].kill()
        running[name].wait(60)
        running[name] = example.start(name)
    assert running["train"].wait(120) == 0, example.text("train")
    running["rollout"].send_signal(signal.SIGINT)
    assert running["rollout"].wait(120) == 0, example.text("rollout")
    assert example.daemons.poll() is None, example.text("daemons")
    lines = LINE.findall(example.text("train"))
    assert sorted({int(step) for step, _ in lines}) == list(range(1, STEPS + 1))
    assert max(int(age) for _, age in lines) <= OLDEST
    assert "AssertionError" not in example.text("train")
