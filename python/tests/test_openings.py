"""The first hello of an attempt: whether it gives way to a running one, and where it begins."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from fake_daemon import FakeDaemon, Peer

import batchweave
from batchweave import _launch, errors

FIRST = "1f" * 16


def inner(state: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(state["batchweave"])
    return found


def test_only_an_id_drawn_without_a_launcher_gives_way() -> None:
    one_of_one = {"RANK": "0", "WORLD_SIZE": "1"}
    assert isinstance(_launch.attempt_of(None, 1, 0, {}), _launch.DrawnId)
    for env in (one_of_one, {"TORCHELASTIC_RUN_ID": "x"}, {"BATCHWEAVE_ATTEMPT": FIRST}):
        assert not isinstance(_launch.attempt_of(None, 1, 0, env), _launch.DrawnId)
    assert not isinstance(_launch.attempt_of(FIRST, 1, 0, {}), _launch.DrawnId)
    drawn = _launch.drawn_id({})
    assert _launch.attempt_of(drawn, 1, 0, one_of_one) is drawn


def test_the_first_hello_says_whether_the_attempt_gives_way(daemon: FakeDaemon, path: Path) -> None:
    ways: list[dict[str, Any]] = [{}, {"attempt": FIRST}, {"takeover": True}, {"job": None}]
    for more in ways:
        with batchweave.connect(path, **{"job": "j", **more}) as reader:
            next(reader)
    session = reader._session
    assert session is None
    assert [peer.hello.get("yields") for peer in daemon.peers] == [True, None, None, None]
    with pytest.raises(errors.BadHelloError, match="takeover= needs job="):
        batchweave.connect(path, takeover=True)
    with batchweave.connect(path, job="j", timeout=20) as reader:
        next(reader)
        session = reader._session
        assert session is not None
        session.torn = True
        next(reader)
    assert [peer.hello.get("yields") for peer in daemon.peers[4:]] == [True, None]


def test_the_first_hello_says_what_was_stated(daemon: FakeDaemon, path: Path) -> None:
    with batchweave.connect(path, start=1) as reader:
        state = next(reader).state_dict()
    for more, begin in STATED:
        way: dict[str, Any] = {"job": "j", "attempt": FIRST, **more}
        if more.get("state") == "saved":
            way["state"] = state
        with batchweave.connect(path, **way) as reader:
            next(reader)
        hello = daemon.peers[-1].hello
        assert hello.get("begin") == begin, more
        assert begin is None or hello["next_step"] == 0


STATED: list[tuple[dict[str, Any], str | None]] = [
    ({}, "unstated"),
    ({"start": 0}, None),
    ({"start": 7}, None),
    ({"state": "saved"}, None),
    ({"fresh": True}, None),
    ({"resume": True}, None),
    ({"resume": False}, "unstated"),
    ({"resume": "latest"}, "latest"),
    ({"job": None, "attempt": None}, None),
]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"fresh": True, "start": 3}, "beside start="),
        ({"fresh": True, "resume": "latest"}, "beside resume="),
        ({"resume": "latest", "state": {}}, "beside state="),
        ({"resume": "newest"}, "'newest'"),
        ({"fresh": True, "job": None}, "needs job="),
        ({"resume": "latest", "job": None}, "needs job="),
    ],
)
def test_statements_that_contradict_are_named(path: Path, more: dict[str, Any], says: str) -> None:
    way: dict[str, Any] = {"job": "j", **more}
    with pytest.raises(errors.BadHelloError, match=says):
        batchweave.connect(path, **way)


def test_the_newest_restart_point_is_the_position(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "batchweave")

    def at_40(peer: Peer) -> bool:
        if peer.hello.get("begin") != "latest":
            return False
        peer.welcome_and_start(next_step=40)
        return True

    with FakeDaemon(path) as daemon:
        daemon.on_hello = at_40
        with batchweave.connect(path, job="j", resume="latest", limit=3, timeout=20) as reader:
            assert reader.next_step == inner(reader.state_dict())["next_step"] == 40
            assert "begins at step 40, its newest restart point" in caplog.text
            assert next(reader).step == 40
            session = reader._session
            assert session is not None
            session.torn = True
            assert [batch.step for batch in reader] == [41, 42]
        again = daemon.peers[1].hello
        assert (again["mode"], again["next_step"], again.get("begin")) == ("resume", 41, None)


def test_an_older_daemon_is_asked_without_what_it_does_not_know(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def strict(peer: Peer) -> bool:
        unknown = sorted({"yields", "begin"} & set(peer.hello))
        if unknown:
            peer.send_error(2, "bad_message", message=f"hello: unknown field `{unknown[0]}`")
        return bool(unknown)

    with FakeDaemon(path) as daemon:
        daemon.on_hello = strict
        with batchweave.connect(path, job="j") as reader:
            assert next(reader).step == 0
        assert len(daemon.peers) == 2
        assert "is of an older release" in caplog.text
        # The daemon would have to find the restart point.
        with pytest.raises(errors.BadMessageError, match="unknown field `begin`"):
            batchweave.connect(path, job="j", resume="latest")
        del daemon.peers[2:]

        def refuse(peer: Peer) -> bool:
            peer.send_error(2, "bad_message", message="hello: unknown field `job`")
            return True

        daemon.on_hello = refuse
        with pytest.raises(errors.BadMessageError, match="unknown field `job`"):
            batchweave.connect(path, job="j")
        assert len(daemon.peers) == 4
