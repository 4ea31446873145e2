"""Messages of a hostile daemon: each body is decoded, or is an error of ours."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import pytest

from batchweave import _layout, _wire
from batchweave.errors import BadMessageError, BatchWeaveError

DEEP = b"[" * 60_000
FAULT = {"code": 2, "name": "n", "message": "m", "step": None, "key": None, "remedy": ""}
ARRAY = {"name": "tokens", "dtype": "U16", "shape": [4, 32], "offset": 0}
LAYOUT = {"length": 256, "arrays": [ARRAY]}


def fault(**change: Any) -> bytes:
    return json.dumps(FAULT | change).encode()


def layout(**change: Any) -> bytes:
    return json.dumps({"length": 256, "arrays": [ARRAY | change]}).encode()


WRONG_FAULTS = {
    "deep": DEEP,
    "an object too deep": b'{"code":' * 30_000,
    "a code that is a list": fault(code=[]),
    "a code that is an object": fault(code={}),
    "a code that is true": fault(code=True),
    "a step in words": fault(step="seven"),
    "a key that is a number": fault(key=3),
    "a remedy that is a list": fault(remedy=["a"]),
    "no message": fault(message=None),
    "a long number": b'{"code":' + b"9" * 50_000 + b"}",
    "no text": b"\xff\xfe\x00",
    "a list": b"[1]",
}

WRONG_LAYOUTS = {
    "deep": DEEP,
    "many dimensions": layout(shape=[1] * 100),
    "nothing, many times": layout(shape=[0, 1 << 62, 1 << 62]),
    "a large nothing": layout(shape=[0, 1 << 63]),
    "a long number": layout(shape=[int("9" * 4000)]),
    "half a character": layout(name="\ud800"),
    "a name that is a list": layout(name=["tokens"]),
    "a dtype that is a list": layout(dtype=[]),
    "a shape that is a number": layout(shape=4),
    "arrays that are words": json.dumps({"length": 256, "arrays": "U16"}).encode(),
    "arrays without names": json.dumps({"length": 256, "arrays": [1]}).encode(),
}


@pytest.mark.parametrize("what", WRONG_FAULTS)
def test_an_error_that_is_none_is_a_named_error(what: str) -> None:
    with pytest.raises(BadMessageError, match="error message that breaks protocol 1"):
        raise _wire.error(memoryview(WRONG_FAULTS[what]))


@pytest.mark.parametrize("what", WRONG_LAYOUTS)
def test_a_layout_that_is_none_is_a_named_error(what: str) -> None:
    with pytest.raises(BadMessageError, match="cannot read the daemon's layout") as caught:
        _layout.parse(WRONG_LAYOUTS[what])
    assert len(str(caught.value).encode(errors="replace")) < 10_000


def test_a_layout_of_a_frame_that_numpy_has_no_type_for_is_none_of_its_own() -> None:
    found = _layout.parse(json.dumps({"length": 1 << 80, "arrays": [ARRAY]}).encode())
    assert not found.quick


def bodies() -> list[tuple[Any, bytes]]:
    shape = struct.pack("<Q16s16s16sQQQIIIIII", 1, *(b"i" * 16,) * 3, 0, 0, 9, 8, 64, 1, 0, 8, 4)
    return [
        (_wire.welcome, shape),
        (_wire.segment, struct.pack("<IIQ", 1, 0, 4096)),
        (_wire.layout, struct.pack("<II", 1, 0) + json.dumps(LAYOUT).encode()),
        (lambda body: _layout.parse(bytes(body)), json.dumps(LAYOUT).encode()),
        (lambda body: _wire.step("marked", body), struct.pack("<Q", 5)),
        (_wire.waiting, struct.pack("<QII", 5, 1, 3) + b"why"),
        (_wire.retired, struct.pack("<II", 1, 0)),
        (_wire.error, fault(step=7)),
        (_wire.mark_refused, fault(step=7)),
        (_wire.split, _wire.encode(_wire.WELCOME, shape)),
    ]


def mutated(body: bytes, dice: random.Random) -> bytes:
    found = bytearray(body)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(found) + 1)
        match dice.randrange(4):
            case 0:
                found[at : at + 1] = bytes([dice.randrange(256)])
            case 1:
                del found[at : at + dice.randint(1, 8)]
            case 2:
                found[at:at] = dice.choice([b"null", b"[]", b"-1", b"1e9", b"\xff" * 8, b'"'])
            case _:
                found[at:at] = found[at : at + dice.randint(1, 64)]
    return bytes(found)


def test_nothing_but_our_errors_is_raised() -> None:
    seed = random.randrange(1 << 32)
    dice, read, refused = random.Random(seed), 0, 0
    for _ in range(1500):
        for decode, body in bodies():
            sent = mutated(body, dice)
            try:
                decode(memoryview(sent))
                read += 1
            except BatchWeaveError:
                refused += 1
            except Exception as reason:
                pytest.fail(f"seed {seed}: {reason!r} for {sent!r}")
    assert read > 100, f"seed {seed}: {refused} refused"
    assert refused > 1000, f"seed {seed}: {read} read"
