"""`reader.stop()` ends a wait wherever it is, and two threads on one reader: no step is lost.

BATCHWEAVE_LONG=1 reads 3,000 steps by two threads in place of 1,000.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import preempted
import pytest
from conftest import eventually
from fake_daemon import FakeDaemon, tokens_of

import batchweave
from batchweave.errors import NoDaemonError, OneThreadError, Stopped


def ticks(daemon: FakeDaemon, number: int = -1) -> bool:
    """Whether the rank waits: it says so after a while."""
    return bool(daemon.peers) and bool(daemon.peers[number].progress)


@contextlib.contextmanager
def once(condition: Callable[[], bool], then: Callable[[], object]) -> Iterator[None]:
    """Calls `then` in another thread when the condition holds."""

    def run() -> None:
        eventually(condition)
        then()

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.parametrize("slices", [1, 2])
def test_a_wait_ends_in_another_thread_and_the_step_comes_later(path: Path, slices: int) -> None:
    with FakeDaemon(path, slices=slices) as daemon:
        daemon.ready = 2
        with batchweave.connect(path, job="j", timeout=60) as reader:
            assert [next(reader).step for _ in range(2)] == [0, 1]
            began = time.monotonic()
            with (
                once(lambda: ticks(daemon), reader.stop),
                pytest.raises(Stopped, match=r"wait for step 2; .*\[stopped\]") as found,
            ):
                next(reader)
            assert time.monotonic() - began < 50
            assert found.value.step == 2
            assert reader.next_step == 2
            # Once only: the next call waits.
            daemon.ready = None
            daemon.peers[0].push()
            batch = next(reader)
            assert batch.step == 2
            assert (batch.slices[0]["tokens"] == tokens_of(2, 0)).all()
            del batch
        assert len(daemon.peers) == 1, "in the same session"


def test_a_signal_handler_stops_the_wait_that_it_interrupts(path: Path) -> None:
    with FakeDaemon(path) as daemon:
        daemon.ready = 1
        with batchweave.connect(path, timeout=60) as reader:
            next(reader)
            before = signal.signal(signal.SIGUSR1, lambda *_: reader.stop())
            main = threading.main_thread().ident
            assert main is not None
            try:
                with (
                    once(lambda: ticks(daemon), lambda: signal.pthread_kill(main, signal.SIGUSR1)),
                    pytest.raises(Stopped),
                ):
                    next(reader)
            finally:
                signal.signal(signal.SIGUSR1, before)
            daemon.ready = None
            daemon.peers[0].push()
            assert next(reader).step == 1


def test_a_stop_between_two_calls_counts_for_the_next_one(daemon: FakeDaemon, path: Path) -> None:
    with batchweave.connect(path) as reader:
        for step in range(3):
            reader.stop()
            reader.stop()
            with pytest.raises(Stopped):
                _ = reader.peek() if step % 2 else next(reader)
            assert reader.peek().step == step
            # Neither does one with a batch that was peeked.
            reader.stop()
            with pytest.raises(Stopped):
                next(reader)
            assert next(reader).step == step
        reader.stop()
        assert reader.state_dict() == reader.state_dict()
    reader.stop()
    assert daemon.peers


def test_a_reader_without_a_daemon_stops_and_goes_on_with_the_next_one(path: Path) -> None:
    with FakeDaemon(path) as first:
        first.ready = 2
        reader = batchweave.connect(path, timeout=60)
        assert [next(reader).step for _ in range(2)] == [0, 1]
        copied = pickle.loads(pickle.dumps(reader))
    waiting = lambda: reader.cause == "daemon_restarting"  # noqa: E731
    with once(waiting, reader.stop), pytest.raises(Stopped):
        next(reader)
    # One that another process unpickled waits at its first use.
    copied.stop()
    with pytest.raises(Stopped):
        next(copied)
    with FakeDaemon(path) as second:
        assert [next(reader).step for _ in range(3)] == [2, 3, 4]
        assert second.peers[0].hello["next_step"] == 2
        assert next(copied).step == 2
        copied.close()
        reader.close()


def test_an_exception_of_a_handler_ends_connect(path: Path) -> None:
    def leave(*_: object) -> None:
        raise InterruptedError("preempted")

    before = signal.signal(signal.SIGALRM, leave)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(InterruptedError, match="preempted"):
            batchweave.connect(path, connect_timeout=60)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(NoDaemonError):
        batchweave.connect(path, connect_timeout=0.05)


def test_marks_are_confirmed_after_a_stop(path: Path) -> None:
    with FakeDaemon(path) as daemon:
        daemon.ready, daemon.marks_after = 1, 0.2
        reader = batchweave.connect(path, job="j", timeout=60)
        state = next(reader).state_dict()
        with once(lambda: ticks(daemon), reader.stop), pytest.raises(Stopped):
            next(reader)
        reader.checkpoint(state)
        # A request that nobody takes does not shorten the wait for the confirmation.
        reader.stop()
        reader.close()
        assert reader._marks.unconfirmed() == []
        assert [step for step, _ in daemon.peers[0].checkpoints] == [1]


def test_steps_of_an_update_that_stops_in_the_middle_are_read_again(path: Path) -> None:
    with FakeDaemon(path) as daemon:
        daemon.ready = 5
        with batchweave.connect(path, timeout=60, credits=8) as reader:
            updates = reader.updates(3)
            assert [batch.step for batch in next(updates)] == [0, 1, 2]
            with once(lambda: ticks(daemon), reader.stop), pytest.raises(Stopped):
                next(updates)
            assert reader.next_step == 3
            daemon.ready = None
            daemon.peers[0].push()
            assert [batch.step for batch in next(reader.updates(2))] == [3, 4]
            reader.stop()
            with pytest.raises(Stopped):
                next(reader)
            assert [batch.step for batch in next(reader.updates(3))] == [5, 6, 7]
        assert len(daemon.peers) == 1


@pytest.fixture
def modules() -> Iterator[None]:
    """Forgets the stand-in for torch."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("torch", "batchweave._dataset")):
            del sys.modules[name]


