"""accelerate and the Trainer of transformers: each step is trained, or the run is refused.

`make test-frameworks` runs this; see conftest.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fake_daemon import ROWS, FakeDaemon, tokens_of
from torch_wrapped import SAVED, STEPS

SHARDED = ["two-dispatched", "two-sharded", "two-trained"]
AHEAD = ["one-dispatched", "one-sharded", "one-trained"]
HALVES = ["first_half", "fast_forward", "second_half"]
ALL = [
    *SHARDED,
    *AHEAD,
    *("two-by_hand", "one-by_hand", "one-evaluated", "one-skipped"),
    *(f"{world}-{half}" for half in HALVES for world in ("one", "two")),
]
Results = dict[str, Any]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """All cases of one process, which imports the frameworks once."""
    folder = tmp_path_factory.mktemp("wrapped")
    program = str(Path(__file__).with_name("torch_wrapped.py"))
    with FakeDaemon(folder / "s.sock", end=STEPS):
        said = subprocess.run(
            [sys.executable, program, str(folder / "s.sock"), str(folder), *ALL],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=1_200,
        ).stdout
    found: Results = json.loads(said.splitlines()[-1])
    assert sorted(found) == sorted(ALL)
    return found


def steps_of(found: list[Any]) -> list[list[int]]:
    """The steps that each rank trained on, from the first tokens of the rows."""
    steps = []
    for rank, each in enumerate(found):
        first = {int(token): step for step in range(STEPS) for token in tokens_of(step, rank)[:, 0]}
        rows = Counter(first[token] for token in each["rows"])
        assert set(rows.values()) <= {ROWS}, "a step is trained whole, and once"
        steps.append(sorted(rows))
    return steps


@pytest.mark.parametrize("case", SHARDED)
def test_a_loader_that_divides_steps_is_refused_on_all_ranks(results: Results, case: str) -> None:
    names = {"two-sharded": "IterableDatasetShard"}
    for each in results[case]:
        assert each["rows"] == []
        name, text = each["error"]
        assert name == "wrapped_loader"
        wrapper = names.get(case, "DataLoaderDispatcher")
        assert text.startswith(f"{wrapper} of accelerate divides steps among 2 processes")
        assert "get_train_dataloader()" in text


@pytest.mark.parametrize("case", AHEAD)
def test_a_loader_that_reads_ahead_is_refused_in_a_job(results: Results, case: str) -> None:
    (each,) = results[case]
    assert each["rows"] == []
    name, text = each["error"]
    assert name == "wrapped_loader"
    assert "fetches a step ahead of training: positions saved in job 'pretrain'" in text


def test_a_fast_forward_is_refused(results: Results) -> None:
    (each,) = results["one-skipped"]
    assert each["rows"] == []
    assert f"SkipDataLoader of accelerate leaves out the first {SAVED} steps" in each["error"][1]
    for case in ("one-fast_forward", "two-fast_forward"):
        for each in results[case]:
            assert each["rows"] == []
            assert f"leaves out the first {2 * SAVED} steps" in each["error"][1]
            assert "ignore_data_skip=True" in each["error"][1]


@pytest.mark.parametrize("case", ["two-by_hand", "one-by_hand", "one-evaluated"])
def test_the_pages_loop_trains_every_step(results: Results, case: str) -> None:
    assert [each["error"] for each in results[case]] == [None] * len(results[case])
    assert steps_of(results[case]) == [[*range(STEPS)]] * len(results[case])


@pytest.mark.parametrize("world", [1, 2])
def test_the_pages_trainer_trains_every_step_and_goes_on(results: Results, world: int) -> None:
    name = {1: "one", 2: "two"}[world]
    for half, steps in (("first", range(2 * SAVED)), ("second", range(2 * SAVED, STEPS))):
        found = results[f"{name}-{half}_half"]
        assert [each["error"] for each in found] == [None] * world
        assert steps_of(found) == [[*steps]] * world
