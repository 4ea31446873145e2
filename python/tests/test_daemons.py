"""The real daemons: documents through producer, store, consumer and this client, token by token."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from real_daemons import ATTEMPTS, MARKS, ROWS, SEQ_LEN, SLICES, Daemons, Tokens, expected, read

import batchweave
from batchweave import errors

pytestmark = MARKS


def test_every_rank_gets_its_tokens_once_in_order(daemons: Daemons, tmp_path: Path) -> None:
    want = expected()
    assert len(want) > 60
    assert daemons("producer").wait(60) == 0
    daemons("consumer")
    results: dict[int, tuple[list[int], list[Tokens]]] = {}

    def rank(number: int) -> None:
        results[number] = read(tmp_path / "s.sock", number, 2)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for number in range(2):
        steps, found = results[number]
        assert steps == list(range(len(want)))
        assert (np.stack(found) == want[:, number * 2 : number * 2 + 2]).all()


def test_killed_daemons_change_nothing(daemons: Daemons, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    want = expected()
    running = {"producer": daemons("producer"), "consumer": daemons("consumer")}
    kills = {chance.randrange(len(want) // 2): "consumer" for _ in range(3)}
    kept: list[Tokens] = []

    def maybe_kill(step: int) -> None:
        if step in kills:
            running["consumer"].send_signal(signal.SIGKILL)
            running["consumer"].wait(10)
            running["consumer"] = daemons("consumer")
            if running["producer"].poll() is None:
                running["producer"].send_signal(signal.SIGKILL)
                running["producer"].wait(10)
                running["producer"] = daemons("producer")

    with batchweave.connect(tmp_path / "s.sock", job="t", timeout=60, credits=8) as reader:
        assert reader.info.slices == SLICES
        for batch in reader:
            assert (np.stack([piece["tokens"] for piece in batch.slices]) == want[batch.step]).all()
            if batch.step % 20 == 0 and len(kept) < 3:
                kept.append(batch.slices[1]["tokens"])
            maybe_kill(batch.step)
        assert reader.next_step == len(want)
        for i, array in enumerate(kept):
            assert (array == want[i * 20, 1]).all(), "arrays outlive their daemon"


def test_a_state_goes_on_with_another_number_of_ranks(daemons: Daemons, tmp_path: Path) -> None:
    want = expected()
    daemons("producer")
    daemons("consumer")
    path = tmp_path / "s.sock"
    with batchweave.connect(path, job="t", dp_rank=0, dp_size=1, timeout=60) as reader:
        for _ in range(7):
            state = next(reader).state_dict()
        reader.checkpoint(state)
    for rank in range(4):
        steps, found = read(path, rank, 4, state=state, attempt=ATTEMPTS[1])
        assert steps == list(range(7, len(want)))
        assert (np.stack(found) == want[7:, rank : rank + 1]).all()


def test_the_daemons_refusals_are_named(daemons: Daemons, tmp_path: Path) -> None:
    want = expected()
    assert daemons("producer").wait(60) == 0
    daemons("consumer")
    path = tmp_path / "s.sock"
    with pytest.raises(errors.BadMeshError, match="1, 2, 4"):
        batchweave.connect(path, job="t", dp_rank=0, dp_size=3, attempt=ATTEMPTS[0])
    with pytest.raises(errors.BadHelloError, match="seq_len"):
        batchweave.connect(path, job="t", seq_len=SEQ_LEN + 1)
    with pytest.raises(errors.StreamEndedError):
        batchweave.connect(path, job="t", start=len(want) + 1)
    with batchweave.connect(path, job="t", attempt=ATTEMPTS[0], timeout=20) as reader:
        with pytest.raises(errors.DuplicateCoordinateError):
            batchweave.connect(path, job="t", attempt=ATTEMPTS[0])
        state = json.loads(reader.state_dict()["batchweave"])
    state["stream_id"] = "ffffffff-4455-6677-8899-aabbccddeeff"
    with pytest.raises(errors.OtherStreamError):
        batchweave.connect(path, job="t", state={"batchweave": json.dumps(state)})


def test_held_frames_and_the_demos_rank(daemons: Daemons, tmp_path: Path) -> None:
    want = expected()
    assert daemons("producer").wait(60) == 0
    daemons("consumer")
    path = tmp_path / "s.sock"
    with batchweave.connect(path, timeout=10, credits=2) as reader:
        kept = [next(reader), next(reader)]
        with pytest.raises(errors.FramesHeldError, match=r"steps 0 to 1 .* taken at .*daemons\.py"):
            next(reader)
        del kept
        assert next(reader).step == 2
    command = [sys.executable, "-m", "batchweave.demo_rank", "--socket", str(path), "--job", "t"]
    command += ["--rank", "0", "--world", "1", "--state-file", str(tmp_path / "state")]
    subprocess.run([*command, "--out", str(tmp_path / "out")], timeout=60, check=True)
    with contextlib.closing((tmp_path / "out").open("rb")) as out:
        record = np.dtype(
            [
                ("step", "<u8"),
                ("slice", "<u4"),
                ("size", "<u4"),
                ("tokens", "<u2", (ROWS, SEQ_LEN + 1)),
            ]
        )
        found = np.fromfile(out, record)
    assert (found["step"] == np.repeat(np.arange(len(want)), SLICES)).all()
    assert (found["tokens"].reshape(want.shape) == want).all()
