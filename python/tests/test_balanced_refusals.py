"""Real producers of balanced streams with bad documents, windows and costs, or too little."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from balanced_world import (
    BINS,
    SLICES,
    TOKENS,
    Piece,
    batches,
    configure,
    digests,
    of_text,
    pieces,
    produce,
    split,
    texts,
    write,
)
from real_daemons import MARKS

pytestmark = MARKS

LONG, SHORT = "x" * (2 * TOKENS), "a short one"
DATA, USAGE = 65, 64
"""Exit codes of a bad document and of a bad configuration."""
PACKED = SLICES * BINS * TOKENS
"""Tokens of a batch."""


def refused(folder: Path, code: int, **changed: Any) -> str:
    """Returns the last line of a producer that must stop with this code; it has made no batch."""
    configure(folder, **changed)
    return produce(folder, code).splitlines()[-1]


def stored(folder: Path) -> Counter[Piece]:
    """Returns the documents in all bins."""
    micros = [micro for batch in batches(folder) for micro in batch.micro_batches()]
    return Counter(piece for micro in micros for piece in pieces(micro))


def test_long_documents_are_split_truncated_or_bad(tmp_path: Path) -> None:
    given = [SHORT, LONG, *texts(40), "y" * (TOKENS - 1)]
    write(tmp_path, list(given))
    tokens = [of_text(text) for text in given]
    wanted = {
        "split": [piece for document in tokens for piece in split(document)],
        "truncate": [document[:TOKENS] for document in tokens],
        "bad": [document for document in tokens if len(document) <= TOKENS],
    }
    assert len(wanted["bad"]) < len(tokens) - 1
    for number, (long, pieces_of) in enumerate(wanted.items()):
        configure(
            tmp_path,
            balanced__long=long,
            source__on_bad_document="skip",
            store__url=f"file://{{root}}/{number}/stream",
        )
        output = produce(tmp_path)
        assert stored(tmp_path / str(number)) == Counter(pieces_of), long
        assert ("document cut to the tokens of a bin" in output) == (long == "truncate")
        assert ("bad document left out" in output) == (long == "bad")


def test_a_long_document_that_is_bad_is_named(tmp_path: Path) -> None:
    write(tmp_path, [SHORT, LONG])
    line = refused(tmp_path, DATA, balanced__long="bad")
    assert f"documents.jsonl:2: the document has {2 * TOKENS + 1} tokens" in line
    assert f"a bin holds {TOKENS}" in line
    assert 'packing.balanced.long is "bad"' in line
    assert "raise packing.balanced.tokens" in line
    # One with arrays is never divided, whatever the configuration says.
    write(tmp_path, [{"text": SHORT, "score": [1.0]}, {"text": LONG, "score": [2.0]}])
    arrays: Any = {"packing.arrays": [{"name": "score", "dtype": "F32"}]}
    url = "file://{root}/arrays"
    line = refused(tmp_path, DATA, balanced__long="truncate", store__url=url, **arrays)
    assert "documents.jsonl:2: the document has" in line
    assert "a document with arrays is never divided" in line


def test_a_pair_that_no_bin_holds_is_named(tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text(
        "{% for message in messages %}{{ message.role }}{{ message.content }}{% endfor %}"
    )
    half = "z" * (TOKENS // 2)
    pairs = [(SHORT, "other"), (half, half + "other"), (LONG, SHORT)]
    named = [{"prompt": "p", "chosen": good, "rejected": bad} for good, bad in pairs]
    chat: Any = {"source.content": "pairs", "chat.template": "{root}/chat.jinja"}
    write(tmp_path, named[:2])
    line = refused(tmp_path, DATA, **chat)
    assert "documents.jsonl:2: " in line
    assert f"a bin holds {TOKENS} (both answers of a pair go into one bin)" in line
    write(tmp_path, [named[0], named[2]])
    line = refused(tmp_path, DATA, store__url="file://{root}/other", **chat)
    assert 'documents.jsonl:2: the conversation with "chosen" has' in line
    assert "raise packing.balanced.tokens" in line
    write(tmp_path, named)
    configure(
        tmp_path,
        store__url="file://{root}/skipped/stream",
        source__on_bad_document="skip",
        **chat,
    )
    assert produce(tmp_path).count("bad document left out") == 2
    assert sum(stored(tmp_path / "skipped").values()) == 2


MOST = (1 << 28) // PACKED


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"balanced__micro_batches": 0}, "packing.balanced.micro_batches: must be at least 1"),
        ({"balanced__window": 0}, "packing.balanced.window: must be at least 1"),
        ({"balanced__tokens": 1}, "packing.balanced.tokens: must be at least 2"),
        (
            {"balanced__window": MOST + 1},
            f"packing.balanced.window: {MOST + 1} batches of {PACKED} tokens are more than two "
            f"windows in memory may have; at most {MOST} fit",
        ),
        (
            {"balanced__cost": {"linear": -1.0}},
            "packing.balanced.cost: linear is -1: expected 0 or more",
        ),
        ({"balanced__cost": {"quadratic": -0.5}}, "cost: quadratic is -0.5: expected 0 or more"),
        ({"balanced__cost": {"linear": 0.0}}, "every document costs 0"),
        (
            {"balanced__cost": {"arrays": {"image": 0.3}}},
            "arrays.image: packing.arrays has no array of this name",
        ),
        ({"balanced__crossover": 100}, 'is for packing.balanced.cost = "attention" only; remove'),
        (
            {"stream__rows_per_slice": 2},
            "stream.rows_per_slice: is packing.balanced.micro_batches with packing.mode = "
            '"balanced"; write it there',
        ),
        ({"stream__seq_len": 64}, "stream.seq_len: is packing.balanced.tokens with packing.mode"),
    ],
)
def test_a_bad_configuration_names_its_key(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    write(tmp_path, [SHORT])
    line = refused(tmp_path, USAGE, **changed)
    assert said in line
    assert "producer.toml:" in line, "with the place"
    assert not (tmp_path / "stream").exists()


def test_a_negative_cost_of_an_array_that_is_there(tmp_path: Path) -> None:
    write(tmp_path, [{"text": SHORT, "score": [1.0]}])
    arrays: Any = {"packing.arrays": [{"name": "score", "dtype": "F32"}]}
    line = refused(tmp_path, USAGE, balanced__cost={"arrays": {"score": -2.0}}, **arrays)
    assert "arrays.score is -2: expected 0 or more" in line


def test_input_below_one_batch_is_dropped_or_padded(tmp_path: Path) -> None:
    given = [SHORT] * 3
    write(tmp_path, list(given))
    configure(tmp_path, packing__last_batch="drop")
    tokens = 3 * len(of_text(SHORT))
    last = produce(tmp_path).splitlines()[-1]
    assert (
        f"finished with 0 batches: its 3 documents are {tokens} tokens, and a batch takes" in last
    )
    assert 'packing.last_batch = "pad"' in last
    configure(tmp_path, store__url="file://{root}/padded/stream")
    produce(tmp_path)
    (batch,) = batches(tmp_path / "padded")
    micros = list(batch.micro_batches())
    assert len(micros) == SLICES * BINS
    assert sum(not len(micro.tokens) for micro in micros) == SLICES * BINS - 3
    assert {micro.cost for micro in micros if not len(micro.tokens)} == {0.0}
    assert batch.loss_tokens == tokens - 3
    assert Counter(p for micro in micros for p in pieces(micro)) == {of_text(SHORT): 3}
    assert len(digests(tmp_path / "padded")) == 1


def test_no_document_at_all_makes_no_batch(tmp_path: Path) -> None:
    write(tmp_path, [])
    configure(tmp_path)
    assert "finished with 0 batches: the input has no document" in produce(tmp_path)


def test_a_restart_with_another_window_is_refused(tmp_path: Path) -> None:
    long = "z" * TOKENS
    write(tmp_path, [*texts(400, most=TOKENS - 10), long])
    # It stops at the last document, with batches committed.
    configure(tmp_path, balanced__long="bad")
    assert "documents.jsonl:401: " in produce(tmp_path, DATA)
    made = digests(tmp_path)
    assert made
    for changed in ({"window": 5}, {"long": "split"}, {"cost": "tokens"}):
        (key,) = changed
        own = {"balanced__long": "bad", **{f"balanced__{key}": changed[key]}}
        configure(tmp_path, **own)
        said = produce(tmp_path, USAGE)
        assert f"packing.balanced.{key}: was " in said
    assert digests(tmp_path) == made
