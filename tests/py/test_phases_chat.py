"""Conversations over three stages, with kills: each comes once, whole, as its template has it."""

from __future__ import annotations

import collections
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import batchweave
import numpy as np
from probes import run
from site_of_daemons import BINARIES
from test_fork import open_producer

CONVERSATIONS, KILLS = 1_200, 6
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}<e>{% endfor %}"
# Rows per slice, tokens per row and first batch of each stage.
STAGES = {"first": (2, 400, 0), "long": (1, 900, 8), "again": (3, 300, 24)}
CONFIG = """
store.url = "file://{folder}/stream"
stream = {{ slices = 2, rows_per_slice = 2, seq_len = 400 }}
producer.name = "a"
tokenizer.kind = "bytes"
packing = {{ mode = "chat", look_ahead = 64, last_batch = "pad", fields = ["segment_ids"] }}
commit = {{ max_batches = 2 }}
admin.listen = "off"
chat.template = "{folder}/chat.jinja"
source.paths = ["{folder}/chats.jsonl"]
"""
STAGE = """
[[stages]]
name = "{name}"
rows_per_slice = {rows}
seq_len = {width}
packing.look_ahead = 16
"""


def conversations(path: Path) -> collections.Counter[str]:
    """Write conversations; return their texts, by the template's words in Python."""
    draw, texts = random.Random(5), collections.Counter[str]()
    with path.open("w") as file:
        for n in range(CONVERSATIONS):
            answer = " ".join(f"w{draw.randrange(5_000)}" for _ in range(draw.randrange(1, 20)))
            messages = [{"role": "user", "content": f"{n}?"}]
            messages.append({"role": "assistant", "content": answer})
            file.write(json.dumps({"messages": messages}) + "\n")
            texts["".join(f"{one['role']}: {one['content']}<e>" for one in messages)] += 1
    return texts


def configure(folder: Path) -> Path:
    """Write the producer's configuration and its template."""
    (folder / "stream").mkdir()
    (folder / "chat.jinja").write_text(TEMPLATE)
    text = CONFIG.format(folder=folder)
    for name, (rows, width, first) in STAGES.items():
        if first:
            text += STAGE.format(name=name, rows=rows, width=width)
    (folder / "producer.toml").write_text(text)
    # It makes two steps before the stages are set, however long that takes.
    (folder / "start.toml").write_text("ahead.no_job_steps = 2\n" + text)
    return folder / "producer.toml"


def pieces(tokens: Any, segments: Any) -> list[str]:
    """Return the text of each conversation in a slice."""
    found = []
    for row, owner in zip(tokens, segments, strict=True):
        for segment in np.unique(owner[owner > 0]):
            own = row[owner == segment]
            found.append(bytes(int(token) for token in own if token < 256).decode())
    return found


def test_each_conversation_comes_once_over_three_stages(tmp_path: Path) -> None:
    wanted = conversations(tmp_path / "chats.jsonl")
    config, root = configure(tmp_path), tmp_path / "stream"
    open_producer(tmp_path / "start.toml", root, "a")
    for name, (_, _, first) in STAGES.items():
        if first:
            words = ["stage", "set", name, "--config", str(config), "--after", str(first)]
            ended = run("batchweave", *words, "--store", f"file://{root}")
            assert ended.code == 0, ended
    for n in range(KILLS):
        command = [str(BINARIES / "batchweave-producer"), "--config", str(config)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as producer:
            try:
                producer.wait(0.08 + 0.02 * n)
            except subprocess.TimeoutExpired:
                producer.kill()
    ended = run("batchweave-producer", "--config", config)
    assert ended.code == 0, ended
    found, by_shape = collections.Counter[str](), collections.Counter[tuple[int, int]]()
    with batchweave.open(f"file://{root}") as stream:
        for step in stream.steps:
            for piece in stream[step].slices:
                tokens = piece["tokens"]
                texts = pieces(tokens, piece["segment_ids"])
                found.update(texts)
                by_shape[tokens.shape[0], tokens.shape[1] - 1] += len(texts)
    assert found == wanted
    assert set(by_shape) == {(rows, width) for rows, width, _ in STAGES.values()}
    assert min(by_shape.values()) > 50
