"""Losses of a run with real daemons: a document of noise among many is the first of `losses --by
document`, with file and line, and every number is that of a loop of its own.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import batchweave
import numpy as np
import pytest
from probes import run
from site_of_daemons import BINARIES, eventually, free_port, get

# The documents of the test; 100,000 by hand.
DOCUMENTS = int(os.environ.get("BATCHWEAVE_DOCUMENTS", "2000"))
NOISE = DOCUMENTS // 3
CONFIG = """
store.url = "file://{folder}/stream"
stream = {{ slices = 2, rows_per_slice = 4, seq_len = 256 }}
producer.name = "a"
tokenizer.kind = "bytes"
packing = {{ mode = "{mode}", last_batch = "pad", fields = ["source_ids", "document_ids"] }}
commit.linger = "20ms"
admin.listen = "off"
[[sources]]
name = "web"
paths = ["{folder}/web.jsonl"]
weight = 0.7
[[sources]]
name = "code"
paths = ["{folder}/code.jsonl"]
weight = 0.3
"""
CONSUMER = """
store.url = "file://{folder}/stream"
job = {{ name = "pretrain", open = true }}
arena = {{ bytes = "8MiB", segment_bytes = "4MiB" }}
socket.path = "{folder}/consumer.sock"
admin.listen = "127.0.0.1:{port}"
"""
Sums = dict[Any, list[float]]


class Model:
    """A model that has learned how often bytes are: the loss of a token is minus its log share."""

    def __init__(self, texts: list[str]) -> None:
        counts = Counter(b"".join(text.encode() for text in texts))
        share = np.full(257, 1e-6)
        for byte, count in counts.items():
            share[byte] = count
        self.losses = -np.log(share / share.sum())

    def __call__(self, labels: Any) -> Any:
        return self.losses[labels]


def corpus(folder: Path) -> Model:
    """Write two sources, and a document of noise in the first one."""
    draw, texts = random.Random(7), []
    for name, share in (("web", 0.7), ("code", 0.3)):
        lines = []
        for n in range(int(DOCUMENTS * share)):
            words = (draw.choice(["river", "stone", "light"]) for _ in range(draw.randrange(4, 20)))
            text = " ".join(words) if name == "web" else f"let x{n} = {n * 7};" * 2
            if name == "web" and n == NOISE:
                text = "".join(chr(draw.randrange(33, 127)) for _ in range(90))
            texts.append(text)
            lines.append(json.dumps({"text": text}) + "\n")
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return Model(texts)


def documents_of(ids: Any, losses: Any) -> list[tuple[int, float, int]]:
    """Return id, sum and number of labels of each document of a row, as it lies there."""
    found: list[tuple[int, float, int]] = []
    for at, one in enumerate(ids.tolist()):
        if one < 0:
            continue
        if at == 0 or one != ids[at - 1]:
            found.append((one, 0.0, 0))
        if at > 0:
            last = found[-1]
            found[-1] = (one, last[1] + float(losses[at - 1]), last[2] + 1)
    return found


def train(socket: Path, model: Model, rank: int, sums: dict[str, Sums]) -> None:
    """Read all steps as a rank of two, report them, and add up the losses by other means."""
    options: dict[str, Any] = {"socket": str(socket), "dp_rank": rank, "dp_size": 2}
    with batchweave.connect(job="pretrain", attempt="a" * 32, start=0, **options) as reader:
        for batch in reader:
            means, weights, total, tokens = [], [], 0.0, 0
            by_source: Sums = defaultdict(lambda: [0.0, 0])
            for piece in batch.slices:
                losses = model(piece["tokens"][:, 1:])
                for row, ids in enumerate(piece["document_ids"]):
                    for one, loss, count in documents_of(ids, losses[row]):
                        means.append(loss / count if count else 0.0)
                        weights.append(count)
                        source = by_source[int(one >= 1 << 40)]
                        source[0], source[1] = source[0] + loss, source[1] + count
                        document = sums["document"][one, batch.step]
                        document[0], document[1] = document[0] + loss, document[1] + count
                        total, tokens = total + loss, tokens + count
            step = sums["step"][batch.step]
            step[0], step[1] = step[0] + total, step[1] + tokens
            for number, own in by_source.items():
                source = sums["source"][number]
                source[0], source[1] = source[0] + own[0], source[1] + own[1]
            reader.report(
                batch,
                loss=total / max(tokens, 1),
                tokens=tokens,
                sources={number: (own[0], own[1]) for number, own in by_source.items()},
                documents=(means, weights),
            )
            if batch.step % 7 == 6:
                reader.checkpoint(batch.state_dict())
        reader.checkpoint(reader.state_dict())


def losses(folder: Path, *words: str) -> Any:
    """Return what `batchweave losses` prints as JSON."""
    store = f"file://{folder}/stream"
    shown = run("batchweave", "losses", "--job", "pretrain", *words, "--json", "--store", store)
    assert shown.code == 0, shown
    return json.loads(shown.out)


@pytest.mark.parametrize("mode", ["concat", "best_fit"])
def test_a_document_of_noise_has_the_highest_loss(tmp_path: Path, mode: str) -> None:
    model, port = corpus(tmp_path), free_port()
    (tmp_path / "producer.toml").write_text(CONFIG.format(folder=tmp_path, mode=mode))
    (tmp_path / "consumer.toml").write_text(CONSUMER.format(folder=tmp_path, port=port))
    store = f"file://{tmp_path}/stream"
    for words in (
        ["batchweave-producer", "--config", tmp_path / "producer.toml"],
        ["batchweave", "seal", "--reason", "all is there", "--store", store],
    ):
        done = run(*words)
        assert done.code == 0, done
    sums: dict[str, Sums] = {
        name: defaultdict(lambda: [0.0, 0]) for name in ("step", "source", "document")
    }
    command = [str(BINARIES / "batchweave-consumer"), "--config", str(tmp_path / "consumer.toml")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as daemon:
        try:
            eventually("a consumer that is ready", lambda: get(port, "/readyz")[0] == 200)
            for rank in range(2):
                train(tmp_path / "consumer.sock", model, rank, sums)
            metrics = get(port, "/metrics")[1]
            eventually("a loss in the status", lambda: "source 1 " in nodes(port))
        finally:
            daemon.terminate()
            assert daemon.wait(30) == 0
    assert 'batchweave_consumer_loss{source="all"}' in metrics
    steps = losses(tmp_path)
    assert steps["with_losses"] == steps["read"] == len(sums["step"])
    for one in steps["losses"]:
        total, count = sums["step"][one["step"]]
        assert one["tokens"] == count
        assert one["of"] == one["coordinates"] == 2
        assert one["loss"] == pytest.approx(total / count, rel=1e-5)
    for one in losses(tmp_path, "--by", "source")["losses"]:
        total, count = sums["source"][one["number"]]
        assert one["source"] == ["web", "code"][one["number"]]
        assert one["tokens"] == count
        assert one["loss"] == pytest.approx(total / count, rel=1e-4)
    found = losses(tmp_path, "--by", "document", "--top", "5", "--min-tokens", "20", "--decode")
    assert found["unjoined"] == 0
    first = found["losses"][0]
    assert first["documents"] == [f"{tmp_path}/web.jsonl@{at_of(tmp_path)} (web)"], found
    assert set(first["text"]) - set("river stonlight"), first
    every = losses(tmp_path, "--by", "document")
    assert every["unjoined"] == 0
    check_documents(every["losses"], sums["document"])


def nodes(port: int) -> str:
    """Return what `batchweave status --nodes` shows of a daemon."""
    return run("batchweave", "status", "--nodes", f"127.0.0.1:{port}").out


def at_of(folder: Path) -> int:
    """Return the byte at which the line of noise begins."""
    lines = (folder / "web.jsonl").read_bytes().splitlines(keepends=True)
    return sum(map(len, lines[:NOISE]))


def check_documents(found: list[dict[str, Any]], sums: Sums) -> None:
    """Compare the sums of each document in each step with those of the loop."""
    ours: Sums = defaultdict(lambda: [0.0, 0])
    for one in found:
        (place,) = one["documents"]
        name, at = place.split(" ")[0].rsplit("@", 1)
        file = ["web.jsonl", "code.jsonl"].index(Path(name).name)
        document = ours[file << 40 | int(at), one["step"]]
        document[0] += one["loss"] * one["tokens"]
        document[1] += one["tokens"]
    wanted = {key: value for key, value in sums.items() if value[1]}
    assert ours.keys() == wanted.keys()
    for key, (total, count) in wanted.items():
        assert ours[key] == pytest.approx([total, count], rel=1e-4), key
