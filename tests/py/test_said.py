"""What programs say of a stream agrees: with the stream, and with one another."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import batchweave
import pytest
from site_of_daemons import BINARIES, eventually

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


def texts(seed: int, count: int) -> list[str]:
    chosen = random.Random(seed)
    return ["w" * chosen.randint(1, 400) for _ in range(count)]


class Stream:
    """A stream in a folder, and the programs that write and describe it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"file://{folder}/stream"

    def config(self, extra: str) -> Path:
        path = self.folder / "p.toml"
        path.write_text(
            f"""
            store.url = "{self.url}"
            producer.name = "p"
            stream = {{ slices = 2, rows_per_slice = 2, seq_len = 64, producers = ["p"] }}
            tokenizer.kind = "bytes"
            {extra}
            """
        )
        return path

    def write(self, name: str, rows: list[dict[str, Any]]) -> str:
        path = self.folder / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    def produce(self, config: Path) -> str:
        """Run the producer to its end, and return its last line."""
        command = [str(BINARIES / "batchweave-producer"), "--config", str(config)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert ended.returncode == 0, ended.stderr
        return next(line for line in ended.stderr.splitlines() if "finished: " in line)

    def steps(self) -> int:
        return int(self.says("status")["head"]["steps"])

    def says(self, *words: str) -> Any:
        command = [str(BINARIES / "batchweave"), *words, "--json", f"--store={self.url}"]
        ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return json.loads(ended.stdout)


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path)


def number(line: str, name: str) -> int:
    found = re.search(rf" {name}=(\d+)", line)
    return int(found[1]) if found else 0


@pytest.mark.parametrize("last", ["drop", "pad"])
@pytest.mark.parametrize("mode", ["concat", "best_fit", "chat"])
def test_the_last_line_has_the_tokens_of_the_stream(stream: Stream, mode: str, last: str) -> None:
    """In best_fit and chat a document that goes on in another row repeats one token there."""
    chosen = texts(7, 307)
    rows: list[dict[str, Any]] = [{"text": text} for text in chosen]
    taken = sum(len(text) + 1 for text in chosen)
    extra = f"packing = {{ mode = '{mode}', last_batch = '{last}', fields = ['segment_ids'] }}\n"
    if mode == "chat":
        (stream.folder / "t.jinja").write_text(TEMPLATE)
        extra = extra.replace("fields = ['segment_ids']", "fields = ['segment_ids', 'loss_mask']")
        extra += f"chat.template = '{stream.folder}/t.jinja'\nsource.on_bad_document = 'skip'\n"
        rows = [{"messages": [{"role": "user", "content": text}]} for text in chosen]
        taken = sum(len("<user>") + len(text) for text in chosen)
        rows.insert(9, {"messages": "no list"})
    path = stream.write("corpus.jsonl", rows)
    line = stream.produce(stream.config(extra + f"source.paths = ['{path}']\n"))
    tokens, dropped = number(line, "tokens"), number(line, "dropped_tokens")
    steps = number(line, "batches")
    if mode == "concat":
        # Where nothing is padded, the last token of the stream is a label only.
        assert tokens + dropped == taken - (last == "drop"), line
        assert last == "pad" or tokens == steps * 256
    elif last == "pad":
        assert (tokens, dropped) == (taken, 0), line
    else:
        assert tokens + dropped == taken, line
    stored = 0
    for batch in batchweave.open(stream.url):
        stored += int((batch["segment_ids"][:, :-1] > 0).sum()) if mode == "concat" else 0
    assert mode != "concat" or stored == tokens
    assert (", but for the last, partial batch" in line) == (dropped > 0), line


def test_taken_and_given_agree_over_a_kill(stream: Stream) -> None:
    """The sampler's count and the documents in the steps differ by less than what waits."""
    sources = ""
    for name, count in [("web", 400), ("code", 300)]:
        path = stream.write(f"{name}.jsonl", [{"text": text} for text in texts(count, count)])
        sources += f"[[sources]]\nname = '{name}'\npaths = ['{path}']\nepochs = 2\n"
    held = "ahead.max_steps = 200\n"
    command = [
        str(BINARIES / "batchweave-producer"),
        "--config",
        str(stream.config(held + sources)),
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as producer:
        eventually(
            "steps", lambda: (stream.folder / "stream" / "log").exists() and stream.steps() > 150
        )
        producer.send_signal(signal.SIGKILL)
    before = stream.steps()
    agree(stream)
    line = stream.produce(stream.config(sources))
    agree(stream)
    new = stream.steps() - before
    assert (number(line, "new_batches"), number(line, "new_tokens")) == (new, new * 256), line
    assert number(line, "tokens") == 0, "of all runs together it does not know"


def agree(stream: Stream) -> None:
    status = stream.says("status")
    [place] = status["inputs"]
    taken = {source["name"]: (source["given"], source["share"]) for source in place["sources"]}
    [mixture] = stream.says("mixture", "show", "--steps", "1000000")["mixtures"]
    shown = {one["source"]: (one["taken"], one["taken_share"]) for one in mixture["sources"]}
    assert shown == taken
    assert mixture["tokens"] == status["totals"]["tokens"] == status["head"]["steps"] * 256
    for source in mixture["sources"]:
        given = source["given"] * mixture["tokens"]
        assert abs(given - source["taken"]) <= 402, (source, mixture["tokens"])
