"""A job that goes on in forks with real daemons: three stages, two forks, restarts with other
numbers of ranks, and the proof of all of it; states and checkpoints that do not fit are refused.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import batchweave
import pytest
from probes import Ran, run
from site_of_daemons import BINARIES
from test_fork import corpus, fork, open_producer

PRODUCER = """
store.url = "file://{root}"
stream = {{ slices = 4, rows_per_slice = 2, seq_len = 128, order = "lanes", producers = ["a"] }}
producer.name = "a"
tokenizer.kind = "bytes"
packing = {{ mode = "concat", last_batch = "pad" }}
commit = {{ max_batches = 3, linger = "20ms" }}
ahead.max_steps = {most}
admin.listen = "off"
source.paths = ["{folder}/web.jsonl", "{folder}/code.jsonl"]
[[stages]]
name = "long"
seq_len = 512
rows_per_slice = 1
[[stages]]
name = "wide"
seq_len = 64
rows_per_slice = 6
"""
CONSUMER = """
store.url = "file://{root}"
job = {{ name = "t", open = true }}
arena = {{ bytes = "8MiB", segment_bytes = "4MiB" }}
prefetch = {{ bytes = "4MiB", steps = 8 }}
socket.path = "{root}.sock"
follow.idle = "100ms"
reclaim.enabled = false
admin.listen = "off"
"""
SHAPES = {None: (2, 128), "long": (1, 512), "wide": (6, 64)}
ALL_STEPS = 1 << 40


class Stream:
    """A stream in a folder, with its producer and the consumer daemon of its ranks."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.root = folder, folder / name
        self.attempts = 0

    def config(self, most: int = 0) -> Path:
        path = self.folder / f"{self.root.name}.toml"
        path.write_text(PRODUCER.format(root=self.root, folder=self.folder, most=most))
        return path

    def set_stage(self, name: str, step: int) -> None:
        """Set a stage while no producer runs."""
        open_producer(self.config(most=4), self.root, "a")
        at = ["--from-step", str(step), "--store", f"file://{self.root}"]
        done = run("batchweave", "stage", "set", name, "--config", self.config(), *at)
        assert done.code == 0, done

    def produce(self) -> None:
        done = run("batchweave-producer", "--config", self.config())
        assert done.code == 0, done

    def serve(self) -> subprocess.Popen[bytes]:
        path = self.folder / f"{self.root.name}-consumer.toml"
        path.write_text(CONSUMER.format(root=self.root))
        with (self.folder / f"{self.root.name}.log").open("ab") as log:
            return subprocess.Popen(
                [str(BINARIES / "batchweave-consumer"), "--config", str(path)], stderr=log
            )

    def rank(
        self, rank: int, size: int, until: int, state: dict[str, str] | None
    ) -> dict[str, str]:
        """Train as one rank up to step `until`, in the newest attempt; return the state there."""
        start: dict[str, Any] = {} if state is None else {"state": state}
        with batchweave.connect(
            f"{self.root}.sock",
            job="t",
            attempt=f"{self.attempts:032x}",
            dp_rank=rank,
            dp_size=size,
            timeout=120,
            **start,
        ) as reader:
            saved: dict[str, str] = {}
            for batch in reader:
                rows, seq_len = SHAPES[batch.stage.name if batch.stage else None]
                assert batch["tokens"].shape == (rows * 4 // size, seq_len + 1), batch.step
                reader.report(batch)
                saved = dict(batch.state_dict())
                if batch.step == until - 1:
                    break
            reader.checkpoint(saved)
        return saved

    def attempt(self, size: int, until: int, state: dict[str, str] | None = None) -> dict[str, str]:
        """Run an attempt of `size` ranks up to step `until`; return the state there."""
        self.attempts += 1
        with ThreadPoolExecutor(size) as ranks:
            asked = [ranks.submit(self.rank, rank, size, until, state) for rank in range(size)]
            states = [each.result() for each in asked]
        body = [json.loads(state["batchweave"]) for state in states]
        assert len({one["next_step"] for one in body}) == 1
        return states[0]

    def verify(self, *more: str) -> Ran:
        store = f"file://{self.root}"
        return run("batchweave", "verify", "--job", "t", "--trained", *more, "--store", store)


class Family:
    """A parent, a fork of it, and a fork of the fork, with a job that went through all of them."""

    def __init__(self, folder: Path) -> None:
        corpus(folder)
        self.running: list[subprocess.Popen[bytes]] = []
        self.parent, self.child, self.grandchild = (
            Stream(folder, name) for name in ("parent", "child", "grandchild")
        )
        self.parent.set_stage("long", 6)
        self.parent.produce()
        self.serve(self.parent)
        state = self.parent.attempt(4, 3)
        state = self.parent.attempt(2, 8, state)
        self.at_8 = state
        # Beyond the fork: that part is of another branch.
        self.at_10 = self.parent.attempt(4, 10, state)
        assert fork(self.parent.root, 8, self.child.root).code == 0
        self.child.set_stage("wide", 13)
        self.child.produce()
        self.serve(self.child)
        state = self.child.attempt(4, 11, self.at_8)
        state = self.child.attempt(2, 15, state)
        assert fork(self.child.root, 15, self.grandchild.root).code == 0
        self.grandchild.produce()
        self.serve(self.grandchild)
        self.grandchild.attempt(4, ALL_STEPS, state)

    def serve(self, stream: Stream) -> None:
        self.running.append(stream.serve())

    def stop(self) -> None:
        for daemon in self.running:
            daemon.terminate()
            assert daemon.wait(60) == 0
        self.running.clear()


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    """Make the streams once; their daemons end with the tests."""
    made = Family(tmp_path_factory.mktemp("family"))
    made.stop()
    return made


def test_a_job_over_three_stages_and_two_forks_is_proved(family: Family) -> None:
    proved = family.grandchild.verify("--parents", "--json")
    assert proved.code == 0, proved
    report = json.loads(proved.out)
    child, parent = report["parents"]
    assert report["from"] == child["to"] == 15
    assert child["run"]["from"] == parent["to"] == 8
    assert (parent["run"]["from"], parent["run"]["to"]) == (0, 8)
    assert report["steps"] == report["to"] - 15 > 0
    assert [part["run"]["steps"] for part in report["parents"]] == [7, 8]
    for run_of, worlds in ((report, [4]), (child["run"], [4, 2]), (parent["run"], [4, 2])):
        assert run_of["verdict"] == "proved", run_of
        assert [leg["dp_size"] for leg in run_of["lineage"]] == worlds
        assert run_of["training"]["not_trained"] is None, run_of
        assert run_of["training"]["trained"] == run_of["steps"]
    text = family.grandchild.verify("--parents")
    assert text.out.count("\nproved: steps ") == 3, text
    assert f"parent stream file://{family.parent.root}, steps below 8" in text.out, text
    assert "attempt 1 of the parent, step 8" in text.out, text
    whole = f"the whole run is proved: steps 0..{report['to'] - 1}, {report['to']} in all, over 3"
    assert text.out.rstrip().splitlines()[-1].startswith(whole), text


def test_without_a_ledger_of_the_parent_it_is_not(family: Family, tmp_path: Path) -> None:
    ledgers = sorted((family.parent.root / "jobs").rglob("*ledger*/*"))
    assert ledgers, sorted((family.parent.root / "jobs").rglob("*"))
    away = tmp_path / "away"
    ledgers[0].rename(away)
    try:
        found = family.child.verify("--parents")
    finally:
        away.rename(ledgers[0])
    assert found.code == 66, found
    assert f"of file://{family.parent.root}: gap: " in found.err, found
    assert family.child.verify("--parents").code == 0


def test_a_parent_that_is_gone_is_named(family: Family) -> None:
    hidden = family.parent.root.with_name("hidden")
    family.parent.root.rename(hidden)
    try:
        found = family.grandchild.verify("--parents", "--json")
        partly = family.grandchild.verify("--parents")
        without = family.grandchild.verify()
    finally:
        hidden.rename(family.parent.root)
    assert found.code == 66, found
    assert f"steps 0..7 are of the parent stream file://{family.parent.root}" in found.err, found
    child, parent = json.loads(found.out)["parents"]
    assert child["run"]["verdict"] == "proved"
    assert parent["run"] is None, parent
    assert "whole run" not in partly.out, partly
    # Without --parents the question is not asked.
    assert without.code == 0, without


def test_another_stream_in_the_place_of_the_parent_is_named(family: Family) -> None:
    hidden = family.parent.root.with_name("hidden")
    family.parent.root.rename(hidden)
    try:
        shutil.copytree(family.child.root, family.parent.root)
        found = family.child.verify("--parents")
    finally:
        shutil.rmtree(family.parent.root)
        hidden.rename(family.parent.root)
    assert found.code == 66, found
    assert "has another stream now" in found.err, found


def test_a_stream_without_a_parent_says_so(family: Family) -> None:
    found = family.parent.verify("--parents")
    assert found.code == 0, found
    assert "the stream has no parent" in found.out, found


def test_a_fork_takes_a_checkpoint_of_its_first_step_alone(family: Family) -> None:
    daemon = family.child.serve()
    try:
        with pytest.raises(batchweave.errors.OtherStreamError, match="fork the parent at step 10"):
            family.child.attempt(4, 11, family.at_10)
        with pytest.raises(batchweave.errors.ForgottenStateError, match="begins at step 8"):
            fresh(family.child)
        # As often as it restarts before its first checkpoint.
        family.child.attempt(2, 9, family.at_8)
    finally:
        daemon.terminate()
        daemon.wait(60)
    proved = json.loads(family.child.verify("--parents", "--json").out)
    assert [leg["from"] for leg in proved["lineage"]] == [8]
    assert proved["parents"][0]["run"]["steps"] == 8


def fresh(stream: Stream) -> None:
    """Begin a job of its own name without a state."""
    opened = run("batchweave", "job", "open", "other", "--store", f"file://{stream.root}")
    assert opened.code == 0, opened
    path = stream.folder / "other.toml"
    text = CONSUMER.format(root=stream.root).replace('"t"', '"other"')
    path.write_text(text.replace(".sock", ".other.sock"))
    command = [str(BINARIES / "batchweave-consumer"), "--config", str(path)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as daemon:
        try:
            with batchweave.connect(f"{stream.root}.other.sock", job="other", timeout=60) as reader:
                next(reader)
        finally:
            daemon.terminate()


def test_a_run_that_states_no_checkpoint_of_the_parent_is_named(family: Family) -> None:
    copy = Stream(family.parent.folder, "unstated")
    assert fork(family.parent.root, 8, copy.root).code == 0
    copy.produce()
    daemon = copy.serve()
    try:
        with batchweave.connect(f"{copy.root}.sock", job="t", start=8, timeout=60) as reader:
            for batch in reader:
                reader.report(batch)
            reader.checkpoint(batch.state_dict())
    finally:
        daemon.terminate()
        daemon.wait(60)
    assert copy.verify().code == 0
    found = copy.verify("--parents")
    assert found.code == 66, found
    assert "states no checkpoint" in found.err, found
