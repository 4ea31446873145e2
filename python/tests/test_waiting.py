"""A reader that waits says why, where memory is held, and does not wait for what cannot come."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import eventually
from fake_daemon import FakeDaemon, Peer

import batchweave
from batchweave import _late, errors
from batchweave._connect import Options
from batchweave._late import Intervals, Late

HURRIED = Intervals(first=0.01, second=0.02, later=0.02, stuck=0.3)
CAUSES = {
    1: ("no producer has committed it yet (producing: so it is); check that producers run",),
    2: ("the daemon is fetching it from the store (fetching: so it is); see the daemon's log",),
    3: ("the store does not answer", "(store_unavailable: so it is)", "endpoint"),
    4: ("in use by ranks (arena_full: so it is)", "raise arena.bytes"),
    6: ("fetched late", "(backpressure: so it is)"),
    7: ("global rank 0 has not begun the attempt (attempt_not_open: so it is)",),
    8: ("the daemon is starting (daemon_starting: so it is)",),
    10: ("the job is not open (job_not_open: so it is); open it with `batchweave job open NAME`",),
}


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings of this package, hurried."""
    monkeypatch.setattr(_late, "INTERVALS", HURRIED)
    found: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    caplog.set_level(logging.WARNING, "batchweave")
    handler = Kept()
    log = logging.getLogger("batchweave")
    monkeypatch.setattr(log, "handlers", [handler])
    return found


def here() -> int:
    """Returns the line of the caller."""
    return sys._getframe(1).f_lineno


def seconds_apart(line: str) -> str:
    """Returns a warning without its number of seconds, which depends on the machine."""
    return re.sub(r"waiting \d+ s for", "waiting for", line)


def beginning_with(beginning: str, warnings: list[str]) -> list[str]:
    """Returns the warnings that begin so: a busy machine causes others, too."""
    return [line for line in map(seconds_apart, warnings) if line.startswith(beginning)]


def after(condition: Callable[[], bool], action: Callable[[], object]) -> threading.Thread:
    """Does something in another thread when a condition holds."""

    def run() -> None:
        eventually(condition, 60)
        action()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_a_daemon_that_is_not_there_is_named_before_the_timeout(
    path: Path, warnings: list[str]
) -> None:
    started: list[FakeDaemon] = []
    thread = after(lambda: bool(warnings), lambda: started.append(FakeDaemon(path)))
    with batchweave.connect(path) as reader:
        assert next(reader).step == 0
    thread.join(60)
    started[0].stop()
    assert seconds_apart(warnings[0]) == (
        f"waiting for step 0: no consumer daemon answers at {path} (there is no such socket); "
        "start batchweave-consumer, or name its socket in BATCHWEAVE_SOCKET or socket="
    )


def test_a_daemon_that_has_gone_is_named(path: Path, warnings: list[str]) -> None:
    daemon = FakeDaemon(path)
    with batchweave.connect(path, job="j", credits=2) as reader:
        for _ in range(2):
            next(reader)
        daemon.stop()
        # On a busy machine the first steps were waited for, too.
        warnings.clear()
        again: list[FakeDaemon] = []
        thread = after(lambda: bool(warnings), lambda: again.append(FakeDaemon(path)))
        # A step that was sent before the daemon's end needs no wait.
        step = 2
        while not again:
            assert next(reader).step == step
            step += 1
        thread.join(60)
        assert f"for step {step - 1} of job j: no consumer daemon answers" in warnings[0]
        assert "restart batchweave-consumer; the reader continues at its step" in warnings[0]
        again[0].stop()


@pytest.mark.parametrize("cause", CAUSES)
def test_each_cause_of_the_daemon_is_a_line_with_a_remedy(
    path: Path, warnings: list[str], cause: int
) -> None:
    welcomed = cause < 7

    def silent(peer: Peer) -> bool:
        if welcomed:
            peer.send_welcome()
        peer.send_waiting(0, cause, "so it is")
        return True

    def go_on() -> None:
        (peer,) = daemon.peers
        if welcomed:
            peer.send_segment()
            peer.send_layout()
            peer.send_step(0)
        else:
            peer.welcome_and_start()

    with FakeDaemon(path) as daemon:
        daemon.on_hello = silent
        name = CAUSES[cause][0]
        after(lambda: any(name in line for line in warnings), go_on)
        with batchweave.connect(
            path, job="j", dp_rank=1, dp_size=2, attempt="ab" * 16, timeout=60
        ) as reader:
            assert next(reader).step == 0
    line = seconds_apart(next(line for line in warnings if name in line))
    assert line.startswith("waiting for step 0 of job j (rank 1 of 2): ")
    for part in CAUSES[cause]:
        assert part in line
    assert "\n" not in line


