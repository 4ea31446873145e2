"""Ranks that wait for real daemons: their warnings name the cause, and a list that is too long."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import eventually
from real_daemons import (
    ATTEMPTS,
    BINARIES,
    CONSUMER,
    JOB,
    MARKS,
    PRODUCER,
    Daemons,
    documents,
    expected,
)

import batchweave
from batchweave import _late, errors

pytestmark = MARKS

DEV_SECRET = "batchweave-dev-secret"
HURRIED = _late.Intervals(first=0.2, second=0.4, later=0.4, stuck=0.5)


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], bool]:
    """Returns whether a warning has matched a pattern; the warnings are hurried."""
    monkeypatch.setattr(_late, "INTERVALS", HURRIED)
    found: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())
            print(found[-1])

    monkeypatch.setattr(logging.getLogger("batchweave"), "handlers", [Kept()])
    return lambda pattern: any(re.search(pattern, line) for line in list(found))


@contextlib.contextmanager
def waiting(path: Path, step: int, **more: Any) -> Iterator[None]:
    """A rank in a thread that takes the steps up to this one; the block lets it go on."""
    got: list[int] = []
    options: dict[str, Any] = {"job": "t", "timeout": 300, "connect_timeout": 300, **more}
    first = options.get("start", 0)

    def run() -> None:
        with batchweave.connect(path, **options) as reader:
            for batch in reader:
                got.append(batch.step)
                if batch.step == step:
                    break

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield
    thread.join(300)
    assert got == list(range(first, step + 1))


def test_no_daemon_and_a_job_that_is_not_open(
    daemons: Daemons, tmp_path: Path, warned: Callable[[str], bool]
) -> None:
    path = tmp_path / "s.sock"
    assert daemons("producer").wait(60) == 0
    with waiting(path, 3):
        eventually(lambda: warned(r"no consumer daemon answers at .*start batchweave-consumer"), 60)
        daemons("consumer", 'name = "t"')
        eventually(lambda: warned(r"the job is not open \(job_not_open: .*job open"), 60)
        command = [str(BINARIES / "batchweave"), "--store", f"file://{tmp_path}/stream", "job"]
        subprocess.run([*command, "open", "t"], check=True, capture_output=True)


def test_producers_that_a_slower_rank_holds_back(
    daemons: Daemons, tmp_path: Path, warned: Callable[[str], bool]
) -> None:
    path, config = tmp_path / "s.sock", tmp_path / "producer.toml"
    config.write_text(config.read_text() + '[ahead]\nmax_steps = 5\nwhen_no_job = "wait"\n')
    daemons("producer")
    daemons("consumer")
    ranks: dict[str, Any] = {"dp_size": 2, "attempt": ATTEMPTS[0]}
    with (
        waiting(path, 20, dp_rank=0, **ranks),
        batchweave.connect(path, job="t", dp_rank=1, **ranks) as slow,
    ):
        producing = (
            r"step \d+ of job t \(rank 0 of 2\): no producer has committed it yet \(producing"
        )
        eventually(lambda: warned(producing + ".* no slower job or rank holds them back"), 60)
        for batch in slow:
            if batch.step == 20:
                break


def test_a_store_that_is_down(tmp_path: Path, warned: Callable[[str], bool]) -> None:
    credentials = {"AWS_ACCESS_KEY_ID": "batchweave", "AWS_SECRET_ACCESS_KEY": DEV_SECRET}
    environment = {**os.environ, **credentials, "AWS_REGION": "us-east-1"}
    store = [str(BINARIES / "batchweave"), "dev-s3", "--dir", str(tmp_path / "s3"), "--json"]

    def serve(listen: str) -> tuple[subprocess.Popen[str], str]:
        command = [*store, "--listen", listen]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(server)
        assert server.stdout is not None
        with server.stdout as said:
            return server, json.loads(said.readline())["endpoint"]

    def start(name: str, config: str) -> subprocess.Popen[bytes]:
        written = tmp_path / f"{name}.toml"
        written.write_text(
            config.format(root=tmp_path, job=JOB).replace(
                f'url = "file://{tmp_path}/stream"', f'url = "s3://batchweave/s"\nendpoint = "{at}"'
            )
        )
        command = [str(BINARIES / f"batchweave-{name}"), "--config", str(written)]
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
        started.append(process)
        return process

    started: list[subprocess.Popen[Any]] = []
    try:
        server, at = serve("127.0.0.1:0")
        with (tmp_path / "corpus.jsonl").open("w") as corpus:
            corpus.writelines(json.dumps({"text": text}) + "\n" for text in documents())
        assert start("producer", PRODUCER).wait(60) == 0
        start("consumer", CONSUMER)
        # The daemon knows the log, and has no data yet.
        batchweave.connect(tmp_path / "s.sock").close()
        server.kill()
        server.wait()
        with waiting(tmp_path / "s.sock", 43, job=None, start=40):
            eventually(lambda: warned(r"the store does not answer .*\(store_unavailable: "), 120)
            serve(at.removeprefix("http://"))
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_list_of_a_stream_that_does_not_fit_names_its_line(
    daemons: Daemons, tmp_path: Path, warned: Callable[[str], bool]
) -> None:
    assert daemons("producer").wait(60) == 0
    daemons("consumer")
    steps = len(expected())
    with batchweave.connect(tmp_path / "s.sock", credits=8) as reader:
        with pytest.raises(
            errors.FramesHeldError, match=r"steps 0 to 7 .*`list.reader.`"
        ) as caught:
            list(reader)
        assert warned("this rank holds steps 0 to 7 .* taken at .*test_daemon_waits.py")
        del caught
        reader.seek(0)
        assert [batch.step for batch in reader] == list(range(steps))
        reader.seek(steps - 8)
        assert len(list(reader)) == 8, "as many as fit"
    with batchweave.connect(tmp_path / "s.sock", copy=True) as reader:
        assert len(list(reader)) == steps


def test_a_list_that_fills_half_of_the_arena(
    daemons: Daemons, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_late, "INTERVALS", HURRIED)
    config = tmp_path / "producer.toml"
    bigger = config.read_text().replace("seq_len = 64", "seq_len = 8192")
    config.write_text(bigger.replace("[source]", "[source]\nepochs = 40"))
    assert daemons("producer").wait(60) == 0
    daemons("consumer")
    with (
        batchweave.connect(tmp_path / "s.sock", credits=1000) as reader,
        pytest.raises(
            errors.FramesHeldError, match=r"its share of the daemon's arena: steps 0 to "
        ),
    ):
        list(reader)


IN_CELLS = """
reader = batchweave.connect(path, job="t", timeout=300, connect_timeout=60)
---
began.set()
for batch in reader:
    got.append((batch.step, batch["tokens"].copy()))
    del batch
