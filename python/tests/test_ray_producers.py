"""Producer daemons as actors of a real Ray: shares, kills, stops, and failures for good."""

from __future__ import annotations

import importlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from conftest import eventually
from engine_world import NOISY
from real_daemons import MARKS
from test_docs import blocks

import batchweave
from batchweave.inbox import InboxArgumentError
from batchweave.ray import _producers

ray: Any = importlib.import_module("ray")
pytestmark = [*NOISY, *MARKS, pytest.mark.usefixtures("cluster")]

FILES, DOCUMENTS = 4, 600
NAMES = ["tokens-0", "tokens-1"]
CONFIG = """
store.url = "file://{root}/stream"
stream = {{ slices = 1, rows_per_slice = 1, seq_len = 512, order = "lanes", producers = {names} }}
producer.name = "overridden"
source.paths = ["{root}/in/*.jsonl"]
tokenizer = {{ kind = "bytes", threads = 1 }}
packing.last_batch = "pad"
packing.pad_token = 255
packing.object_bytes = "8KiB"
commit.max_batches = 2
"""

# So that no producer comes to its end.
HELD = {"ahead.no_job_steps": 20, "ahead.lane_lead": 10}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(_producers, "_RESTART_SECONDS", 0.05)
    (tmp_path / "in").mkdir()
    for file in range(FILES):
        lines = [json.dumps({"text": text(file, number)}) for number in range(DOCUMENTS)]
        (tmp_path / "in" / f"{file}.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "producer.toml").write_text(CONFIG.format(root=tmp_path, names=json.dumps(NAMES)))
    return tmp_path / "producer.toml"


def text(file: int, number: int) -> str:
    return f"document {number} of {file}, " * 5


def documents(root: Path, producer: int) -> list[str]:
    """Returns the documents in the steps of one producer, in order."""
    stream = batchweave.open(f"file://{root}/stream")
    tokens: list[int] = []
    for step in range(producer, len(stream), 2):
        tokens += stream[step].inputs.reshape(-1).tolist()
    found, document = [], bytearray()
    for token in tokens:
        if token == 256:
            found.append(document.decode())
            document = bytearray()
        elif token != 255:
            document.append(token)
    return found


def check(root: Path) -> None:
    """Checks that each producer has its share, each document once and in order."""
    for producer in (0, 1):
        share = [
            text(file, number)
            for file in range(FILES)
            for number in range(DOCUMENTS)
            if (file + number) % 2 == producer
        ]
        found = documents(root, producer)
        # The last document ends in the row after the last, or is the last token of it.
        assert share[: len(found)] == found
        assert len(found) >= len(share) - 1


def test_each_producer_has_its_share(tmp_path: Path, config: Path, programs: Path) -> None:
    assert programs.exists()
    with batchweave.ray.producers(2, config, num_cpus=0.5) as running:
        assert running.names == NAMES
        assert running.wait(120)
    check(tmp_path)


def test_killed_daemons_and_actors_start_again(
    tmp_path: Path, config: Path, programs: Path
) -> None:
    assert programs.exists()
    with batchweave.ray.producers(2, config, num_cpus=0.5, settings=HELD) as running:
        eventually(lambda: all(running.pids()), 120)
        first = running.pids()
        os.kill(first[0] or 0, signal.SIGKILL)
        eventually(lambda: running.pids()[0] not in (None, first[0]), 120)
        # The actor's process, with whose end its daemon ends, too.
        os.kill(parent_of(first[1] or 0), signal.SIGKILL)
        eventually(lambda: running.pids()[1] not in (None, first[1]), 120)
        eventually(lambda: not Path(f"/proc/{first[1]}").exists(), 120)
        assert not running.wait(0)
    with batchweave.ray.producers(2, config, num_cpus=0.5) as again:
        assert again.wait(120)
    check(tmp_path)


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_wrong_configuration_is_one_error_and_no_restart(
    tmp_path: Path, config: Path, programs: Path
) -> None:
    assert programs.exists()
    config.write_text(config.read_text() + "source.fellow = true\n")
    with (
        batchweave.ray.producers(1, config, num_cpus=0.5) as running,
        pytest.raises(batchweave.ray.ProducerFailedError) as failed,
    ):
        running.wait(120)
    said = str(failed.value)
    assert said.startswith("the producer tokens-0 has ended with exit code 64 and is not started")
    assert "fellow" in said
    assert "\n" not in said
    assert not (tmp_path / "stream" / "log").exists()


def test_a_block_that_never_waits_raises_what_failed(config: Path, programs: Path) -> None:
    assert programs.exists()
    config.write_text(config.read_text() + "source.fellow = true\n")

    def without_wait() -> None:
        with batchweave.ray.producers(1, config, num_cpus=0.5) as running:
            eventually(lambda: bool(running._ended()), 120)

    with pytest.raises(batchweave.ray.ProducerFailedError, match="fellow"):
        without_wait()

    def with_an_error() -> None:
        with batchweave.ray.producers(1, config, num_cpus=0.5) as running:
            eventually(lambda: bool(running._ended()), 120)
            raise KeyError("of the block")

    with pytest.raises(KeyError, match="of the block"):
        with_an_error()


def test_stopped_producers_end_and_go_on_later(
    tmp_path: Path, config: Path, programs: Path
) -> None:
    assert programs.exists()
    running = batchweave.ray.producers(2, config, num_cpus=0.5, settings=HELD)
    eventually(lambda: all(running.pids()), 120)
    daemons = running.pids()
    assert not running.wait(0)
    running.stop()
    assert running.wait(60)
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in daemons), 60)
    with batchweave.ray.producers(2, config, num_cpus=0.5) as again:
        assert again.wait(120)
    check(tmp_path)


def test_the_pages_example_runs(tmp_path: Path, config: Path, programs: Path) -> None:
    assert programs.exists()
    page = (Path(__file__).parents[2] / "docs" / "engines.md").read_text()
    (code,) = (text for _, text in blocks(page) if "producers(" in text)
    code = code.replace("producers(4", "producers(2").replace("producer.toml", str(config))
    exec(compile(code, "docs/engines.md", "exec"), {"batchweave": batchweave})
    check(tmp_path)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"n": 0}, "give the number of producers"),
        ({"name": "tokens"}, "write {index} where"),
        ({"name": "Tokens-{index}"}, "is not a valid producer's name"),
        ({"config": "/no/such.toml"}, "cannot read the configuration /no/such.toml"),
        ({"settings": {"lanes.of": None}}, "lanes.of.* = None: give a text"),
        ({"settings": {"stream": {"slices": 2}}}, "the keys of a table one by one"),
        ({"settings": {"producer.x": [1.0, float("nan")]}}, "give a text, a number"),
    ],
)
def test_wrong_arguments_are_refused(config: Path, wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(InboxArgumentError, match=why):
        batchweave.ray.producers(**{"n": 2, "config": config, **wrong})
    with pytest.raises(TypeError, match="did you mean name="):
        batchweave.ray.producers(2, config, nam="x")  # type: ignore[call-arg]
