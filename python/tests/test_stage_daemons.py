"""Real daemons over stages: lanes that change shape at one step, kills, and ranks that read on."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from balanced_world import digests, operate
from conftest import eventually
from real_daemons import ATTEMPTS, BINARIES, MARKS, Daemons, documents

import batchweave
from batchweave import _connect, _reading

pytestmark = MARKS

PRODUCER = """
[store]
url = "file://{folder}/stream"
[stream]
slices = 2
rows_per_slice = 3
seq_len = 40
order = "lanes"
producers = ["a", "b"]
[producer]
lanes = ["a", "b"]
[source]
paths = ["{folder}/corpus.jsonl"]
[tokenizer]
kind = "bytes"
[packing]
mode = "{mode}"
last_batch = "pad"
look_ahead = 40
[commit]
max_batches = 2
linger = "5ms"
[ahead]
max_steps = {most}
lane_lead = {lead}
[[stages]]
name = "long"
seq_len = 301
rows_per_slice = 1
[stages.packing]
mode = "best_fit"
look_ahead = 9
[[stages]]
name = "wide"
seq_len = 64
rows_per_slice = 4
[stages.packing]
mode = "concat"
[[stages]]
name = "even"
seq_len = 80
rows_per_slice = 3
[stages.packing]
mode = "balanced"
"""
SHAPES = {None: (3, 40), "long": (1, 301), "wide": (4, 64), "even": (3, 80)}
BEFORE = 6
"""The bound in steps until the stages are set."""
BORDERS = [(0, None), (14, "long"), (24, "even"), (36, "wide")]


def configure(folder: Path, mode: str, most: int) -> Path:
    # Before the stages are set, no lane may pass the first border.
    lead = 2 if most == BEFORE else 64
    text = PRODUCER.format(folder=folder, mode=mode, most=most, lead=lead)
    (folder / "producer.toml").write_text(text)
    with (folder / "corpus.jsonl").open("w") as corpus:
        corpus.writelines(json.dumps({"text": text}) + "\n" for text in documents()[:120])
    return folder / "producer.toml"


def start(config: Path) -> subprocess.Popen[bytes]:
    command = [str(BINARIES / "batchweave-producer"), "--config", str(config)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)


def steps(folder: Path) -> int:
    if not (folder / "stream" / "stream.json").exists():
        return 0
    return int(json.loads(operate(folder, "status", "--json"))["head"]["steps"])


def set_stages(folder: Path, config: Path) -> None:
    for step, name in BORDERS[1:]:
        asked = ["stage", "set", str(name), "--config", str(config), "--from-step", str(step)]
        done = json.loads(operate(folder, *asked, "--json"))
        assert [one["producer"] for one in done["producers"]] == ["a", "b"]


def make(folder: Path, mode: str, kills: int) -> None:
    """Makes a stream with both stages; kills the producer this often while it works."""
    folder.mkdir()
    config = configure(folder, mode, BEFORE)
    running = start(config)
    eventually(lambda: steps(folder) >= 4)
    set_stages(folder, config)
    for kill in range(kills):
        running.send_signal(signal.SIGKILL)
        running.wait(60)
        configure(folder, mode, BEFORE + 4 + 4 * kill)
        running = start(config)
        # The moment of each kill is another one, wherever the producer is then.
        time.sleep(0.05 * (kill % 7))
    running.send_signal(signal.SIGKILL)
    running.wait(60)
    configure(folder, mode, 0)
    assert start(config).wait(300) == 0


def stage_of(step: int) -> str | None:
    return [name for first, name in BORDERS if first <= step][-1]


def shape_of(batch: batchweave.Batch, piece: Any) -> tuple[int, int]:
    """Returns the rows of a slice and their tokens; of bins, which hold fewer, the most."""
    if "bins" not in piece:
        return piece["tokens"].shape[0], piece["tokens"].shape[1] - 1
    assert batch.stage is not None
    borders = piece["documents"][piece["bins"]]
    assert (borders[1:] - borders[:-1] <= batch.stage.seq_len).all()
    assert len(piece["tokens"]) == borders[-1] > 0
    return len(piece["bins"]) - 1, batch.stage.seq_len


@pytest.mark.parametrize("mode", ["concat", "best_fit"])
def test_each_step_has_the_shape_of_its_stage_however_often_the_producer_is_killed(
    tmp_path: Path, mode: str
) -> None:
    make(tmp_path / "calm", mode, 0)
    make(tmp_path / "wild", mode, 12)
    found = digests(tmp_path / "wild")
    assert sorted(found) == sorted(digests(tmp_path / "calm"))
    with (
        batchweave.open(f"file://{tmp_path}/wild/stream") as wild,
        batchweave.open(f"file://{tmp_path}/calm/stream") as calm,
    ):
        assert len(wild) == len(calm) > 30
        for step in range(len(wild)):
            batch, same = wild[step], calm[step]
            name = stage_of(step)
            assert (batch.stage and batch.stage.name) == name, step
            rows, seq_len = SHAPES[name]
            for piece, other in zip(batch.slices, same.slices, strict=True):
                assert shape_of(batch, piece) == (rows, seq_len)
                assert (piece["tokens"] == other["tokens"]).all()
    shown = json.loads(operate(tmp_path / "wild", "show", "14", "--sources", "--json"))
    assert shown["stage"]["name"] == "long"
    lines = json.loads(operate(tmp_path / "wild", "stage", "show", "--json"))["stages"]
    assert [stage["name"] for stage in lines] == [None, "long", "even", "wide"]


def test_ranks_read_over_the_borders(
    daemons: Daemons, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(tmp_path, "concat", BEFORE)
    running = start(config)
    eventually(lambda: steps(tmp_path) >= 4)
    running.send_signal(signal.SIGKILL)
    running.wait(60)
    set_stages(tmp_path, config)
    configure(tmp_path, "concat", 0)
    assert start(config).wait(300) == 0
    daemons("consumer")
    seen: list[Any] = []
    with batchweave.connect(
        tmp_path / "s.sock",
        job="t",
        attempt=ATTEMPTS[0],
        on_stage=lambda stage: seen.append(stage and stage.name),
    ) as reader:
        assert [stage.name for stage in reader.info.stages] == ["long", "even", "wide"]
        for batch in reader:
            rows, seq_len = SHAPES[stage_of(batch.step)]
            assert [shape_of(batch, piece) for piece in batch.slices] == [(rows, seq_len)] * 2
            assert (batch.stage and batch.stage.name) == stage_of(batch.step)
            if stage_of(batch.step) == "even":
                assert batch.stage is not None
                assert batch.stage.form == "balanced"
                micros = list(batch.micro_batches())
                assert len(micros) == 2 * rows
                assert sum(int(micro.loss_mask.sum()) for micro in micros) == batch.loss_tokens
            else:
                assert batch["tokens"].shape == (2 * rows, seq_len + 1)
    assert seen == ["long", "even", "wide"]
    # A trainer that counts on one shape reads up to the border, and is told there.
    with batchweave.connect(tmp_path / "s.sock", seq_len=40, timeout=60) as strict:
        assert [next(strict).step for _ in range(14)] == list(range(14))
        with pytest.raises(batchweave.errors.BadHelloError, match='step 14 is of stage "long"'):
            next(strict)

    # So is one whose client knows stages, and no bins.
    def hello(options: Any, **fields: Any) -> bytes:
        return _connect.hello(options, forms=["stages"], **fields)

    monkeypatch.setattr(_reading, "hello", hello)
    with batchweave.connect(tmp_path / "s.sock", start=20, timeout=60) as rows_only:
        assert [next(rows_only).step for _ in range(4)] == [20, 21, 22, 23]
        refused = (
            'step 24 is of stage "even" .* bins of equal cost, and the client .* does not know'
        )
        with pytest.raises(batchweave.errors.BadHelloError, match=refused):
            next(rows_only)


def test_a_stage_is_refused_with_its_reason(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    config = configure(folder, "concat", BEFORE)
    running = start(config)
    eventually(lambda: steps(folder) >= 4)
    running.send_signal(signal.SIGKILL)
    running.wait(60)
    store = ["--store", str(folder / "stream")]

    def refused(*words: str) -> str:
        command = [str(BINARIES / "batchweave"), "stage", *words, *store]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode != 0, done.stdout
        return done.stderr

    asked = ["--config", str(config)]
    assert "did you mean long?" in refused("set", "lang", *asked)
    assert "are committed already" in refused("plan", "long", *asked, "--from-step", "2")
    text = config.read_text()
    other = folder / "other.toml"
    other.write_text(text.replace("slices = 2", "slices = 4", 1))
    assert "is for another stream" in refused("set", "long", "--config", str(other))
    other.write_text(text.replace('mode = "concat"', 'mode = "pairs"', 1))
    assert "are for packing.mode" in refused("set", "long", "--config", str(other))
    other.write_text(text.replace('name = "wide"', 'name = "long"'))
    assert 'has the name "long" twice' in refused("set", "long", "--config", str(other))
