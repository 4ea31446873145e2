"""Reports through the real daemons: what a loop left out is named by `verify --job --trained`."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from real_daemons import ATTEMPTS, BINARIES, MARKS, Daemons, expected

import batchweave

pytestmark = MARKS

RANKS = 2
# After every step at which a rank marks its checkpoint.
MARK_EVERY = 10
SILENT = {7, 20, 21}


def verify(root: Path) -> tuple[int, dict[str, Any]]:
    command = [str(BINARIES / "batchweave"), "verify", "--job", "t", "--trained", "--json"]
    ran = subprocess.run(
        [*command, "--store", f"file://{root}/stream"], capture_output=True, timeout=120
    )
    return ran.returncode, json.loads(ran.stdout)


def train(
    root: Path,
    says: Callable[[batchweave.Reader, int], None],
    between: Callable[[int], None] = lambda _: None,
    **more: Any,
) -> list[dict[str, str]]:
    """Trains all ranks; returns their states at the last mark."""
    states: list[dict[str, str]] = [{} for _ in range(RANKS)]
    wrong: list[BaseException] = []

    def rank(number: int) -> None:
        options = {"dp_rank": number, "dp_size": RANKS, "timeout": 60, "job": "t", **more}
        try:
            with batchweave.connect(root / "s.sock", **options) as reader:
                for batch in reader:
                    says(reader, batch.step)
                    if batch.step % MARK_EVERY == MARK_EVERY - 1:
                        states[number] = batch.state_dict()
                        reader.checkpoint(states[number])
                    if number == 0:
                        between(batch.step)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert not wrong
    return states


def test_three_steps_that_a_loop_left_out_are_named(daemons: Daemons, tmp_path: Path) -> None:
    steps = len(expected())
    assert daemons("producer").wait(60) == 0
    consumer = daemons("consumer")

    def says(reader: batchweave.Reader, step: int) -> None:
        if step not in SILENT:
            reader.report(step)

    train(tmp_path, says, attempt=ATTEMPTS[0])
    consumer.send_signal(signal.SIGTERM)
    assert consumer.wait(60) == 0
    code, report = verify(tmp_path)
    assert (code, report["verdict"]) == (66, "proved")
    marked = steps // MARK_EVERY * MARK_EVERY
    training = report["training"]
    assert training["below"] == marked
    assert training["trained"] == marked - len(SILENT)
    named = [(one["dp_rank"], one["from"], one["to"]) for one in training["missing"]]
    assert named == [(rank, *steps) for rank in range(RANKS) for steps in ((7, 8), (20, 22))]
    # What follows the last mark was reported, too.
    assert training["reported"] == steps


def test_steps_left_out_on_purpose_are_proved_also_when_the_daemon_is_killed(
    daemons: Daemons, tmp_path: Path
) -> None:
    steps = len(expected())
    assert daemons("producer").wait(60) == 0
    consumers = [daemons("consumer")]

    def says(reader: batchweave.Reader, step: int) -> None:
        reader.report(step, left_out="nan" if step in SILENT else None)

    def maybe_kill(step: int) -> None:
        if step in (15, 38):
            consumers[-1].send_signal(signal.SIGKILL)
            consumers[-1].wait(10)
            consumers.append(daemons("consumer"))

    train(tmp_path, says, maybe_kill, attempt=ATTEMPTS[0])
    consumers[-1].send_signal(signal.SIGTERM)
    assert consumers[-1].wait(60) == 0
    code, report = verify(tmp_path)
    training = report["training"]
    assert (code, training["missing"], training["differing"]) == (0, [], [])
    marked = steps // MARK_EVERY * MARK_EVERY
    assert training["trained"] == marked - len(SILENT)
    left = {
        (one["dp_rank"], step)
        for one in training["left_out"]
        for step in range(one["from"], one["to"])
    }
    assert left == {(rank, step) for rank in range(RANKS) for step in SILENT}
    assert {one["reason"] for one in training["left_out"]} == {"nan"}
