"""The default socket: the system's, then the one of this user's `batchweave run`."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

import batchweave
from batchweave import _connect, _launch, errors


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the system's path and two paths of this user, in folders that do not exist."""
    monkeypatch.delenv("BATCHWEAVE_SOCKET", raising=False)
    found = [tmp_path / name / "c.sock" for name in ("system", "run", "tmp")]
    monkeypatch.setattr(_launch, "DEFAULT_SOCKET", str(found[0]))
    monkeypatch.setattr(_launch, "_USERS_SOCKETS", tuple(str(path) for path in found[1:]))
    return found


def listen(path: Path) -> socket.socket:
    path.parent.mkdir(mode=0o700)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    listener.listen()
    return listener


def test_the_first_that_answers_is_taken(places: list[Path]) -> None:
    path = _launch.socket_path(None)
    fresh, cause = _connect.connected(path)
    assert fresh is None
    assert cause == "there is no such socket"
    for place in reversed(places):
        with listen(place):
            fresh, _ = _connect.connected(path)
            assert fresh
            assert fresh.getpeername() == str(place)
            fresh.close()
            # A named one is never replaced by another.
            named, cause = _connect.connected(f"{place}.else")
            assert named is None


def test_a_folder_that_others_may_write_is_left_out(places: list[Path]) -> None:
    with listen(places[2]):
        places[2].parent.chmod(0o777)
        assert _connect.connected(_launch.socket_path(None))[0] is None
        places[2].parent.chmod(0o700)
        fresh, _ = _connect.connected(_launch.socket_path(None))
        assert fresh
        fresh.close()


def test_the_error_names_the_default_and_the_remedy(places: list[Path]) -> None:
    with pytest.raises(errors.NoDaemonError) as refused:
        batchweave.connect(connect_timeout=0.01)
    assert f"answers at {places[0]} (there is no such socket)" in str(refused.value)
    assert "batchweave run" in str(refused.value)


def test_the_paths_match_batchweave_run() -> None:
    source = Path(__file__).parents[2] / "crates/cli/src/run/place.rs"
    for path in ("/run/batchweave/consumer.sock", *_launch._USERS_SOCKETS):
        folder, name = os.path.split(path)
        assert f'"{folder}"' in source.read_text(), folder
        assert f'"{name}"' in source.read_text()