"""


@pytest.mark.parametrize("way", ["thread", "signal", "interrupt"])
def test_a_cell_that_waits_is_stopped_and_run_again(
    daemons: Daemons, tmp_path: Path, way: str
) -> None:
    """By another thread, a signal handler, or the stop button, which sends SIGINT."""
    producer = tmp_path / "producer.toml"
    text = PRODUCER.format(root=tmp_path).replace('producers = ["p0"]', 'producers = ["p0", "p1"]')
    producer.write_text(text)
    assert daemons("producer").wait(60) == 0
    daemons("consumer")
    got: list[tuple[int, Any]] = []
    names: dict[str, Any] = {"batchweave": batchweave, "path": tmp_path / "s.sock", "got": got}
    began = names["began"] = threading.Event()
    first, second = IN_CELLS.split("---")
    exec(first, names)
    reader = names["reader"]

    def act() -> None:
        assert began.wait(60)
        eventually(lambda: (reader.cause or "").startswith("producing"), 60)
        if way == "thread":
            reader.stop()
        else:
            os.kill(os.getpid(), signal.SIGUSR1 if way == "signal" else signal.SIGINT)

    before = signal.signal(signal.SIGUSR1, lambda *_: reader.stop())
    try:
        for _ in range(2):
            other = threading.Thread(target=act)
            other.start()
            with pytest.raises(KeyboardInterrupt if way == "interrupt" else errors.Stopped):
                exec(second, names)
            other.join(60)
            began.clear()
    finally:
        signal.signal(signal.SIGUSR1, before)
    waited = len(got)
    assert reader.next_step == waited > 0
    # The state of the last batch is a restart point, and the next session has the same step.
    state = reader.state_dict()
    reader.checkpoint(state)
    reader.close()
    producer.write_text(text.replace('name = "p0"', 'name = "p1"'))
    assert daemons("producer").wait(60) == 0
    names["reader"] = batchweave.connect(names["path"], job="t", state=state, timeout=60)
    exec(second, names)
    names["reader"].close()
    assert [step for step, _ in got] == list(range(2 * waited))
    want = expected()
    for step, tokens in got:
        assert (tokens == want[step % waited].reshape(tokens.shape)).all()


def test_an_opened_stream_stops_its_wait(daemons: Daemons, tmp_path: Path, programs: Path) -> None:
    assert programs.exists()
    producer = tmp_path / "producer.toml"
    text = PRODUCER.format(root=tmp_path).replace('producers = ["p0"]', 'producers = ["p0", "p1"]')
    producer.write_text(text)
    assert daemons("producer").wait(60) == 0
    with batchweave.open(f"file://{tmp_path}/stream", memory="16MiB", timeout=300) as stream:
        end = len(stream)
        assert stream._reader is not None
        reader = stream._reader
        for _ in range(2):

            def act() -> None:
                eventually(lambda: (reader.cause or "").startswith("producing"), 60)
                stream.stop()

            other = threading.Thread(target=act)
            other.start()
            with pytest.raises(errors.Stopped):
                next(stream.follow(end))
            other.join(60)
        assert stream._reader is reader, "the daemon and the session stay"
        assert stream[end - 1].step == end - 1
        producer.write_text(text.replace('name = "p0"', 'name = "p1"'))
        assert daemons("producer").wait(60) == 0
        assert next(stream.follow(end)).step == end
