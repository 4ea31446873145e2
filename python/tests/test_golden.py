"""The messages of socket protocol 1, as stored in tests/golden: reading and writing them."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from batchweave import _wire, errors

GOLDEN = Path(__file__).parents[2] / "tests" / "golden" / "socket-v1.txt"


def stored(who: str) -> dict[str, list[bytes]]:
    """Messages by name."""
    found: dict[str, list[bytes]] = {}
    for line in GOLDEN.read_text().splitlines():
        if not line.startswith("#"):
            sender, name, text = line.split(" ")
            if sender == who:
                found.setdefault(name, []).append(bytes.fromhex(text))
    return found


def test_what_a_rank_sends() -> None:
    golden = stored("rank")
    assert golden["release"] == [_wire.release(41, [17, 18, 21])]
    assert golden["checkpoint"] == [_wire.checkpoint(41, b'{"format":1}')]
    assert golden["progress"] == [_wire.progress(41, 1_500_000, True)]
    assert golden["bye"] == [_wire.encode(_wire.BYE)]
    for message in golden["hello"]:
        fields = json.loads(message[16:])
        assert json.loads(_wire.hello(fields)[16:]) == fields
    assert len(golden) == 5


def test_what_a_daemon_sends() -> None:
    golden = stored("daemon")

    def body(name: str, number: int, nth: int = 0) -> memoryview:
        kind, rest = _wire.split(memoryview(golden[name][nth]))
        assert kind == number, name
        return rest

    welcome = _wire.welcome(body("welcome", _wire.WELCOME))
    assert (welcome.session, welcome.attempt_number, welcome.end_step) == (9, 1, 100)
    assert (welcome.first_slice, welcome.slice_count, welcome.credits) == (6, 2, 4)
    plain = _wire.welcome(body("welcome", _wire.WELCOME, 1))
    assert (plain.attempt, plain.attempt_number, plain.end_step) == (None, None, None)
    assert _wire.segment(body("segment", _wire.SEGMENT)) == (1, 4 << 20)
    number, text = _wire.layout(body("layout", _wire.LAYOUT))
    assert (number, json.loads(text)["arrays"][1]["name"]) == (3, "loss_mask")
    message = bytearray(golden["batch"][0])
    step, first, count, slices = _wire.batch(message, len(message))
    assert (step, first, count) == (41, 0, 2)
    assert list(slices) == [(6, 1, 3, 0, 22, 64, 4160), (7, 1, 3, 0, 23, 4352, 4160)]
    assert _wire.step("end", body("end_of_stream", _wire.END_OF_STREAM)) == 100
    assert _wire.waiting(body("waiting", _wire.WAITING)) == (42, "producing: slow")
    assert isinstance(_wire.error(body("error", _wire.ERROR)), errors.StepReclaimedError)
    assert _wire.retired(body("retire_segment", _wire.RETIRE_SEGMENT)) == 1
    assert struct.unpack("<Q", body("marked", _wire.MARKED)) == (41,)
    assert "another step" in str(_wire.mark_refused(body("mark_refused", _wire.MARK_REFUSED)))
    assert len(golden) == 10
