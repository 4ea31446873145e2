"""Real PyTorch processes: other numbers of ranks, and a run that is killed on the way.

`make test-frameworks` runs these; see conftest.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import eventually
from examples_run import EXAMPLES, daemons_of
from fake_daemon import FakeDaemon
from real_daemons import JOB, MARKS, SLICES, Daemons, expected

EXAMPLE = EXAMPLES / "ddp_gpt.py"
STEPS, SAVE_EVERY, KILL_AT = 60, 10, 34


def test_a_state_of_two_ranks_loads_on_one_three_and_four(path: Path, tmp_path: Path) -> None:
    program = str(Path(__file__).with_name("torch_worlds.py"))
    with FakeDaemon(path) as daemon:
        said = subprocess.run(
            [sys.executable, program, str(path), str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=300,
        ).stdout
        found: dict[str, Any] = json.loads(said.splitlines()[-1])
    for steps in (0, 3):
        saved, loaded = found[str(steps)]["saved"], found[str(steps)]["loaded"]
        assert len(set(saved)) == 1, "equal on all ranks"
        assert json.loads(saved[0])["next_step"] == steps
        for world in (1, 3, 4):
            assert loaded[str(world)] == [[saved[0], steps]] * world
    assert len(daemon.peers) == 2 * (2 + 1 + 3 + 4)


def port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def start(path: Path, folder: Path, world: int, job: str = "t") -> list[subprocess.Popen[bytes]]:
    shared = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port()}
    command = [sys.executable, str(EXAMPLE), str(folder), "--steps", str(STEPS)]
    return [
        subprocess.Popen(
            [*command, "--save-every", str(SAVE_EVERY), "--job", job],
            env={**os.environ, **shared, "RANK": str(rank), "BATCHWEAVE_SOCKET": str(path)},
        )
        for rank in range(world)
    ]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def finish(ranks: list[subprocess.Popen[bytes]]) -> None:
    assert [rank.wait(300) for rank in ranks] == [0] * len(ranks)


def test_a_model_with_too_few_token_ids_says_how_many_it_needs(path: Path, tmp_path: Path) -> None:
    shared = {"WORLD_SIZE": "1", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port()}
    environment = {**os.environ, **shared, "BATCHWEAVE_SOCKET": str(path)}
    command = [sys.executable, str(EXAMPLE), str(tmp_path), "--seq-len", "15", "--steps", "1"]
    with FakeDaemon(path) as daemon:
        daemon.on_describe = lambda peer: peer.send_info(vocabulary=70_000)
        said = subprocess.run(
            command, env=environment, stderr=subprocess.PIPE, text=True, check=False, timeout=120
        )
        assert said.returncode == 1
        assert re.search(r"has 512 token ids, .* 70000: pass --vocabulary 70000", said.stderr)
        assert lines(tmp_path / "losses.jsonl") == []
        environment["MASTER_PORT"] = port()
        subprocess.run(
            [*command, "--vocabulary", "70000"], env=environment, check=True, timeout=120
        )
    assert [line["step"] for line in lines(tmp_path / "losses.jsonl")] == [0]


@pytest.mark.parametrize("_", [pytest.param(None, marks=MARKS, id="real")])
def test_the_page_of_the_example_runs(_: None, tmp_path: Path) -> None:
    run, drawn = tmp_path / "run", tmp_path / "losses.svg"
    with daemons_of("ddp_gpt", tmp_path, "--until", "stopped"):
        finish(start(tmp_path / "s", run, 2, "train"))
    losses = [line["loss"] for line in lines(run / "losses.jsonl")]
    assert len(losses) == STEPS
    assert losses[-1] < losses[0] - 1, "it learns"
    words = [str(EXAMPLES / "plot_losses.py"), str(drawn), f"run={run}/losses.jsonl"]
    subprocess.run([sys.executable, *words], check=True)
    assert "<polyline" in drawn.read_text()


@pytest.mark.parametrize("_", [pytest.param(None, marks=MARKS, id="real")])
def test_a_run_killed_with_four_ranks_goes_on_with_two(
    _: None, daemons: Daemons, tmp_path: Path
) -> None:
    assert daemons("producer").wait(60) == 0
    path, calm, hurt = tmp_path / "s.sock", tmp_path / "calm", tmp_path / "hurt"
    # A job has one history, and a daemon one job, so the undisturbed run has its own of both.
    undisturbed = daemons("consumer", JOB.replace('"t"', '"calm"'))
    finish(start(path, calm, 4, "calm"))
    undisturbed.terminate()
    assert undisturbed.wait(60) == 0
    daemons("consumer")

    first = start(path, hurt, 4)
    eventually(lambda: len(lines(hurt / "losses.jsonl")) > KILL_AT, 300)
    for rank in first:
        rank.send_signal(signal.SIGKILL)
    for rank in first:
        rank.wait(60)
    finish(start(path, hurt, 2))

    before, after = (lines(folder / "losses.jsonl") for folder in (calm, hurt))
    assert [line["step"] for line in before] == list(range(STEPS))
    wanted = {line["step"]: line["loss"] for line in before}
    assert {line["step"] for line in after} == set(wanted)
    resumed = [line for line in after if line["pid"] != after[0]["pid"]]
    assert resumed[0]["step"] in range(SAVE_EVERY, KILL_AT + SAVE_EVERY, SAVE_EVERY)
    apart = max(abs(line["loss"] - wanted[line["step"]]) for line in after)
    print(f"losses differ by at most {apart:.2e}; resumed at step {resumed[0]['step']}")
    assert apart < 1e-3, "only float noise"
    assert wanted[STEPS - 1] < wanted[0] - 1, "it learns"

    def slices(folder: Path) -> dict[tuple[int, int], int]:
        found: dict[tuple[int, int], int] = {}
        for line in lines(folder / "slices.jsonl"):
            crc = found.setdefault((line["step"], line["slice"]), line["crc"])
            assert crc == line["crc"], "a step read again is the same"
        return found

    assert slices(calm) == slices(hurt)
    assert len(slices(calm)) == STEPS * SLICES <= len(expected()) * SLICES
    if kept := os.environ.get("BATCHWEAVE_KEEP_RUNS"):
        for folder in (calm, hurt):
            (Path(kept) / f"{folder.name}.jsonl").write_text((folder / "losses.jsonl").read_text())
