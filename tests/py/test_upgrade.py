"""Streams of an older commit, one of each mode, whose producers were stopped in the middle: today's
programs read them, prove them, and make the batches that the older programs would have made next.
They store nothing there that the older programs refuse, so these can be put back. A stream from
before stored objects had digests is named as that, not as damaged.

`make_upgrade_streams.py` made the archives, which are never changed. The order of steps needs no
test of its own: each record holds the hash of its writer's fold, with which a reader's must agree.
"""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import batchweave
import numpy
import pytest
from site_of_daemons import BINARIES, ROOT, eventually
from upgrade_stream import batches, committed, key_paths

ARCHIVES = ROOT / "tests" / "golden" / "upgrade"
FACTS: dict[str, Any] = json.loads((ARCHIVES / "facts.json").read_text())
STREAMS = sorted(name for name in FACTS if name != "undigested")
# Of the streams that have all of their input once: the documents in it.
DOCUMENTS = {"concat": 81, "chat": 60, "pairs": 60, "opaque": 50, "arrays": 90, "shared": 120}
DOCUMENTS |= {"lanes": 120, "inbox": 60, "transform": 60}
# Keys of records that the older programs lack. Files of any name may join a followed source, and
# these programs read some names otherwise, so their producers refuse a cursor with this key.
NEWER = {"follow": {"batch: cursor.settings.source.names"}}


class Old:
    """A stream of an older commit in a folder, and today's programs."""

    def __init__(self, name: str, folder: Path) -> None:
        self.folder, self.stream = folder, folder / "stream"
        self.url = f"file://{self.stream}"
        self.processes: list[subprocess.Popen[bytes]] = []
        with tarfile.open(ARCHIVES / f"{name}.tar.gz") as archive:
            archive.extractall(folder, filter="data")

    def start(self, program: str, config: str) -> subprocess.Popen[bytes]:
        """Start a daemon in the folder; its output goes to PROGRAM.log."""
        path = self.folder / f"{program}.toml"
        path.write_text(f'store.url = "{self.url}"\n{config}')
        with (self.folder / f"{program}.log").open("ab") as log:
            words = [str(BINARIES / program), "--config", path.name]
            process = subprocess.Popen(words, cwd=self.folder, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def end_of(self, program: str, config: str) -> tuple[int, str]:
        """Run a daemon until it ends; return its exit code and output."""
        code = self.start(program, config).wait(timeout=60)
        return code, (self.folder / f"{program}.log").read_text()

    def produce(self) -> tuple[int, str]:
        """Let a producer continue with the configuration that the older one had."""
        return self.end_of("batchweave-producer", (self.folder / "producer.toml").read_text())

    def batchweave(self, *verb: str) -> tuple[int, str]:
        """Return the exit code and output of a verb."""
        words = [str(BINARIES / "batchweave"), "--store", self.url, *verb]
        result = subprocess.run(words, text=True, capture_output=True, check=False)
        return result.returncode, result.stdout + result.stderr

    def answer(self, *verb: str) -> Any:
        """Return the JSON of a verb that succeeds."""
        code, output = self.batchweave(*verb, "--json")
        assert code == 0, output
        return json.loads(output)


@pytest.fixture
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Old]:
    stream = Old(request.param, tmp_path)
    try:
        yield stream
    finally:
        for process in stream.processes:
            process.kill()
            process.wait()


def of_streams(*names: str) -> pytest.MarkDecorator:
    """Return the mark of a test that runs once per stream."""
    return pytest.mark.parametrize(
        ("old", "facts"), [(name, FACTS[name]) for name in names], ids=names, indirect=["old"]
    )


def check_documents(old: Old, steps: int, shared: int, pairs: bool) -> int:
    """Check that the steps have all tokens of each document once, from its first one on, except
    `shared` ones where it is cut, or of `pairs` both answers; return the number of documents.
    """
    pieces: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    seen: set[int] = set()
    for step in range(steps):
        if step in seen:
            continue
        for one in old.answer("show", str(step), "--sources")["sources"]:
            if one["step"] in seen:
                continue
            seen.add(one["step"])
            for piece in one["documents"]:
                document = (piece["source"], piece["pass"])
                pieces[document].append((piece["skip"], piece["tokens"]))
    assert seen == set(range(steps))
    for document, parts in pieces.items():
        if pairs:
            assert [skip for skip, _ in parts] == [0, 0], (document, parts)
            continue
        end = 0
        for skip, tokens in sorted(parts):
            assert end - shared <= skip <= end, (document, sorted(parts))
            end = skip + tokens
    return len(pieces)


