"""A mixture that follows a model which learns: of two sources the one that is learned quickly gets
less, change after change, and no producer takes more of a source than its mixture allows.

BATCHWEAVE_LONG=1 takes a lead of 1,000 steps in place of 100.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import batchweave
import numpy as np
import pytest
from probes import run
from site_of_daemons import BINARIES, eventually, free_port, get

NAMES = ["web", "code"]
LEAD, EVERY = (1000, 500) if os.environ.get("BATCHWEAVE_LONG") else (100, 50)
# A producer with its lead lacks fewer steps than this: positions are stored every four steps.
LATE = 10
# The longest document, its end included.
LONGEST = 120
CONFIG = """
store.url = "file://{folder}/stream"
stream = {{ slices = 1, rows_per_slice = 4, seq_len = 256 }}
producer.name = "a"
tokenizer.kind = "bytes"
packing = {{ mode = "concat", fields = ["source_ids"] }}
commit = {{ linger = "1ms", max_batches = 4 }}
ahead.max_steps = {lead}
admin.listen = "off"
[[sources]]
name = "web"
paths = ["{folder}/web.jsonl"]
weight = 0.5
epochs = 0
[[sources]]
name = "code"
paths = ["{folder}/code.jsonl"]
weight = 0.5
epochs = 0
"""
CONSUMER = """
store.url = "file://{folder}/stream"
job = {{ name = "pretrain", open = true, progress_steps = 4 }}
arena = {{ bytes = "8MiB", segment_bytes = "1MiB" }}
socket.path = "{folder}/consumer.sock"
prefetch = {{ bytes = "256KiB", steps = 4 }}
follow = {{ starved = "10ms", idle = "50ms" }}
admin.listen = "127.0.0.1:{port}"
"""


class Bigrams:
    """A model that counts which byte follows which, and learns from each batch."""

    def __init__(self) -> None:
        self.counts = np.full((257, 257), 0.05)

    def train(self, tokens: Any) -> Any:
        """Return the loss of each token but the first of each row, and learn from them."""
        before, after = tokens[:, :-1].ravel(), tokens[:, 1:].ravel()
        losses = -np.log(self.counts[before, after] / self.counts[before].sum(axis=1))
        np.add.at(self.counts, (before, after), 1.0)
        return losses


class Run:
    """Daemons of a stream and a job, and what its only rank has taken of each source."""

    def __init__(self, folder: Path, lead: int) -> None:
        self.folder, self.port, self.store = folder, free_port(), f"file://{folder}/stream"
        self.lead = lead
        (folder / "stream").mkdir()
        draw = random.Random(11)
        with (folder / "web.jsonl").open("w") as web, (folder / "code.jsonl").open("w") as code:
            for _ in range(400):
                words = " ".join(["the river ran", "under a stone"] * draw.randrange(1, 4))
                noise = "".join(chr(draw.randrange(33, 127)) for _ in range(len(words)))
                web.write(json.dumps({"text": words}) + "\n")
                code.write(json.dumps({"text": noise}) + "\n")
        config = CONFIG.format(folder=folder, lead=lead)
        (folder / "producer.toml").write_text(config)
        (folder / "consumer.toml").write_text(CONSUMER.format(folder=folder, port=self.port))
        # By step: the tokens of each source.
        self.taken: dict[int, Any] = {}
        # By number: the first step of each mixture, and the shares that it asks for.
        self.mixtures: dict[int, tuple[int, list[float]]] = {}

    @contextlib.contextmanager
    def daemons(self, *drive: str) -> Iterator[None]:
        """Run both daemons and a driver."""
        with contextlib.ExitStack() as stack:
            for name in ("producer", "consumer"):
                config = str(self.folder / f"{name}.toml")
                stack.enter_context(self.program(f"batchweave-{name}", "--config", config))
            self.is_ready()
            words = ["mixture", "drive", "--job", "pretrain", "--poll", "30ms", *drive]
            stack.enter_context(self.program("batchweave", *words, "--store", self.store))
            yield

    def is_ready(self) -> None:
        """Wait until the consumer is ready."""
        eventually("a consumer that is ready", lambda: get(self.port, "/readyz")[0] == 200)

    @contextlib.contextmanager
    def program(self, name: str, *words: str) -> Iterator[None]:
        """Run a program until the end of the test, with its messages in a file."""
        path = self.folder / f"{name}.log"
        command = [str(BINARIES / name), *words]
        with path.open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as program:
            try:
                yield
            finally:
                early = program.poll()
                program.terminate()
                program.wait(60)
                assert early is None, path.read_text()

    def train(self, changes: int) -> None:
        """Train until this many changes are in force, each for some steps."""
        model, until = Bigrams(), None
        with batchweave.connect(str(self.folder / "consumer.sock"), job="pretrain") as reader:
            for batch in reader:
                tokens, sources = batch["tokens"], batch["source_ids"]
                losses, of = model.train(tokens), sources[:, 1:].ravel()
                sums = np.bincount(of, losses, minlength=2)
                counts = np.bincount(of, minlength=2)
                by_source = {n: (sums[n], counts[n]) for n in range(2) if counts[n]}
                reader.report(batch, loss=losses.mean(), tokens=losses.size, sources=by_source)
                # The last token of a row is the first of the next one.
                self.taken[batch.step] = np.bincount(sources[:, :-1].ravel(), minlength=2)
                if batch.step % 10 == 9:
                    reader.checkpoint(batch.state_dict())
                    self.look(batch.step)
                    if until is None and changes in self.mixtures:
                        until = self.mixtures[changes][0] + 30
                if until is not None and batch.step >= until:
                    break
                assert batch.step < 20_000, "a driver makes changes"

    def look(self, step: int) -> None:
        """Wait until the producer has its lead; remember the mixtures: the log forgets old ones."""
        eventually("a producer with its lead", lambda: self.steps() + LATE >= step + self.lead)

    def steps(self) -> int:
        """Return the number of steps of the stream, and remember its mixtures."""
        shown = run("batchweave", "mixture", "show", "--json", "--store", self.store)
        assert shown.code == 0, shown
        report = json.loads(shown.out)
        for one in report["mixtures"]:
            shares = {source["source"]: source["wanted"] for source in one["sources"]}
            if None not in shares.values():
                self.mixtures[one["id"]] = (one["from"], [shares[name] for name in NAMES])
        return int(report["steps"][1])

    def reasons(self, changes: int) -> list[dict[str, Any]]:
        """Return the reason of each change, which was computed again."""
        found = []
        for number in range(1, changes + 1):
            words = ["mixture", "explain", str(number), "--json", "--store", self.store]
            explained = run("batchweave", *words)
            assert explained.code == 0, explained
            report = json.loads(explained.out)
            assert (len(report["checked"]), report["unchecked"]) == (4, []), report
            found.append(report["why"])
        return found

    def check_tokens(self) -> None:
        """Check the share of each source in each mixture by the bound of docs/order.md."""
        last = max(self.taken) + 1
        begin = sorted(one for one in self.mixtures.values() if one[0] < last)
        assert len(begin) > 2
        ends = [first for first, _ in begin[1:]] + [last]
        for (first, shares), end in zip(begin, ends, strict=True):
            tokens: Any = sum((self.taken[step] for step in range(first, end)), np.zeros(2, int))
            for share, own in zip(shares, tokens, strict=True):
                # A document at each end of the steps may lie in part behind it.
                bound = (len(NAMES) + 2) * LONGEST
                assert abs(own - share * tokens.sum()) <= bound, (first, end, shares, tokens)


def shares_of_web(reasons: list[dict[str, Any]]) -> list[float]:
    """Return the share of the source that is learned quickly, change by change."""
    return [why["sources"][0]["share"] for why in reasons]


@pytest.mark.parametrize("summed", [False, True], ids=["average", "sum"])
def test_a_source_that_is_learned_quickly_gets_less(tmp_path: Path, summed: bool) -> None:
    site = Run(tmp_path, 16)
    rule = ["--rule", "odm", "--every", "12", "--after", "3", *(["--sum"] if summed else [])]
    with site.daemons(*rule):
        site.train(10)
    shares = shares_of_web(site.reasons(10))
    print("shares of web:", shares)
    assert shares[9] < 0.48
    if summed:
        assert shares[9] < shares[6] < shares[3] < shares[0]
    site.check_tokens()


def test_a_driver_waits_for_the_first_batch_of_a_stream(tmp_path: Path) -> None:
    site = Run(tmp_path, 16)
    shape = ["--slices", "1", "--rows-per-slice", "4", "--seq-len", "256"]
    tokenizer = ["--tokenizer", "bytes", "--fingerprint", "0" * 64]
    made = run("batchweave", "init", *shape, *tokenizer, "--store", site.store)
    assert made.code == 0, made
    with site.program("batchweave-consumer", "--config", str(tmp_path / "consumer.toml")):
        site.is_ready()
        with batchweave.connect(str(tmp_path / "consumer.sock"), job="pretrain"):
            words = ["mixture", "drive", "--job", "pretrain", "--rule", "odm", "--every", "12"]
            looked = run("batchweave", *words, "--once", "--store", site.store)
    assert looked.code == 0, looked
    assert "steps 0..11 are needed, and the stream has 0 steps" in looked.out, looked


def test_changes_are_as_far_apart_as_the_lead_and_their_steps(tmp_path: Path) -> None:
    site = Run(tmp_path, LEAD)
    with site.daemons("--rule", "odm", "--every", str(EVERY), "--after", "3"):
        site.train(3)
    begin = [first for first, _ in sorted(site.mixtures.values())]
    print("mixtures begin at", begin)
    # The trainer gives the producer its lead after each ten steps.
    least = LEAD + EVERY - LATE - 10
    assert min(b - a for a, b in itertools.pairwise(begin[1:])) >= least
    site.check_tokens()
