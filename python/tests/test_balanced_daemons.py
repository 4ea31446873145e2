"""Real producers and consumers of balanced streams: each document once, at its cost."""

from __future__ import annotations

import json
import random
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from balanced_world import (
    BINS,
    SLICES,
    TOKENS,
    WINDOW,
    batches,
    configure,
    cost_of,
    digests,
    of_text,
    operate,
    pieces,
    produce,
    split,
    texts,
    write,
)
from conftest import eventually
from real_daemons import ATTEMPTS, MARKS, Daemons

import batchweave

pytestmark = MARKS

TEXTS = texts(600)
FIELDS = ["segment_ids", "positions", "loss_mask", "document_ids"]
WANTED = [piece for text in TEXTS for piece in split(of_text(text))]
"""The pieces of all documents."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished stream of the texts."""
    folder = tmp_path_factory.mktemp("balanced")
    write(folder, list(TEXTS))
    configure(folder, packing__fields=FIELDS)
    produce(folder)
    return folder


def test_each_token_of_each_document_comes_once(world: Path) -> None:
    found: Counter[tuple[int, ...]] = Counter()
    steps = 0
    for batch in batches(world):
        steps += 1
        micros = list(batch.micro_batches())
        assert len(micros) == SLICES * BINS
        for micro in micros:
            assert len(micro.tokens) <= TOKENS
            found.update(pieces(micro))
            lengths = [len(piece) for piece in pieces(micro)]
            wanted = [k for length in lengths for k in range(length)]
            assert micro.positions.tolist() == wanted[:-1]
            assert micro.loss_mask.tolist() == [int(k > 0) for k in wanted][1:]
            numbers = [n for n, length in enumerate(lengths, 1) for _ in range(length)]
            assert micro.segment_ids.tolist() == numbers[:-1]
    assert any(len(of_text(text)) > 3 * TOKENS for text in TEXTS), "long documents"
    assert steps > 2 * WINDOW
    assert found == Counter(WANTED)


def test_costs_and_learned_tokens_come_from_the_documents(world: Path) -> None:
    told, total, worst = [], 0, 0.0
    for batch in batches(world):
        learned = 0
        costs = [0.0] * SLICES
        for micro in batch.micro_batches():
            # Whole numbers of a 65,536th of a token, stored as float32.
            assert micro.cost == pytest.approx(cost_of(pieces(micro)), rel=1e-6, abs=1e-3)
            costs[micro.slice] += micro.cost
            learned += int(micro.mask_of_tokens().sum())
        assert batch.loss_tokens == learned
        total += learned
        told.append(json.loads(operate(world, "show", str(batch.step), "--json"))["tgb"]["cost"])
        mean = sum(costs) / SLICES
        assert told[-1]["max"] / 65536 == pytest.approx(max(costs), rel=1e-5)
        assert told[-1]["mean"] / 65536 == pytest.approx(mean, rel=1e-5)
        worst = max(worst, max(costs) / mean) if len(told) <= 2 * WINDOW else worst
    assert total == sum(len(of_text(text)) - 1 for text in TEXTS)
    assert worst < 1.05, "full windows are even"


def read_as(
    socket: Path, job: str, rank: int, size: int
) -> dict[tuple[int, int, int], tuple[bytes, bytes]]:
    """Reads a rank's part; returns tokens and borders by step, index and slice."""
    found = {}
    own = range(rank * SLICES // size, (rank + 1) * SLICES // size)
    same: Any = {"job": job, "attempt": ATTEMPTS[0], "timeout": 60}
    with batchweave.connect(socket, dp_rank=rank, dp_size=size, **same) as reader:
        for batch in reader:
            micros = list(batch.micro_batches())
            places = [(micro.index, micro.slice) for micro in micros]
            assert places == [(index, piece) for index in range(BINS) for piece in own]
            for micro in micros:
                content = micro.tokens.tobytes(), micro.documents.tobytes()
                found[batch.step, micro.index, micro.slice] = content
    return found


def test_four_and_two_ranks_get_the_same_micro_batches_as_is_proved(
    world: Path, daemons: Daemons, tmp_path: Path
) -> None:
    (tmp_path / "stream").symlink_to(world / "stream")
    steps = len(digests(world))
    found = []
    for size in (4, 2):
        job = f"of-{size}"
        consumer = daemons("consumer", f'name = "{job}"\nopen = true')
        with ThreadPoolExecutor(size) as pool:
            readers = [pool.submit(read_as, tmp_path / "s.sock", job, k, size) for k in range(size)]
            parts = [reader.result() for reader in readers]
        found.append({place: content for part in parts for place, content in part.items()})
        assert len(found[-1]) == sum(map(len, parts)) == steps * BINS * SLICES
        consumer.terminate()
        assert consumer.wait(60) == 0
        proof = json.loads(operate(tmp_path, "verify", "--job", job, "--json"))
        assert (proof["verdict"], proof["from"], proof["to"]) == ("proved", 0, steps)
        assert [part["dp_size"] for part in proof["lineage"]] == [size]
    assert found[0] == found[1]


def committed(folder: Path, steps: int) -> bool:
    """Returns whether the stream has exactly these steps; fails if it has more."""
    found = len(digests(folder)) if any((folder / "stream").glob("log/*")) else 0
    assert found <= steps
    return found == steps


def test_a_producer_that_is_killed_makes_the_same_batches(daemons: Daemons, tmp_path: Path) -> None:
    write(tmp_path, list(texts(12000, seed=7)))
    configure(tmp_path, balanced__tokens=128)
    produce(tmp_path)
    whole = digests(tmp_path)
    assert len(whole) > 400
    (tmp_path / "stream").rename(tmp_path / "whole")
    chance = random.Random(11)

    def objects() -> int:
        return sum(1 for _ in (tmp_path / "stream").glob("data/*/*/*.tgb"))

    def further(producer: subprocess.Popen[bytes], until: int) -> bool:
        return objects() >= until or producer.poll() is not None

    single: Any = {"commit.max_batches": 1}
    # With some batches of a window committed, and the others waiting.
    for bound in (1, 2, 2 * WINDOW + 3, 2 * WINDOW + 5, 7 * WINDOW - 1):
        configure(tmp_path, balanced__tokens=128, ahead__max_steps=bound, **single)
        producer = daemons("producer")
        eventually(partial(committed, tmp_path, bound))
        producer.kill()
        producer.wait()
    configure(tmp_path, balanced__tokens=128)
    kills, producer = 0, daemons("producer")
    while kills < 8 and producer.poll() is None:
        until = objects() + chance.randrange(1, 12)
        eventually(partial(further, producer, until))
        kills += producer.poll() is None
        producer.kill()
        producer.wait()
        producer = daemons("producer")
    assert kills >= 3
    assert producer.wait(300) == 0
    assert digests(tmp_path) == whole