@pytest.mark.usefixtures("modules")
def test_a_dataset_stops_before_its_first_item_and_later(path: Path) -> None:
    data: Any = preempted.dataset(str(path))
    # While it waits for a daemon.
    timer = threading.Timer(0.3, data.stop)
    timer.start()
    with pytest.raises(Stopped):
        next(iter(data))
    timer.join()
    assert pickle.loads(pickle.dumps(data._stopping)).descriptor != data._stopping.descriptor
    with FakeDaemon(path) as daemon:
        daemon.ready = 2
        items = iter(data)
        assert [next(items).step for _ in range(2)] == [0, 1]
        with once(lambda: ticks(daemon), data.stop), pytest.raises(Stopped):
            next(items)
        daemon.ready = None
        daemon.peers[0].push()
        assert next(iter(data)).step == 2
        data.close()


def test_a_second_thread_is_refused_while_the_first_one_waits(path: Path) -> None:
    with FakeDaemon(path, end=4) as daemon:
        daemon.ready = 1
        reader = batchweave.connect(path, timeout=60)
        got: list[int] = []
        first = threading.Thread(
            target=lambda: got.extend(batch.step for batch in reader), name="first"
        )
        first.start()
        eventually(lambda: ticks(daemon))
        calls: tuple[Callable[[], object], ...] = (
            lambda: next(reader),
            reader.peek,
            lambda: reader.seek(0),
            lambda: reader.load_state_dict(reader.state_dict()),
        )
        for call in calls:
            with pytest.raises(OneThreadError, match=r"'first' waits .* one thread at a time"):
                call()
        # Another reader of the waiting thread's is another matter, and so is this one later.
        daemon.ready = None
        daemon.peers[0].push()
        first.join(30)
        assert got == [0, 1, 2, 3]
        with pytest.raises(StopIteration):
            next(reader)
        reader.close()
        assert len(daemon.peers) == 1


def test_threads_that_read_in_turns_share_the_steps(path: Path) -> None:
    """However they collide, each step arrives once."""
    end = 3000 if os.environ.get("BATCHWEAVE_LONG") else 1000
    got: list[int] = []
    with FakeDaemon(path, end=end) as daemon:
        reader = batchweave.connect(path, timeout=60)
        refused = [0, 0]

        def run(number: int) -> None:
            while True:
                try:
                    got.append(next(reader).step)
                except OneThreadError:
                    refused[number] += 1
                except StopIteration:
                    return

        threads = [threading.Thread(target=run, args=(k,)) for k in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive()
        reader.close()
        assert sorted(got) == list(range(end)), refused
        assert daemon.peers


def test_a_reader_passes_to_another_thread_while_the_first_reads_another_one(path: Path) -> None:
    with FakeDaemon(path) as daemon:
        daemon.ready = 2
        shared, own = (batchweave.connect(path, timeout=60) for _ in range(2))
        steps: list[int] = []

        def run() -> None:
            steps.append(next(shared).step)
            steps.extend(next(own).step for _ in range(2))
            with pytest.raises(Stopped):
                next(own)

        thread = threading.Thread(target=run)
        thread.start()
        eventually(lambda: ticks(daemon, 1))
        assert next(shared).step == 1
        own.stop()
        thread.join(30)
        assert steps == [0, 0, 1]
        shared.close()
        own.close()
