"""Real models of transformers learn the next token; `make test-frameworks` runs this."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_daemon import LAYOUT, FakeDaemon, Peer

import batchweave
from batchweave.torch import packed, tensors, to_device

torch: Any = importlib.import_module("torch")
transformers: Any = importlib.import_module("transformers")

# What transformers says about its own configurations.
pytestmark = pytest.mark.filterwarnings("ignore")

ROWS, WIDTH, VOCABULARY = 2, 16, 32
FIELDS: dict[str, tuple[str, str]] = {
    "tokens": ("U16", "<u2"),
    "loss_mask": ("U8", "u1"),
    "positions": ("U8", "u1"),
    "segment_ids": ("I32", "<i4"),
}
Arrays = dict[str, Any]


def rows_of(step: int, number: int) -> Arrays:
    """Two documents and padding in each row; in a document, each token is one more."""
    chance = np.random.default_rng([step, number])
    found = {name: np.zeros((ROWS, WIDTH), kind) for name, (_, kind) in FIELDS.items()}
    for row in range(ROWS):
        cut, end = int(chance.integers(3, 8)), int(chance.integers(11, WIDTH + 1))
        for segment, (at, to) in enumerate(((0, cut), (cut, end)), 1):
            first = int(chance.integers(VOCABULARY))
            found["tokens"][row, at:to] = (first + np.arange(to - at)) % VOCABULARY
            found["loss_mask"][row, at + 1 : to] = chance.integers(0, 4, to - at - 1) > 0
            found["positions"][row, at:to] = np.arange(to - at)
            found["segment_ids"][row, at:to] = segment
    return found


def streams(names: tuple[str, ...]) -> Callable[[Peer], bool]:
    """A daemon's stream of these rows, with only some of the fields."""
    arrays, offset = [], 0
    for name, (dtype, kind) in FIELDS.items():
        shape = [ROWS, WIDTH]
        if name in names:
            arrays.append({"name": name, "dtype": dtype, "shape": shape, "offset": offset})
        offset += ROWS * WIDTH * np.dtype(kind).itemsize

    def hello(peer: Peer) -> bool:
        fill = peer._fill

        def filled(step: int, number: int) -> bytes:
            ref = fill(step, number)
            slot, _ = peer.held[max(peer.held)]
            data = b"".join(array.tobytes() for array in rows_of(step, number).values())
            peer.daemon.segment.map[slot * 256 : slot * 256 + len(data)] = data
            return ref

        vars(peer)["_fill"] = filled
        peer.send_welcome(seq_len=WIDTH - 1, rows_per_slice=ROWS)
        peer.send_segment()
        peer.send_layout({**LAYOUT, "arrays": arrays})
        peer.running = True
        peer.push()
        return True

    return hello


def gpt2() -> Any:
    torch.manual_seed(5)
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=WIDTH, n_embd=32, n_layer=2, n_head=2
    )
    return transformers.GPT2LMHeadModel(config).eval()


def llama() -> Any:
    torch.manual_seed(5)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
    )
    return transformers.LlamaForCausalLM(config).eval()


def loss_of(model: Any, rows: list[Arrays], names: tuple[str, ...]) -> float:
    """The definition: the mean over tokens to be learned of -log p(token | those before it)."""
    found = []
    for each in rows:
        for row in range(ROWS):
            tokens = torch.from_numpy(each["tokens"][row].astype(np.int64))[None]
            more = {}
            if "positions" in names:
                places = torch.from_numpy(each["positions"][row].astype(np.int64))
                more["position_ids"] = places[None, :-1]
            chances = model(input_ids=tokens[:, :-1], **more).logits.log_softmax(-1)[0]
            for place in range(1, WIDTH):
                segment = each["segment_ids"][row]
                learned = True
                if "loss_mask" in names:
                    learned = bool(each["loss_mask"][row, place])
                elif "segment_ids" in names:
                    learned = segment[place] != 0 and segment[place] == segment[place - 1]
                if learned:
                    found.append(-chances[place - 1, tokens[0, place]])
    return float(torch.stack(found).mean())


@pytest.mark.parametrize("slices", [1, 2])
@pytest.mark.parametrize("make", [gpt2, llama])
@pytest.mark.parametrize(
    "names",
    [
        ("tokens",),
        ("tokens", "loss_mask"),
        ("tokens", "segment_ids", "positions"),
        tuple(FIELDS),
    ],
)
def test_a_models_loss_is_that_of_the_next_token(
    path: Path, names: tuple[str, ...], make: Callable[[], Any], slices: int
) -> None:
    model = make()
    with FakeDaemon(path, end=2, slices=slices) as daemon, torch.no_grad():
        daemon.on_hello = streams(names)
        wanted = [
            loss_of(model, [rows_of(step, number) for number in range(slices)], names)
            for step in range(2)
        ]
        with batchweave.torch.Dataset(path) as dataset:
            for step, item in enumerate(dataset):
                assert item["input_ids"].shape == item["labels"].shape == (slices * ROWS, WIDTH)
                assert float(model(**item).loss) == pytest.approx(wanted[step], abs=2e-6)
        with batchweave.connect(path) as reader:
            for step, batch in enumerate(reader):
                given = to_device(batch, device="cpu")
                assert float(model(**given).loss) == pytest.approx(wanted[step], abs=2e-6)
                if slices == 1:
                    given = packed(tensors(batch.slices[0], torch.int64))
                    assert float(model(**given).loss) == pytest.approx(wanted[step], abs=2e-6)
                del batch
        # The other convention has the same loss in a loop of one's own.
        with batchweave.torch.Dataset(path, labels="shifted") as dataset:
            for step, item in enumerate(dataset):
                labels = item.pop("labels")
                if "loss_mask" in item:
                    labels = labels.masked_fill(item.pop("loss_mask") == 0, -100)
                logits = model(**item).logits
                own = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
                assert float(own) == pytest.approx(wanted[step], abs=2e-6)
                wrong = float(model(**item, labels=labels).loss)
                assert abs(wrong - wanted[step]) > 1e-4, "the test would not see a double shift"


def test_the_pages_loop_has_the_right_loss(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "pytorch.md").read_text()
    block = page.split("```python\n")[1].split("```")[0]
    assert "model(**step).loss" in block
    model, losses = gpt2(), []

    def record(**given: Any) -> Any:
        found = model(**given)
        losses.append(float(found.loss))
        return found

    monkeypatch.setenv("BATCHWEAVE_SOCKET", str(path))
    with FakeDaemon(path, end=2, slices=2) as daemon, torch.no_grad():
        daemon.on_hello = streams(tuple(FIELDS))
        exec(block, {"model": record})
        wanted = [
            loss_of(model, [rows_of(step, number) for number in range(2)], tuple(FIELDS))
            for step in range(2)
        ]
    assert losses == pytest.approx(wanted, abs=2e-6)


def test_a_trained_model_says_the_next_token(path: Path) -> None:
    model = gpt2().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with FakeDaemon(path, slices=4) as daemon:
        daemon.on_hello = streams(("tokens", "segment_ids"))
        with batchweave.torch.Dataset(path, limit=80) as dataset:
            for step in torch.utils.data.DataLoader(dataset, batch_size=None):
                loss = model(**step).loss
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
    assert float(loss.detach()) < 0.5
    with torch.no_grad():
        said = model.eval()(input_ids=torch.arange(8)[None]).logits[0].argmax(-1)
    assert said.tolist()[1:] == [2, 3, 4, 5, 6, 7, 8]