@of_streams(*STREAMS)
def test_a_producer_makes_the_batches_that_the_older_one_would_have_made(
    old: Old, facts: Any, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.id
    stopped, whole = batches(old.stream), facts["digests"]
    assert {one: len(digests) for one, digests in stopped.items()} == facts["at_stop"]
    # Read by today's programs, before they have written anything.
    assert "the stream is sound" in old.batchweave("verify", "--data")[1]
    assert old.answer("status")["head"]["steps"] == committed(old.stream)
    assert old.answer("show", "0", "--slices")["digest_matches"] is True

    code, output = old.produce()
    assert code == 0, output
    assert batches(old.stream) == whole
    code, output = old.batchweave("verify", "--data")
    assert (code, "the stream is sound" in output) == (0, True), output
    status = old.answer("status")
    steps = sum(len(digests) for digests in whole.values())
    assert (status["head"]["steps"], status["end"]) == (steps, steps)
    if name != "long":
        # The last label of a row is the first input of the next one; samples are never cut.
        found = check_documents(old, steps, int(name != "opaque"), name == "pairs")
        assert found == DOCUMENTS.get(name, found)

    # The way back: no key, no format and no kind of entry that the older programs don't know.
    assert set(key_paths(old.stream)) - set(facts["keys"]) == NEWER.get(name, set())
    for path in old.stream.rglob("data/*/*/*"):
        assert path.read_bytes()[:4] in (b"BWF\1", b"BWS\1"), path


@of_streams("concat")
def test_a_rank_continues_the_run_of_an_older_daemon_and_has_each_token_once(
    old: Old, facts: Any
) -> None:
    code, output = old.batchweave("verify", "--job", "training")
    assert (code, "proved: steps 0..8" in output) == (0, True), output
    assert old.produce()[0] == 0
    steps = len(facts["digests"]["p0"])
    socket = old.folder / "daemon"
    daemon = old.start(
        "batchweave-consumer",
        f"""
        job.name = "training"
        arena = {{ bytes = "8MiB", segment_bytes = "4MiB" }}
        prefetch = {{ bytes = "4MiB", steps = 16 }}
        socket.path = "{socket}"
        reclaim.enabled = false
        admin.listen = "off"
        """,
    )
    eventually("a consumer", socket.exists)
    options: dict[str, Any] = {"socket": str(socket), "dp_rank": 0, "dp_size": 1}
    options["state"] = json.loads((old.folder / "state.json").read_text())
    with batchweave.connect(job="training", attempt="2" * 32, **options) as reader:
        received = {batch.step: batch.inputs.copy() for batch in reader}
        assert list(received) == list(range(8, steps))
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(timeout=60) == 0
    code, output = old.batchweave("verify", "--job", "training")
    assert (code, f"proved: steps 0..{steps - 1}" in output) == (0, True), output
    assert set(key_paths(old.stream)) <= set(facts["keys"])

    tokens = []
    with batchweave.open(old.url) as stream:
        for batch in stream:
            rows = batch.inputs
            tokens.append(rows.reshape(-1))
            assert numpy.array_equal(rows, received.get(batch.step, rows))
    found = numpy.concatenate(tokens)
    wanted = numpy.concatenate([numpy.append(one, 256) for one in corpus(old.folder / "corpus")])
    # The last label has no input; what follows the input is padding.
    length = min(len(wanted), len(found))
    assert len(found) >= len(wanted) - 1
    assert numpy.array_equal(found[:length], wanted[:length])
    assert set(found[length:].tolist()) <= {256}


def corpus(folder: Path) -> Iterator[Any]:
    """Yield the documents of the input as bytes, in the order of the files."""
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        documents = [content]
        if ".jsonl" in path.name:
            documents = [json.loads(one)["text"].encode() for one in content.splitlines()]
        for document in documents:
            yield numpy.frombuffer(document, numpy.uint8).astype(numpy.uint16)


@of_streams("undigested")
def test_a_stream_without_digests_is_named_as_of_an_older_release(old: Old, facts: Any) -> None:
    assert committed(old.stream) == sum(facts["at_stop"].values())
    before = {path: path.read_bytes() for path in old.stream.rglob("*") if path.is_file()}
    consumer = f"""
        job = {{ name = "training", open = true }}
        socket.path = "{old.folder / "daemon"}"
        admin.listen = "off"
    """
    said = {
        "status": old.batchweave("status"),
        "verify": old.batchweave("verify"),
        "producer": old.produce(),
        "consumer": old.end_of("batchweave-consumer", consumer),
    }
    for actor, (code, output) in said.items():
        assert code == 76, (actor, output)
        assert "stream.json: has no digest: a program from before stored objects" in output, output
        assert "make a new stream, or read this one with that program" in output, (actor, output)
        assert "damaged" not in output, (actor, output)
    after = {path: path.read_bytes() for path in old.stream.rglob("*") if path.is_file()}
    assert after == before
