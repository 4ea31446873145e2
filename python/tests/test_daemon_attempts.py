"""Attempts, marks and quarantine with the real daemons."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_daemons import ATTEMPTS, BINARIES, JOB, MARKS, SLICES, Daemons, Tokens, expected

import batchweave
from batchweave import errors

pytestmark = MARKS


def first_steps(
    path: Path,
    world: int,
    count: int,
    state: dict[str, str] | None,
    attempt: str,
    marks: int | None = None,
) -> tuple[list[int], Tokens, list[dict[str, str]]]:
    """Reads steps on all ranks of an attempt concurrently: their numbers, tokens and last states.

    After `marks` of them all make a checkpoint; its state is then what comes back.
    """
    found: dict[int, tuple[list[int], list[Tokens]]] = {}
    states: dict[int, dict[str, str]] = {}

    def run(rank: int) -> None:
        with batchweave.connect(
            path, job="t", dp_rank=rank, dp_size=world, state=state, attempt=attempt, timeout=60
        ) as reader:
            steps, tokens = found.setdefault(rank, ([], []))
            for batch in reader:
                steps.append(batch.step)
                tokens.append(np.stack([piece["tokens"] for piece in batch.slices]))
                if marks is None or len(steps) == marks:
                    states[rank] = batch.state_dict()
                if len(steps) == marks:
                    reader.checkpoint(states[rank])
                if len(steps) == count:
                    break

    threads = [threading.Thread(target=run, args=(rank,)) for rank in reversed(range(world))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(found) == list(range(world)), "a rank failed"
    (steps,) = {tuple(found[rank][0]) for rank in range(world)}
    tokens = np.concatenate([np.stack(found[rank][1]) for rank in range(world)], axis=1)
    return list(steps), tokens, [states[rank] for rank in range(world)]


def test_each_mark_restarts_any_number_of_ranks_with_the_same_bytes(
    daemons: Daemons, tmp_path: Path
) -> None:
    want, path = expected(), tmp_path / "s.sock"
    assert daemons("producer").wait(60) == 0
    daemons("consumer")
    marks = []
    with batchweave.connect(path, job="t", attempt=ATTEMPTS[0], timeout=60) as reader:
        for batch in reader:
            if batch.step in (4, 9, 19):
                marks.append(batch.state_dict())
                reader.checkpoint(marks[-1])
            if batch.step == 25:
                break
    for number, (world, state) in enumerate(zip((4, 2, 4), reversed(marks), strict=True), 1):
        start = json.loads(state["batchweave"])["next_step"]
        steps, tokens, states = first_steps(path, world, 12, state, ATTEMPTS[number])
        assert steps == list(range(start, start + 12))
        assert (tokens == want[start : start + 12]).all()
        assert len({each["batchweave"] for each in states}) == 1
        last = json.loads(states[0]["batchweave"])
        assert (last["attempt"], last["attempt_number"]) == (ATTEMPTS[number], number)


def test_a_run_with_five_restarts_of_4_2_and_4_ranks_is_proved(
    daemons: Daemons, tmp_path: Path
) -> None:
    want, path = expected(), tmp_path / "s.sock"
    assert daemons("producer").wait(60) == 0
    daemon = daemons("consumer")
    state, seen = None, []
    for number, world in enumerate((4, 4, 2, 2, 4, 4)):
        steps, tokens, (state, *others) = first_steps(
            path, world, 30, state, ATTEMPTS[number], marks=20
        )
        assert all(each == state for each in others)
        assert steps == list(range(20 * number, 20 * number + 30))
        assert (tokens == want[steps]).all()
        seen += steps
        # Its last ten steps are lost, as after a crash: the next attempt reads them again.
    daemon.terminate()
    assert daemon.wait(60) == 0
    command = [str(BINARIES / "batchweave"), "--store", f"file://{tmp_path}/stream", "--json"]
    said = subprocess.run(
        [*command, "verify", "--job", "t", "--to", "130"],
        timeout=60,
        capture_output=True,
        text=True,
    )
    print(said.stdout, said.stderr)
    assert said.returncode == 0
    assert seen[-1] == 129


def test_the_newer_of_two_living_attempts_wins(daemons: Daemons, tmp_path: Path) -> None:
    want, path = expected(), tmp_path / "s.sock"
    assert daemons("producer").wait(60) == 0
    daemons("consumer")
    with batchweave.connect(path, job="t", attempt=ATTEMPTS[0], timeout=60) as old:
        kept = next(old)
        with batchweave.connect(
            path, job="t", attempt=ATTEMPTS[1], state=kept.state_dict(), timeout=60
        ) as new:
            assert next(new).step == 1
            with pytest.raises(errors.AttemptSupersededError, match=ATTEMPTS[1]):
                for _ in old:
                    pass
            assert (kept.slices[0]["tokens"] == want[0, 0]).all()
            with pytest.raises(errors.AttemptSupersededError):
                batchweave.connect(path, job="t", attempt=ATTEMPTS[0])
            assert next(new).step == 2


PEEK = """
import batchweave, sys
try:
    with batchweave.connect(sys.argv[1], job="t", connect_timeout=30) as reader:
        print("reads", next(reader).step)
