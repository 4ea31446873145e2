"""Real producers of balanced streams of conversations, pairs and images, and their metrics."""

from __future__ import annotations

import itertools
import random
import re
import subprocess
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from balanced_world import LINEAR, TOKENS, batches, configure, of_text, pieces, produce, write
from conftest import eventually
from real_daemons import BINARIES, MARKS
from test_arrays_beside_tokens import given, write_lines

pytestmark = MARKS

TEMPLATE = """\
{%- for message in messages -%}
<{{ message.role }}>
{%- if message.role == "assistant" -%}
{% generation %}{{ message.content }}</s>{% endgeneration %}
{%- else -%}
{{ message.content }}</s>
{%- endif -%}
{%- endfor -%}
"""
Masked = tuple[tuple[int, ...], tuple[int, ...]]
"""The tokens of a document, and 1 for each that is learned."""


def rendered(*messages: tuple[str, str]) -> Masked:
    """Returns what the template makes of roles and texts."""
    tokens, mask = b"", b""
    for role, text in messages:
        name, content = f"<{role}>".encode(), f"{text}</s>".encode()
        tokens += name + content
        mask += bytes(len(name)) + bytes([role == "assistant"]) * len(content)
    return tuple(tokens), tuple(mask)


def found(folder: Path) -> list[list[Masked]]:
    """Returns the documents of each bin with their masks."""
    every = []
    for batch in batches(folder):
        for micro in batch.micro_batches():
            mask, borders = micro.mask_of_tokens().tolist(), micro.documents.tolist()
            masks = [tuple(mask[a:b]) for a, b in itertools.pairwise(borders)]
            every.append(list(zip(pieces(micro), masks, strict=True)))
            assert len(micro.tokens) <= TOKENS
    return every


def words(chance: random.Random, most: int) -> str:
    return "".join(chance.choices("abc d", k=chance.randrange(1, most)))


def test_conversations_learn_the_answers(tmp_path: Path) -> None:
    chance, wanted, documents = random.Random(3), Counter[Masked](), []
    for number in range(200):
        turns = [("user", f"{number}?")]
        for _ in range(chance.randrange(1, 3)):
            turns += [("assistant", words(chance, 50)), ("user", words(chance, 20))]
        documents.append({"messages": [{"role": r, "content": c} for r, c in turns[:-1]]})
        wanted[rendered(*turns[:-1])] += 1
    (tmp_path / "chat.jinja").write_text(TEMPLATE)
    write(tmp_path, documents)
    template: Any = {"source.content": "conversations", "chat.template": "{root}/chat.jinja"}
    configure(tmp_path, packing__fields=["loss_mask"], **template)
    produce(tmp_path)
    assert Counter(one for each in found(tmp_path) for one in each) == wanted
    assert [batch.loss_tokens for batch in batches(tmp_path)] == [
        sum(int(micro.mask_of_tokens().sum()) for micro in batch.micro_batches())
        for batch in batches(tmp_path)
    ]


def test_both_answers_of_a_pair_are_neighbours_in_a_bin(tmp_path: Path) -> None:
    chance, wanted, documents = random.Random(4), Counter[tuple[Masked, Masked]](), []
    for number in range(200):
        prompt, good, bad = f"{number}?", "+" + words(chance, 90), "-" + words(chance, 90)
        documents.append({"prompt": prompt, "chosen": good, "rejected": bad})
        answers = [rendered(("user", prompt), ("assistant", each)) for each in (good, bad)]
        wanted[answers[0], answers[1]] += 1
    (tmp_path / "chat.jinja").write_text(TEMPLATE)
    write(tmp_path, documents)
    template: Any = {"source.content": "pairs", "chat.template": "{root}/chat.jinja"}
    configure(tmp_path, packing__fields=["loss_mask"], **template)
    produce(tmp_path)
    bins = found(tmp_path)
    assert all(len(each) % 2 == 0 for each in bins)
    assert Counter(p for each in bins for p in zip(each[0::2], each[1::2], strict=True)) == wanted


def test_images_come_with_their_captions_and_have_a_cost(tmp_path: Path) -> None:
    pairs = given(150)
    write_lines(tmp_path, pairs)
    (tmp_path / "a.jsonl").rename(tmp_path / "documents.jsonl")
    image: Any = {"from": "image", "base64": True}
    configure(
        tmp_path,
        packing__arrays=[
            {"name": "pixels", "dtype": "U8", "shape": [3], "image": "pixels", **image},
            {"name": "size", "dtype": "I32", "shape": [2], "image": "size", **image},
        ],
        balanced__cost={"linear": LINEAR, "quadratic": 0.0, "arrays": {"pixels": 0.25}},
    )
    produce(tmp_path)
    left = dict(pairs)
    for batch in batches(tmp_path):
        for micro in batch.micro_batches():
            cost = 0.0
            images = micro.ragged("pixels", shape="size")
            for piece, pixels in zip(pieces(micro), images, strict=True):
                wanted = left.pop(bytes(piece[:-1]).decode())
                assert np.array_equal(pixels, wanted)
                cost += LINEAR * len(piece) + 0.25 * wanted.shape[0] * wanted.shape[1]
            assert micro.cost == pytest.approx(cost, rel=1e-6, abs=1e-3)
    assert not left


def metrics(log: Path) -> dict[str, float]:
    """Returns the producer's metrics without labels, by name; none before it serves them."""
    address = re.search(r"address=(\S+)", log.read_text())
    if address is None:
        return {}
    with urllib.request.urlopen(f"http://{address[1]}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    plain = [line.split() for line in lines if not line.startswith("#") and "{" not in line]
    return {name.removeprefix("batchweave_producer_"): float(value) for name, value in plain}


@pytest.mark.parametrize("long", ["bad", "truncate"])
def test_metrics_count_long_documents_and_show_the_balance(tmp_path: Path, long: str) -> None:
    chance = random.Random(5)
    texts = ["".join(chance.choices("abc", k=chance.randrange(1, 300))) for _ in range(300)]
    cut = [len(of_text(text)) - TOKENS for text in texts if len(of_text(text)) > TOKENS]
    assert len(cut) > 20
    write(tmp_path, list(texts))
    following: Any = {"source.follow": True, "source.settled_age": "0s"}
    configure(
        tmp_path,
        balanced__long=long,
        balanced__linger="100ms",
        source__on_bad_document="skip",
        admin__listen="127.0.0.1:0",
        **following,
    )
    (tmp_path / "stream").mkdir()
    program = str(BINARIES / "batchweave-producer")
    command = [program, "--config", str(tmp_path / "producer.toml")]
    with (tmp_path / "log").open("wb") as log:
        producer = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        now: dict[str, float] = {}

        def read() -> bool:
            now.update(metrics(tmp_path / "log"))
            return now.get("tgbs_total", 0) > 0 and now["documents_total"] == documents

        documents = len(texts) - (len(cut) if long == "bad" else 0)
        eventually(read)
    finally:
        producer.kill()
        producer.wait()
    assert now["bad_documents_total"] == (len(cut) if long == "bad" else 0)
    assert now["truncated_documents_total"] == (len(cut) if long == "truncate" else 0)
    assert now["truncated_tokens_total"] == (sum(cut) if long == "truncate" else 0)
    assert 1 <= now["batch_imbalance"] < 1.1
    assert 0.9 < now["fill"] <= 1
    assert now["late_documents_total"] >= 0
