"""States, arguments, the launcher's environment, and that names agree with docs/socket.md."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from fake_daemon import FakeDaemon

import batchweave
from batchweave import _launch, _wire, errors
from batchweave._layout import DTYPES
from batchweave.state import State

SOCKET_PAGE = Path(__file__).parents[2] / "docs" / "socket.md"


def test_a_state_is_one_constant_key_and_comes_back() -> None:
    state = State("00112233-4455-6677-8899-aabbccddeeff", 12, "ab" * 16, 3, world=4)
    saved = state.to_dict()
    assert list(saved) == ["batchweave"]
    assert State.from_dict(json.loads(json.dumps(saved))) == state
    assert State.from_dict({**saved, "model": "other keys are not ours"}) == state


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, 'no string under "batchweave"'),
        ("{", "not JSON"),
        ("[]", "not of format 1"),
        ('{"format":2,"stream_id":"x","next_step":1}', "not of format 1"),
        ('{"format":1,"next_step":1}', "names no stream"),
        ('{"format":1,"stream_id":"x","next_step":-1}', "next_step"),
        ('{"format":1,"stream_id":"x","next_step":true}', "next_step"),
        ('{"format":1,"stream_id":"x","next_step":1,"more":1}', "unknown fields"),
        ('{"format":1,"stream_id":"x","next_step":1,"attempt":7}', "wrong type"),
        ('{"format":1,"stream_id":"x","next_step":1,"attempt_number":"0"}', "wrong type"),
        ('{"format":1,"stream_id":"x","next_step":1,"world":true}', "wrong type"),
    ],
)
def test_what_is_no_state_is_named(text: str | None, reason: str) -> None:
    with pytest.raises(errors.BadStateError, match=reason):
        State.from_dict({} if text is None else {"batchweave": text})


def test_rank_and_world_come_from_one_launcher() -> None:
    torchrun = {"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    assert _launch.rank_and_world(None, None, torchrun) == (3, 8)
    assert _launch.rank_and_world(1, 2, torchrun) == (1, 2)
    assert _launch.global_rank_of(1, torchrun) == 3
    assert _launch.rank_and_world(None, None, {"RANK": "3"}) == (0, 1)
    assert _launch.global_rank_of(5, {}) == 5


def test_arguments_that_contradict_one_another(tmp_path: Path) -> None:
    path = tmp_path / "s"
    for wrong, reason in (
        ({"dp_rank": 1}, "both"),
        ({"dp_rank": 2, "dp_size": 2}, "0 to 1"),
        ({"credits": 1}, "2 to 1024"),
        ({"timeout": 0}, "above 0"),
        ({"start": -1}, "step number"),
        ({"start": 1, "state": State("x", 1).to_dict()}, "not both"),
    ):
        with pytest.raises(errors.BadHelloError, match=reason):
            batchweave.connect(path, **wrong)
    with pytest.raises(errors.BadHelloError, match="has 200 bytes, the system allows 107"):
        batchweave.connect("/" + "x" * 199)
    with pytest.raises(errors.BadHelloError, match="RANK is 'x'"):
        _launch.rank_and_world(None, None, {"RANK": "x", "WORLD_SIZE": "1"})


def test_the_socket_may_come_from_the_environment(
    daemon: FakeDaemon, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHWEAVE_SOCKET", str(path))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with batchweave.connect(seq_len=15) as reader:
        assert next(reader).slices[0].index == 1
    hello = daemon.peers[0].hello
    assert (hello["dp_rank"], hello["dp_size"], hello["global_rank"]) == (1, 2, 1)
    assert (hello["seq_len"], hello["slices"], hello["job"]) == (15, None, None)


def test_all_ranks_have_the_same_state(path: Path) -> None:
    states = set()
    with FakeDaemon(path):
        for rank in range(3):
            with batchweave.connect(path, dp_rank=rank, dp_size=3) as reader:
                first = reader.state_dict()
                batch = next(reader)
                assert batch.state_dict() == reader.state_dict() != first
                states.add(batch.state_dict()["batchweave"])
    assert len(states) == 1


def test_a_batch_explains_its_wrong_uses(daemon: FakeDaemon, path: Path) -> None:
    with batchweave.connect(path) as reader:
        batch = next(reader)
        with pytest.raises(KeyError, match=r"'loss'; this slice has \['scores', 'segments'"):
            _ = batch["loss"]
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(batch)
        assert "tokens: uint16[4, 16]" in repr(batch)
    assert daemon.peers


def section(title: str) -> str:
    return SOCKET_PAGE.read_text().split(f"### {title}\n")[1].split("\n##")[0]


def test_names_and_numbers_match_the_page() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", section("error"), re.MULTILINE)
    assert {int(code): name for code, name in rows} == {
        code: cls.name for code, cls in errors.BY_CODE.items()
    }
    # Names of the Rust client alone are marked so.
    own = set(re.findall(r"^\| `(\w+)` \|(?!.*\(Rust;)", section("error"), re.MULTILINE))
    raised = {cls.name for cls in vars(errors).values() if getattr(cls, "code", 0) is None}
    assert raised - {"error", "unknown"} == own
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", section("waiting"), re.MULTILINE)
    assert {int(number): name for number, name in rows} == _wire.CAUSES
    listed = re.search(r"`dtype` is ([\w, ]+) or (\w+);", section("layout"))
    assert listed is not None
    assert {*listed[1].split(", "), listed[2]} == set(DTYPES)


def test_types_have_the_size_that_their_names_say() -> None:
    for name, dtype in DTYPES.items():
        bits = re.search(r"\d+", name)
        assert dtype.itemsize == (int(bits[0]) // 8 if bits else 1)
        assert dtype.newbyteorder("<") == dtype
    assert DTYPES["BF16"] == np.dtype("<u2")