except batchweave.errors.AttemptRunningError as error:
    print("refused", error)
with batchweave.connect(sys.argv[1], limit=1) as reader:
    print("reads", [batch.step for batch in reader])
"""


def test_a_peek_from_another_shell_ends_no_run(daemons: Daemons, tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    assert daemons("producer").wait(60) == 0
    daemons("consumer")
    same: dict[str, Any] = {"job": "t", "timeout": 60, "connect_timeout": 30}
    with batchweave.connect(path, attempt=ATTEMPTS[0], **same) as run:
        assert [next(run).step for _ in range(3)] == [0, 1, 2]
        peek = subprocess.run(
            [sys.executable, "-c", PEEK, str(path)], timeout=60, capture_output=True, text=True
        )
        print(peek.stdout, peek.stderr)
        refused, read = peek.stdout.splitlines()
        assert refused.startswith(f"refused attempt 0 ({ATTEMPTS[0]}) of job t runs here")
        assert f": process {os.getpid()}; a new attempt would end it" in refused
        assert "batchweave.open(url)" in refused
        assert "takeover=True" in refused
        assert read == "reads [0]", "beside the run, without a job"
        assert next(run).step == 3, "the run goes on"
        # In this process, too: a notebook whose cell runs again.
        with pytest.raises(errors.AttemptRunningError, match="this process: close its reader"):
            batchweave.connect(path, **same)
        assert next(run).step == 4
        state = run.state_dict()
        with batchweave.connect(path, state=state, takeover=True, **same) as second:
            assert next(second).step == 5
            with pytest.raises(errors.AttemptSupersededError):
                list(run)
            # An id that was given needs no permission, whatever hangs.
            with batchweave.connect(path, state=state, attempt=ATTEMPTS[2], **same) as third:
                assert next(third).step == 5
                with pytest.raises(errors.AttemptSupersededError):
                    list(second)
    # Nobody reads: nothing is ended.
    with batchweave.connect(path, state=state, **same) as fourth:
        assert next(fourth).step == 5


def test_a_restart_without_the_saved_state_is_refused(
    daemons: Daemons, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    want, path = expected(), tmp_path / "s.sock"
    assert daemons("producer").wait(60) == 0
    daemons("consumer")
    saved: dict[str, str] | None = None
    for number in range(2):
        # An elastic restart of a job without a checkpoint begins at 0.
        steps, _, _ = first_steps(path, 2, 3, saved, ATTEMPTS[number])
        assert steps == [0, 1, 2]
    first_steps(path, 2, 12, None, ATTEMPTS[2], marks=5)
    first_steps(path, 2, 12, restore(path, 5, 2), ATTEMPTS[3], marks=5)
    same: dict[str, Any] = {"job": "t", "timeout": 60, "connect_timeout": 30}
    with pytest.raises(errors.ForgottenStateError, match=r"at step 10 \(before it 5\)") as caught:
        batchweave.connect(path, **same)
    assert caught.value.step == 10
    for way in ("state=", "start=STEP", 'resume="latest"', "fresh=True"):
        assert way in str(caught.value)
    caplog.set_level("INFO", "batchweave")
    with batchweave.connect(path, resume="latest", attempt=ATTEMPTS[4], **same) as reader:
        assert reader.next_step == 10
        assert "begins at step 10" in caplog.text
        batch = next(reader)
        assert (batch.slices[0]["tokens"] == want[10, 0]).all()
    assert verify(tmp_path)["left_behind"] == []
    with batchweave.connect(path, fresh=True, **same) as reader:
        assert next(reader).step == 0
    # What was given up on purpose is not in the way of the next start.
    with batchweave.connect(path, **same) as reader:
        assert next(reader).step == 0
    (left,) = verify(tmp_path)["left_behind"]
    assert (left["attempt"], left["start"], left["checkpoint"]) == (5, 0, 10)


def restore(path: Path, step: int, number: int) -> dict[str, str]:
    """The state of a checkpoint of attempt `number`, as it was saved with the model."""
    with batchweave.connect(path, start=step) as reader:
        found = json.loads(reader.state_dict()["batchweave"])
    own = {"attempt": ATTEMPTS[number], "attempt_number": number}
    return {"batchweave": json.dumps({**found, **own})}


def verify(folder: Path) -> dict[str, Any]:
    command = [str(BINARIES / "batchweave"), "--store", f"file://{folder}/stream", "--json"]
    said = subprocess.run([*command, "verify", "--job", "t"], timeout=60, capture_output=True)
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def test_ranks_that_disagree_with_their_attempt_are_told_how(
    daemons: Daemons, tmp_path: Path
) -> None:
    path = tmp_path / "s.sock"
    assert daemons("producer").wait(60) == 0
    daemons("consumer")
    same: dict[str, Any] = {"job": "t", "attempt": ATTEMPTS[0], "connect_timeout": 30}
    with batchweave.connect(path, dp_rank=0, dp_size=2, **same) as zero:
        with pytest.raises(errors.AttemptDisagreesError, match="7"):
            batchweave.connect(path, dp_rank=1, dp_size=2, start=7, **same)
        with pytest.raises(errors.AttemptDisagreesError, match="4"):
            batchweave.connect(path, dp_rank=1, dp_size=4, **same)
        state = [next(zero) for _ in range(3)][-1].state_dict()
        # Only this rank restarted: its own position, in the same attempt.
        with batchweave.connect(path, dp_rank=1, dp_size=2, state=state, **same) as one:
            assert next(one).step == 3
    with pytest.raises(errors.AttemptNotOpenedError, match="rank 0"):
        batchweave.connect(
            path, job="t", attempt=ATTEMPTS[1], dp_rank=1, dp_size=2, connect_timeout=1
        )


def test_marks_that_are_no_restart_points_are_refused(daemons: Daemons, tmp_path: Path) -> None:
    want, path = expected(), tmp_path / "s.sock"
    assert daemons("producer").wait(60) == 0
    daemons("consumer")

    def refused(reader: batchweave.Reader, step: int) -> type[Exception]:
        inner = json.loads(reader.state_dict()["batchweave"])
        reader.checkpoint({"batchweave": json.dumps({**inner, "next_step": step})})
        with pytest.raises(errors.MarkRefusedError) as caught:
            reader.close()
        assert caught.value.step == step
        return caught.type

    def reader(number: int, **more: Any) -> batchweave.Reader:
        return batchweave.connect(
            path, job="t", attempt=ATTEMPTS[number], credits=2, timeout=60, **more
        )

    assert refused(reader(0), len(want) + 1) is errors.MarkInFutureError
    assert refused(reader(1), len(want) - 1) is errors.MarkNotDeliveredError
    with reader(2) as before:
        for batch in before:
            state = batch.state_dict()
            if batch.step == 8:
                break
        before.checkpoint(state)
    assert refused(reader(3, state=state), 8) is errors.MarkOtherAttemptError


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        ("all", {"000000000003-0.json", "000000000003-1.json"}),
        ("rank0", {"000000000003-all.json"}),
    ],
)
def test_the_daemons_configuration_decides_which_jobs_must_mark(
    daemons: Daemons, tmp_path: Path, policy: str, names: set[str]
) -> None:
    assert daemons("producer").wait(60) == 0
    daemons("consumer", job=f'{JOB}\ncheckpoints = "{policy}"')
    same: dict[str, Any] = {"job": "t", "dp_size": 2, "attempt": ATTEMPTS[0], "timeout": 60}
    path = tmp_path / "s.sock"
    with (
        batchweave.connect(path, dp_rank=0, **same) as zero,
        batchweave.connect(path, dp_rank=1, **same) as one,
    ):
        for reader in (one, zero):
            reader.checkpoint([next(reader) for _ in range(3)][-1].state_dict())
    assert not zero._marks.unconfirmed(), "confirmed"
    assert not one._marks.unconfirmed(), "confirmed, also when there is nothing to store"
    assert {each.name for each in (tmp_path / "stream" / "jobs").glob("*/*/marks/*")} == names


def test_quarantined_steps_are_passed_over_by_new_attempts(
    daemons: Daemons, tmp_path: Path
) -> None:
    want, path = expected(), tmp_path / "s.sock"
    assert daemons("producer").wait(60) == 0
    daemons("consumer")
    _, _, (before,) = first_steps(path, 1, 5, None, ATTEMPTS[0])
    command = [str(BINARIES / "batchweave"), "--store", f"file://{tmp_path}/stream", "quarantine"]
    subprocess.run([*command, "8..11", "--reason", "a test"], timeout=60, check=True)
    steps, tokens, states = first_steps(path, 2, 6, before, ATTEMPTS[1])
    assert steps == [5, 6, 7, 12, 13, 14]
    assert (tokens == want[steps]).all()
    assert len({each["batchweave"] for each in states}) == 1
    # A checkpoint from the middle of the range, by ranks that read it.
    inner = json.loads(before["batchweave"])
    middle = {"batchweave": json.dumps({**inner, "next_step": 10})}
    steps, tokens, _ = first_steps(path, SLICES, 3, middle, ATTEMPTS[2])
    assert steps == [12, 13, 14]
    assert (tokens == want[steps]).all()


def test_a_job_that_is_not_open_is_named(daemons: Daemons, tmp_path: Path) -> None:
    assert daemons("producer").wait(60) == 0
    daemons("consumer", job='open_within = "200ms"')
    with pytest.raises(errors.JobNotOpenError, match="job open"):
        batchweave.connect(tmp_path / "s.sock", job="t")
