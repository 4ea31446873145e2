"""Stages in a reader: `batch.stage`, `on_stage` and `reader.info.stages`, from a fake daemon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_daemon import FakeDaemon, Peer

import batchweave
from batchweave._stages import Stage
from batchweave.errors import BadMessageError

LONG = {"id": 1, "name": "long", "rows_per_slice": 1, "seq_len": 32, "form": "best_fit"}
FIRST = {"id": 0, "name": "", "rows_per_slice": 4, "seq_len": 15, "form": ""}


def stages(steps: dict[int, dict[str, Any]]) -> Any:
    """Returns an `on_hello` that sends these stages before these steps, and ends after step 5."""

    def on_hello(peer: Peer) -> bool:
        peer.send_welcome()
        peer.send_segment()
        peer.send_layout()
        for step in range(peer.next_step, 6):
            due = [shape for first, shape in steps.items() if first <= step]
            if step in steps or (step == peer.next_step and due):
                peer.send(76, json.dumps(due[-1]).encode())
            peer.send_step(step)
        peer.send(68, (6).to_bytes(8, "little"))
        return True

    return on_hello


def test_each_batch_has_its_stage(daemon: FakeDaemon, path: Path) -> None:
    daemon.on_hello = stages({2: LONG, 4: FIRST})
    seen: list[str | None] = []
    found: list[str | None] = []
    with batchweave.connect(
        path, credits=8, on_stage=lambda stage: seen.append(stage.name if stage else None)
    ) as reader:
        for batch in reader:
            found.append(batch.stage.name if batch.stage else None)
            if batch.step == 1:
                assert seen == [], "the first stage is that of stream.json"
    assert found == [None, None, "long", "long", None, None]
    assert seen == ["long", None]
    assert "stages" in daemon.peers[0].hello["forms"]


def test_a_batch_is_not_lost_where_on_stage_fails(daemon: FakeDaemon, path: Path) -> None:
    daemon.on_hello = stages({2: LONG})
    fails = [True]

    def on_stage(stage: Stage | None) -> None:
        assert stage == Stage(1, "long", 1, 32, "best_fit")
        if fails.pop():
            fails.append(False)
            raise RuntimeError("not yet")

    with batchweave.connect(path, credits=8, on_stage=on_stage) as reader:
        assert [next(reader).step, next(reader).step] == [0, 1]
        with pytest.raises(RuntimeError, match="not yet"):
            next(reader)
        assert [batch.step for batch in reader] == [2, 3, 4, 5]


@pytest.mark.parametrize(
    "wrong", [b"{}", b"[]", b"\xff", json.dumps({**LONG, "seq_len": "x"}).encode()]
)
def test_a_wrong_stage_is_refused(daemon: FakeDaemon, path: Path, wrong: bytes) -> None:
    def on_hello(peer: Peer) -> bool:
        peer.send_welcome()
        peer.send(76, wrong)
        return True

    daemon.on_hello = on_hello
    with (
        batchweave.connect(path, timeout=20) as reader,
        pytest.raises(BadMessageError, match="a stage message that breaks protocol 1"),
    ):
        next(reader)


def test_the_stages_of_the_log_are_asked_for_each_time(daemon: FakeDaemon, path: Path) -> None:
    known: list[dict[str, Any]] = []

    def on_describe(peer: Peer) -> None:
        empty = dict.fromkeys(["builtin", "vocabulary", "file_bytes", "missing"])
        tokenizer = {**empty, "name": "bytes", "fingerprint": "5c" * 32}
        info: dict[str, Any] = {"stream": str(daemon.stream), "tokenizer": tokenizer}
        if known:
            info["stages"] = known
        peer.send(74, json.dumps(info).encode())

    daemon.on_describe = on_describe
    with batchweave.connect(path) as reader:
        assert list(reader.info.stages) == []
        known.append(LONG)
        assert list(reader.info.stages) == [Stage(1, "long", 1, 32, "best_fit")]
