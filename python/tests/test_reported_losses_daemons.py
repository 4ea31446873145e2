"""Losses through the real daemons, which store them beside the states of their steps."""

from __future__ import annotations

import signal
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from loss_device import reporter
from real_daemons import ATTEMPTS, MARKS, ROWS, SEQ_LEN, SLICES, Daemons, expected
from test_reported_daemons import RANKS, train, verify

import batchweave

pytestmark = MARKS

OWN = SLICES // RANKS * ROWS
SOURCES = {2: (3.0, 2.0), 700: (5.0, 4.0)}


class Stored(NamedTuple):
    """The losses of a step and a coordinate, as an object has them."""

    flags: int
    sum: float
    weight: float
    nonfinite: int
    sources: dict[int, tuple[float, float]]
    details: list[tuple[float, float]]


def stored(data: bytes) -> dict[tuple[int, int], Stored]:
    """By coordinate and step, written from docs/format.md."""
    magic, _, blocks, _, _, first, last = struct.unpack_from("<8sII16s16sQQ", data)
    assert magic == b"BWVALUE1"
    found: dict[tuple[int, int], Stored] = {}
    at = 64
    for _ in range(blocks):
        coordinate, _, _, slices, steps, flags, _, _ = struct.unpack_from("<8I", data, at)
        assert slices == SLICES // RANKS
        at += 32
        for _ in range(steps):
            step, sources, details, bad, weight, total = struct.unpack_from("<IHHIfd", data, at)
            assert first <= first + step <= last
            at += 24
            of_sources = {}
            for _ in range(sources & 0x3FFF):
                number, *pair = struct.unpack_from("<Iff", data, at)
                of_sources[number], at = (pair[0], pair[1]), at + 12
            of_details = list(struct.iter_unpack("<ff", data[at : at + 8 * details]))
            at += 8 * details
            one = Stored(flags, total, weight, bad, of_sources, of_details)
            assert found.setdefault((coordinate, first + step), one) == one
    assert at == len(data)
    return found


@pytest.mark.parametrize("kills", [(), (15, 38)])
def test_losses_are_stored_beside_the_proof(
    daemons: Daemons, tmp_path: Path, kills: tuple[int, ...]
) -> None:
    steps = len(expected())
    assert daemons("producer").wait(60) == 0
    consumers = [daemons("consumer")]

    def says(reader: batchweave.Reader, step: int) -> None:
        rows = (np.full(OWN, 1.5), np.full(OWN, SEQ_LEN))
        reader.report(step, loss=step, tokens=100, sources=SOURCES, rows=rows)

    def maybe_kill(step: int) -> None:
        if step in kills:
            consumers[-1].send_signal(signal.SIGKILL)
            consumers[-1].wait(10)
            consumers.append(daemons("consumer"))

    train(tmp_path, says, maybe_kill, attempt=ATTEMPTS[0])
    consumers[-1].send_signal(signal.SIGTERM)
    assert consumers[-1].wait(60) == 0
    code, report = verify(tmp_path)
    assert (code, report["training"]["trained"]) == (0, steps // 10 * 10)
    found: dict[tuple[int, int], Stored] = {}
    for file in sorted((tmp_path / "stream").rglob("*.bwr")):
        for key, one in stored(file.read_bytes()).items():
            # Of a step the first object counts; later ones repeat it.
            assert found.setdefault(key, one) == one
    # The end of the last daemon stores what was reported behind the last mark.
    want = {(rank, step) for rank in range(RANKS) for step in range(steps)}
    assert set(found) == want
    details = [(1.5, float(SEQ_LEN))] * OWN
    for (_, step), one in found.items():
        assert one == Stored(1, 100.0 * step, 100.0, 0, SOURCES, details)


def test_a_reporter_has_its_steps_stored_before_the_mark(daemons: Daemons, tmp_path: Path) -> None:
    assert daemons("producer").wait(60) == 0
    consumer = daemons("consumer")
    more: dict[str, Any] = {"timeout": 60, "job": "t", "attempt": ATTEMPTS[0], "slices": SLICES}
    with batchweave.connect(tmp_path / "s.sock", **more) as reader:
        report = reporter(reader, every=7, detail="row")
        for batch in reader:
            report(batch, np.full(batch.labels.shape, float(batch.step)))
            if batch.step == 30:
                reader.checkpoint(batch.state_dict())
                break
    consumer.send_signal(signal.SIGTERM)
    assert consumer.wait(60) == 0
    _, proof = verify(tmp_path)
    assert proof["training"]["missing"] == []
    assert proof["training"]["trained"] == 31
    assert reader.dropped_losses == (0, 0, 0)
