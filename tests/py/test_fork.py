"""Forks with real daemons: the parent's batches from step N on, and with another mixture each
document once over parent and fork, by a checker of its own; commands that are killed, and the
example of the page.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import fork_checker
import pytest
from probes import Ran, run
from shell_blocks import blocks
from site_of_daemons import BINARIES, ROOT

# Forks of each order.
FORKS = int(os.environ.get("BATCHWEAVE_FORKS", "4"))
SOURCES = {"web": 160, "code": 120}
NAMES = ["tokens-0", "tokens-1"]


def corpus(folder: Path) -> dict[tuple[int, int], int]:
    """Write the documents; return the tokens of each, by file and byte."""
    tokens = {}
    for file, (name, count) in enumerate(SOURCES.items()):
        draw = random.Random(name)
        at, lines = 0, []
        for n in range(count):
            text = " ".join(
                f"{name}{n}w{draw.randrange(999)}" for _ in range(draw.randrange(1, 90))
            )
            line = json.dumps({"text": text}) + "\n"
            tokens[file, at] = len(text) + 1
            at += len(line)
            lines.append(line)
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return tokens


def config(folder: Path, root: Path, order: str, index: int, mode: str = "best_fit") -> Path:
    """Return the configuration of a producer."""
    path = folder / f"{root.name}-{index}.toml"
    sources = "".join(
        f'[[sources]]\nname = "{name}"\npaths = ["{folder / name}.jsonl"]\nweight = {weight}\n'
        for name, weight in zip(SOURCES, (0.7, 0.3), strict=True)
    )
    path.write_text(f"""