OPTIONS = Options("s", None, 0, 1, 0, None, None, 4, False, 600.0, None, None, None)


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


def seconds_of_warnings(
    monkeypatch: pytest.MonkeyPatch, until: float, wait_of: Callable[[float], tuple[float, str]]
) -> list[float]:
    """Returns when `Late` warns, polled each half second; `wait_of` is the start and the cause."""
    clock, late, found = Clock(), Late(OPTIONS), []
    monkeypatch.setattr(_late, "time", clock)
    monkeypatch.setattr(Late, "_warn", lambda *_: found.append(clock.now - 1000))
    while clock.now < 1000 + until:
        begun, cause = wait_of(clock.now - 1000)
        late.waits(1000 + begun, 7, cause, [])
        clock.now += 0.5
    return found


def test_warnings_come_after_3_seconds_then_30_then_each_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Intervals() == (3, 30, 60, 5)
    found = seconds_of_warnings(monkeypatch, 220, lambda _: (0, "producing: step 7"))
    assert found == [3, 30, 90, 150, 210]


def test_many_waits_share_the_warnings_and_short_ones_have_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = seconds_of_warnings(monkeypatch, 100, lambda now: (now // 4 * 4, "producing"))
    assert found == [3, 31, 91]
    assert seconds_of_warnings(monkeypatch, 100, lambda now: (now // 2 * 2, "producing")) == []


def test_another_cause_is_news_and_two_that_alternate_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def later(now: float) -> tuple[float, str]:
        return 0, "fetching" if now < 10 else "store_unavailable: 503"

    assert seconds_of_warnings(monkeypatch, 60, later) == [3, 10]

    def alternate(now: float) -> tuple[float, str]:
        return 0, "fetching" if int(now * 2) % 2 else "producing"

    assert seconds_of_warnings(monkeypatch, 80, alternate) == [3, 6.5, 66.5]


def test_a_quiet_time_makes_the_next_wait_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = seconds_of_warnings(
        monkeypatch, 350, lambda now: (0, "producing") if now < 40 else (300, "producing")
    )
    assert found == [3, 30, 303, 330]


@pytest.mark.usefixtures("daemon")
def test_held_frames_are_named_by_the_line_that_took_them(path: Path, warnings: list[str]) -> None:
    with batchweave.connect(path, credits=3, timeout=60) as reader:
        kept: list[Any] = [next(reader)["tokens"]]
        first = here() - 1
        for batch in reader:
            second = here() - 1
            kept.append(batch)
            if len(kept) == 3:
                break
        held = "waiting for step 3: this rank holds step 0 (256 bytes) taken at "
        after(lambda: bool(beginning_with(held, warnings)), kept.clear)
        del batch
        # Another thread runs, which may release frames: this waits, and does not fail.
        assert next(reader).step == 3
    line = beginning_with(held, warnings)[0]
    assert f"{Path(__file__).name}:{first} `kept: list[Any] = [next(reader)" in line
    assert f"steps 1 to 2 (512 bytes) taken at {Path(__file__).name}:{second} `for batch" in (
        line.replace(f"{Path(__file__).parent}{os.sep}", "").replace("python/tests/", "")
    )
    assert "; drop each batch before the next, keep copies (copy=True)" in line


def test_half_an_arena_is_held_as_well_as_all_credits(path: Path, warnings: list[str]) -> None:
    def two(peer: Peer) -> bool:
        peer.send_welcome()
        peer.send_segment()
        peer.send_layout()
        peer.send_step(0)
        peer.send_step(1)
        detail = "the rank holds 2 steps, its share of the arena; ranks hold 512 of the arena's"
        peer.send_waiting(2, 4, f"{detail} 1024 bytes")
        return True

    with FakeDaemon(path) as daemon:
        daemon.on_hello = two
        with batchweave.connect(path, credits=9, timeout=60) as reader:
            with pytest.raises(errors.FramesHeldError) as caught:
                list(reader)
            assert "this rank holds its share of the daemon's arena: steps 0 to 1" in str(
                caught.value
            )
            assert "(arena_full: the rank holds 2 steps" in warnings[-1]
            # Less than half: other ranks hold the rest, and release it.
            daemon.peers[0].send_waiting(2, 4, "ranks hold 900 of the arena's 2048 bytes")
            after(lambda: len(warnings) > 3, lambda: daemon.peers[0].send_step(2))
            assert [batch.step for batch in (next(reader),)] == [2]


@pytest.mark.parametrize(
    "take",
    [
        list,
        tuple,
        lambda reader: [*reader],
        lambda reader: [].extend(reader),
        lambda reader: sorted(reader, key=id),
    ],
)
@pytest.mark.parametrize("limit", [None, 99])
@pytest.mark.usefixtures("warnings")
def test_a_list_of_more_than_the_credits_fails_and_names_its_line(
    daemon: FakeDaemon,
    path: Path,
    take: Callable[[batchweave.Reader], object],
    limit: int | None,
) -> None:
    assert threading.active_count() > 1
    with batchweave.connect(path, credits=3, limit=limit) as reader:
        with pytest.raises(errors.FramesHeldError) as caught:
            take(reader)
        text = str(caught.value)
        assert text.startswith(
            "step 3 cannot arrive: this rank holds all its 3 credits: steps 0 to 2"
        )
        assert f"{Path(__file__).name}:" in text
        assert "nothing else in this process can release it; drop each batch" in text
        assert caught.value.step == 3
        assert isinstance(caught.value, errors.StepTimeoutError)
        del caught
        # The reader can be used further.
        assert next(reader).step == 3
    assert len(daemon.peers) == 1


def test_a_list_of_no_more_than_the_credits_is_one(path: Path, warnings: list[str]) -> None:
    with FakeDaemon(path, end=3), batchweave.connect(path, credits=3) as reader:
        assert [batch.step for batch in list(reader)] == [0, 1, 2]
    assert not [line for line in warnings if "this rank holds" in line]


@pytest.mark.usefixtures("daemon", "warnings")
def test_a_thread_that_releases_late_is_waited_for(path: Path) -> None:
    with batchweave.connect(path, credits=2, timeout=60) as reader:
        held = [next(reader), next(reader)]
        timer = threading.Timer(4 * HURRIED.stuck, held.clear)
        timer.start()
        assert next(reader).step == 2
        timer.join()


ALONE = """
import sys, batchweave
from batchweave import _late
_late.INTERVALS = _late.Intervals(0.01, 0.02, 0.02, 0.3)
reader = batchweave.connect(sys.argv[1], credits=3)
kept = []
for batch in reader:
    kept.append(batch)
"""


@pytest.mark.usefixtures("daemon")
def test_where_no_other_thread_can_release_frames_the_wait_fails(path: Path) -> None:
    command = [sys.executable, "-c", ALONE, str(path)]
    alone = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert alone.returncode == 1
    assert "FramesHeldError: step 3 cannot arrive" in alone.stderr
    assert "taken at <string>:7" in alone.stderr
    # The default is a line on stderr.
    assert "waiting for step 3: this rank holds steps 0 to 2" in seconds_apart(alone.stderr)


@pytest.mark.usefixtures("daemon", "warnings")
def test_generators_updates_and_peeks_name_the_line_of_their_loop(path: Path) -> None:
    with batchweave.connect(path, credits=3, timeout=3) as reader:
        kept: list[Any] = [reader.peek()["tokens"]]
        peeked = here() - 1
        next(reader)
        kept += next(reader.updates(2))
        updates = here() - 1
        with pytest.raises(errors.FramesHeldError) as caught:
            next(reader)
        assert f":{peeked} `kept" in str(caught.value)
        assert f":{updates} `kept += next" in str(caught.value)


@pytest.mark.usefixtures("daemon")
def test_a_place_keeps_no_frame(path: Path) -> None:
    with batchweave.connect(path, credits=3) as reader:

        def take() -> Any:
            value = bytearray(8)
            found.append(value)
            return next(reader)["tokens"]

        found: list[Any] = []
        kept = take()
        references = sys.getrefcount(found[0])
        assert references == 2, "only the list's, and that of getrefcount"
        assert kept.any()
