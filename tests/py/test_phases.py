"""The examples of "Phases of a run" with real daemons: each stage of the page is added to the
configurations, its commands are run, and every step has its shape and each token one place.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import batchweave
import fork_checker
import pytest
from probes import refused, run
from shell_blocks import blocks
from site_of_daemons import BINARIES, ROOT
from test_fork import open_producer

TOML: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
NAMES = ["tokens-0", "tokens-1"]
# The steps of the page, in a stream of a few dozen.
STEPS = {"40000": "6", "60000": "9"}
BASE = """
store.url = "file://{root}"
stream = {{ slices = 2, rows_per_slice = 8, seq_len = 4096, order = "lanes", producers = {names} }}
producer = {{ name = "{name}", index = {index}, of = 2 }}
tokenizer.kind = "bytes"
packing = {{ mode = "concat", last_batch = "pad" }}
admin.listen = "off"
[[sources]]
name = "web"
paths = ["{folder}/web.jsonl"]
weight = 0.7
[[sources]]
name = "books"
paths = ["{folder}/books.jsonl"]
weight = 0.3
"""


def examples() -> dict[str, tuple[str, list[str]]]:
    """Return the TOML and the commands of each example of the page, by its name."""
    page = (ROOT / "docs" / "phases.md").read_text()
    section = page.split("## Examples")[1].split("## Bounds")[0]
    found = {}
    for part in re.split(r"^\*\*", section, flags=re.MULTILINE)[1:]:
        name = part.split("**")[0]
        by_kind = {kind: lines for _, kind, lines in blocks(part)}
        found[name] = ("\n".join(by_kind.get("toml", [])), by_kind["sh"])
    return found


def corpus(folder: Path) -> dict[tuple[int, int], int]:
    """Write the documents of both sources; return the tokens of each, by file and byte."""
    tokens = {}
    for file, (source, count) in enumerate((("web", 700), ("books", 300))):
        at, lines = 0, []
        for n in range(count):
            text = f"{source} {n} " * (10 + n * 37 % 300)
            line = json.dumps({"text": text}) + "\n"
            tokens[file, at] = len(text) + 1
            at += len(line)
            lines.append(line)
        (folder / f"{source}.jsonl").write_text("".join(lines))
    return tokens


def configure(folder: Path, root: Path, stages: str, names: list[str]) -> list[Path]:
    """Write the configurations of both producers into files of these names."""
    paths = []
    for index, name in enumerate(names):
        text = BASE.format(
            root=root, names=json.dumps(NAMES), name=NAMES[index], index=index, folder=folder
        )
        (folder / name).write_text(text + stages)
        paths.append(folder / name)
    return paths


def page_command(folder: Path, line: str) -> None:
    """Run a command of the page on the stream in `folder`."""
    for step, few in STEPS.items():
        line = line.replace(step, few)
    line = line.replace("file:///data", f"file://{folder}")
    words = [str(folder / word) if word.endswith(".toml") else word for word in line.split()]
    assert words[0] == "batchweave"
    env = {**os.environ, "BATCHWEAVE_STORE": f"file://{folder}/pretrain"}
    ended = run(words[0], *words[1:], env=env)
    assert ended.code == 0, ended


def produce(paths: list[Path]) -> None:
    """Run the producers to their end."""
    for path in paths:
        ended = run("batchweave-producer", "--config", path)
        assert ended.code == 0, ended


def shapes(root: Path) -> list[tuple[str | None, int, int]]:
    """Return stage, rows per slice and tokens per row of all steps, as the arrays have them."""
    found: list[tuple[str | None, int, int]] = []
    with batchweave.open(f"file://{root}") as stream:
        for step in stream.steps:
            batch = stream[step]
            (shape,) = {shape_of(batch, piece) for piece in batch.slices}
            found.append((batch.stage.name if batch.stage else None, *shape))
    return found


def shape_of(batch: batchweave.Batch, piece: Any) -> tuple[int, int]:
    """Return the rows of a slice and their tokens; of bins, which hold fewer, the most."""
    if "bins" not in piece:
        rows, width = piece["tokens"].shape
        return rows, width - 1
    assert batch.stage is not None
    borders = piece["documents"][piece["bins"]]
    assert (borders[1:] - borders[:-1] <= batch.stage.seq_len).all()
    return len(piece["bins"]) - 1, batch.stage.seq_len


CONFIGS = [f"{name}.toml" for name in NAMES]
FIRST = (None, 8, 4096)
# The shapes of each example, by the first step of a stream of a few dozen.
WANTED = {
    "Long context": {0: FIRST, 6: ("long", 1, 32768)},
    "Even steps": {0: FIRST, 6: ("even", 4, 8192)},
    "A batch ramp": {0: FIRST, 6: ("ramp-2x", 16, 4096), 9: ("ramp-4x", 32, 4096)},
    "Cooldown": {0: FIRST, 6: ("cooldown", 8, 4096)},
}


def check_shapes(
    found: list[tuple[str | None, int, int]], wanted: dict[int, tuple[str | None, int, int]]
) -> None:
    for step, shape in enumerate(found):
        assert shape == wanted[max(first for first in wanted if first <= step)], step
    assert len(found) > max(wanted) + 1


def test_the_page_has_these_examples() -> None:
    assert [*examples()] == [*WANTED, "An ablation"]


@pytest.mark.parametrize("name", WANTED)
def test_an_example_of_the_page_gives_its_shapes(tmp_path: Path, name: str) -> None:
    stages, commands = examples()[name]
    tokens = corpus(tmp_path)
    root = tmp_path / "pretrain"
    paths = configure(tmp_path, root, stages, CONFIGS)
    for path, producer in zip(paths, NAMES, strict=True):
        open_producer(path, root, producer)
    for line in commands:
        page_command(tmp_path, line)
    produce(paths)
    check_shapes(shapes(root), WANTED[name])
    assert fork_checker.documents(root, fork_checker.steps(root)) == tokens


def test_a_lane_that_finished_beyond_the_step_is_not_passed_over(tmp_path: Path) -> None:
    """Its batches have the old shape, and a stage before them would not be whole."""
    stages, _ = examples()["Cooldown"]
    corpus(tmp_path)
    root = tmp_path / "pretrain"
    paths = configure(tmp_path, root, stages, CONFIGS)
    open_producer(paths[0], root, NAMES[0])
    produce(paths[1:])
    asked = ["stage", "set", "cooldown", "--config", str(paths[0]), "--store", f"file://{root}"]
    early = run("batchweave", *asked, "--from-step", "6")
    free = re.search(r"committed already; the first free step is at most (\d+)", early.err)
    assert free is not None, early
    assert early.code != 0
    assert run("batchweave", *asked, "--from-step", free[1]).code == 0
    produce(paths[:1])
    names = [name for name, *_ in shapes(root)]
    border = int(free[1])
    assert names == [None] * border + ["cooldown"] * (len(names) - border)
    assert 6 < border < len(names)


def test_the_ablation_of_the_page_is_a_fork_with_another_shape(tmp_path: Path) -> None:
    _, commands = examples()["An ablation"]
    tokens = corpus(tmp_path)
    parent, child = tmp_path / "pretrain", tmp_path / "long"
    produce(configure(tmp_path, parent, "", CONFIGS))
    stages, _ = examples()["Long context"]
    page_command(tmp_path, commands[0])
    paths = configure(tmp_path, child, stages, ["long.toml", "long-1.toml"])
    for path, producer in zip(paths, NAMES, strict=True):
        open_producer(path, child, producer)
    page_command(tmp_path, commands[1])
    produce(paths)
    check_shapes([FIRST] * 6 + shapes(child), WANTED["Long context"])
    given = fork_checker.documents(parent, fork_checker.steps(parent)[:6])
    assert given + fork_checker.documents(child, fork_checker.steps(child)) == tokens


@pytest.mark.parametrize("example", ["Long context", "Even steps"])
def test_a_fork_of_a_stream_with_stages_has_its_batches(tmp_path: Path, example: str) -> None:
    stages, commands = examples()[example]
    (name,) = re.findall(r'name = "(\w+)"', stages)
    corpus(tmp_path)
    parent = tmp_path / "pretrain"
    paths = configure(tmp_path, parent, stages, CONFIGS)
    for path, producer in zip(paths, NAMES, strict=True):
        open_producer(path, parent, producer)
    page_command(tmp_path, commands[0])
    produce(paths)
    wanted = fork_checker.steps(parent)
    # Step 6 is the first one in the stage; from 5 on it begins for a producer at the fork.
    for step, carried in ((0, False), (4, False), (5, True), (8, True), (len(wanted), True)):
        child = tmp_path / f"fork-{step}"
        url = f"file://{child}"
        forked = run(
            "batchweave", "fork", f"file://{parent}", "--at-step", str(step), url, "--json"
        )
        assert forked.code == 0, forked
        report = json.loads(forked.out)
        assert report["stages"] == ([name] if carried else []), report
        # A fork at step 0 knows nothing of the log.
        later = [] if carried or step == 0 else [name]
        assert report["left_behind"]["stages"] == later, report
        paths = configure(tmp_path, child, stages, CONFIGS)
        if not carried:
            for path, producer in zip(paths, NAMES, strict=True):
                open_producer(path, child, producer)
            page_command(tmp_path, f"{commands[0]} --store {url}")
        produce(paths)
        found = fork_checker.steps(child)
        assert [tgb.digest for tgb in found] == [tgb.digest for tgb in wanted[step:]], step


def until_it_holds(path: Path) -> tuple[str, str]:
    """Run a producer until it holds; return the line that says so, and all others."""
    command = [str(BINARIES / "batchweave-producer"), "--config", str(path)]
    others: list[str] = []
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as daemon:
        assert daemon.stderr is not None
        for line in daemon.stderr:
            if "ERROR" in line:
                daemon.terminate()
                return line, "".join(others) + daemon.stderr.read()
            others.append(line)
    raise AssertionError("".join(others))


def test_a_producer_that_holds_names_the_lines_to_add_and_its_batches(tmp_path: Path) -> None:
    stages, commands = examples()["Long context"]
    corpus(tmp_path)
    root = tmp_path / "pretrain"
    for path, producer in zip(configure(tmp_path, root, stages, CONFIGS), NAMES, strict=True):
        open_producer(path, root, producer)
    page_command(tmp_path, commands[0])
    (path, _) = configure(tmp_path, root, "", CONFIGS)
    checked = run("batchweave-producer", "--config", path, "--check")
    held, rest = until_it_holds(path)
    lines = re.search(r"with (name = .*?, rows_per_slice = \d+, seq_len = \d+) and", held)
    assert lines is not None, held
    added = TOML.loads("\n".join(lines[1].split(", ")))
    assert added == {"name": "long", "rows_per_slice": 1, "seq_len": 32768}
    warning = re.search(r"  warning +(producer .*)", checked.out)
    assert warning is not None, checked
    assert warning[1] in held
    assert "stopped while holding before a stage; a restart continues from here batches=3" in rest
    # At the stage it says so once.
    again, rest = until_it_holds(path)
    assert warning[1] in again
    assert warning[1] not in rest
    (path, _) = configure(tmp_path, root, stages, CONFIGS)
    checked = run("batchweave-producer", "--config", path, "--check")
    assert "warning" not in checked.out
    shape = (
        'packing.look_ahead = 64, packing.mode = "best_fit", rows_per_slice = 1, seq_len = 32768'
    )
    assert f"  stage      long: {shape}\n" in checked.out


@pytest.mark.parametrize(
    ("before", "after", "part"),
    [
        ("packing = {", "packing = { shuffle_rows = { tokens = 1000000 },", "shuffle_rows"),
        ('mode = "concat"', 'mode = "pairs"', "packing.mode"),
        ("packing = {", 'packing = { balanced.long = "bad",', "packing.balanced.long"),
    ],
)
def test_stages_are_refused_where_they_cannot_be(
    tmp_path: Path, before: str, after: str, part: str
) -> None:
    stages, _ = examples()["Even steps"]
    (path, _) = configure(tmp_path, tmp_path / "none", stages, CONFIGS)
    path.write_text(path.read_text().replace(before, after))
    refused(run("batchweave-producer", "--config", path, "--check"), "stages", part)