store.url = "file://{root}"
stream = {{ slices = 2, rows_per_slice = 2, seq_len = 256, order = "{order}", \
producers = {json.dumps(NAMES)} }}
producer = {{ name = "{NAMES[index]}", index = {index}, of = {len(NAMES)} }}
tokenizer.kind = "bytes"
packing = {{ mode = "{mode}", last_batch = "pad", object_bytes = "16KiB" }}
commit.linger = "2s"
admin.listen = "off"
{sources}
""")
    return path


def produce(path: Path, kills: int = 0) -> None:
    """Run a producer to its end, killed some times before."""
    program = str(BINARIES / "batchweave-producer")
    for kill in range(kills):
        with subprocess.Popen(
            [program, "--config", str(path)], stderr=subprocess.DEVNULL
        ) as daemon:
            time.sleep(0.05 + 0.1 * kill)
            daemon.kill()
    ended = run("batchweave-producer", "--config", path)
    assert ended.code == 0, ended


def open_producer(path: Path, root: Path, name: str) -> None:
    """Start a producer, which makes no batch without a job, and kill it when it has opened.

    Those that wait for another lane's turn need no job: in a stream that was opened before, a file
    in the place of the folder of their objects refuses them.
    """

    def entries() -> list[dict[str, object]]:
        return [entry for record in fork_checker.records(root) for entry in record["entries"]]

    program, waiting = str(BINARIES / "batchweave-producer"), path.with_suffix(".waits.toml")
    text = path.read_text()
    few = "" if "ahead." in text else "ahead.max_steps = 1\n"
    waiting.write_text(f'ahead.when_no_job = "wait"\n{few}{text}')
    objects = root / "data" / name
    if is_new := bool(entries()) and not objects.exists():
        objects.parent.mkdir(parents=True, exist_ok=True)
        objects.touch()
    with subprocess.Popen([program, "--config", str(waiting)], stderr=subprocess.DEVNULL) as daemon:
        deadline = time.monotonic() + 60
        while not any(e["kind"] == "opened" and e["producer"] == name for e in entries()):
            assert time.monotonic() < deadline, "not opened"
            time.sleep(0.01)
        daemon.kill()
    if is_new:
        objects.unlink()


def fork(parent: Path, step: int, child: Path, *more: str) -> Ran:
    """Fork a stream in a folder."""
    return run(
        "batchweave", "fork", f"file://{parent}", "--at-step", str(step), f"file://{child}", *more
    )


@pytest.fixture(scope="module", params=["arrival", "lanes"])
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """Make a parent of two producers."""
    order = str(request.param)
    folder = tmp_path_factory.mktemp(order)
    corpus(folder)
    for index in (1, 0):
        produce(config(folder, folder / "parent", order, index))
    return order, folder


def some(steps: int, seed: str) -> list[int]:
    draw = random.Random(seed)
    return sorted({0, steps, *(draw.randrange(steps) for _ in range(FORKS))})


def test_a_fork_with_the_same_settings_has_the_batches_of_its_parent(
    made: tuple[str, Path],
) -> None:
    order, folder = made
    parent = folder / "parent"
    expected = fork_checker.steps(parent)
    made_again = 0
    for n, step in enumerate(some(len(expected), "same")):
        child = folder / f"same-{step}"
        forked = fork(parent, step, child, "--json")
        assert forked.code == 0, forked
        report = json.loads(forked.out)
        made_again += sum(each["made_again"] for each in report["producers"])
        # In any order: each producer's batches follow from its own place.
        for index in (n % 2, 1 - n % 2):
            produce(config(folder, child, order, index), kills=n % 3)
        found = fork_checker.steps(child)
        assert fork_checker.first_step(child) == step
        digests = [(tgb.producer, tgb.seq, tgb.digest) for tgb in expected[step:]]
        fork_digests = [(tgb.producer, tgb.seq, tgb.digest) for tgb in found]
        if order == "lanes":
            assert fork_digests == digests, step
        assert sorted(fork_digests) == sorted(digests), step
        verified = run("batchweave", "verify", "--store", f"file://{child}")
        assert verified.code == 0, verified
        shutil.rmtree(child)
    assert made_again > 0, "no fork was inside an entry"


def test_a_fork_with_another_mixture_has_each_document_once(made: tuple[str, Path]) -> None:
    order, folder = made
    parent = folder / "parent"
    tokens = corpus(folder)
    below = fork_checker.steps(parent)
    assert fork_checker.documents(parent, below) == tokens
    for n, step in enumerate(some(len(below) - 4, "other")):
        child = folder / f"other-{step}"
        assert fork(parent, step, child).code == 0
        paths = [config(folder, child, order, index) for index in range(2)]
        for index, path in enumerate(paths):
            open_producer(path, child, NAMES[index])
        url = f"file://{child}"
        change = ("mixture", "set", "web=0.2", "code=0.8", "--after", "0", "--store", url)
        changed = run("batchweave", *change)
        # Those that have finished have no share left.
        assert changed.code in (0, 1), changed
        for path in paths:
            produce(path, kills=n % 2)
        found = fork_checker.documents(parent, below[:step])
        found += fork_checker.documents(child, fork_checker.steps(child))
        assert found == tokens, step
        shutil.rmtree(child)


def test_a_fork_that_is_killed_is_finished_by_the_same_command(made: tuple[str, Path]) -> None:
    _, folder = made
    parent, child = folder / "parent", folder / "killed"
    command = [str(BINARIES / "batchweave"), "fork", f"file://{parent}", "--at-step", "9"]
    command += [f"file://{child}"]
    for kill in range(6):
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as forking:
            time.sleep(0.01 * kill)
            forking.kill()
    ended = fork(parent, 9, child)
    assert ended.code == 0, ended
    again = fork(parent, 9, child)
    assert "the same fork was there" in again.out, again
    assert fork_checker.first_step(child) == 9
    shutil.rmtree(child)


def test_wrong_forks_are_refused_with_their_reason(made: tuple[str, Path]) -> None:
    _, folder = made
    parent = folder / "parent"
    steps = len(fork_checker.steps(parent))
    beyond = fork(parent, steps + 1, folder / "beyond")
    assert beyond.code == 1, beyond
    assert f"fork at {steps} or below" in beyond.err, beyond
    assert not (folder / "beyond").exists()
    same = fork(parent, 3, parent)
    assert same.code == 64, same
    assert "have the same root" in same.err, same
    child = folder / "there"
    dry = fork(parent, 3, child, "--dry-run")
    assert dry.code == 0, dry
    assert "nothing was written" in dry.out, dry
    assert not child.exists()
    assert fork(parent, 3, child).code == 0
    other = fork(parent, 4, child)
    assert other.code == 1, other
    assert "choose an empty root" in other.err, other
    # Below the fork the parent is named.
    shown = run("batchweave", "show", "2", "--store", f"file://{child}")
    assert shown.code == 1, shown
    assert f"in its parent, file://{parent}" in shown.err, shown
    found = run("batchweave", "where", "web.jsonl@0", "--store", f"file://{child}")
    assert found.code == 1, found
    assert f"steps below 3 are in the parent stream: add --store file://{parent}" in found.err
    shutil.rmtree(child)


def test_a_fork_outlives_its_parent(made: tuple[str, Path]) -> None:
    order, folder = made
    copy, child = folder / "copy", folder / "orphan"
    shutil.copytree(folder / "parent", copy)
    assert fork(copy, 11, child).code == 0
    deleted = run("batchweave", "delete", f"file://{copy}", "--yes")
    assert deleted.code == 0, deleted
    for index in range(2):
        produce(config(folder, child, order, index))
    expected = fork_checker.steps(folder / "parent")[11:]
    found = fork_checker.steps(child)
    assert sorted(tgb.digest for tgb in found) == sorted(tgb.digest for tgb in expected)
    status = run("batchweave", "status", "--store", f"file://{child}")
    assert f"parent     file://{copy}, up to step 11" in status.out, status
    assert f"data       {len(found)} steps, " in status.out, status
    assert "given up" not in status.out, status
    shutil.rmtree(child)


def test_the_commands_of_the_page_make_a_fork(made: tuple[str, Path]) -> None:
    _, folder = made
    page = (ROOT / "docs" / "forks.md").read_text()
    (commands,) = [lines for _, kind, lines in blocks(page) if kind == "sh"]
    here = folder / "page"
    here.mkdir()
    shutil.copytree(folder / "parent", here / "pretrain")
    for command in commands:
        words = command.replace("file:///data", f"file://{here}").split()
        assert words[0] == "batchweave"
        ended = run(words[0], *words[1:])
        assert ended.code == 0, ended
    assert fork_checker.first_step(here / "anneal") == 12
    shutil.rmtree(here)
