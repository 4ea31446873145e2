"""Balanced streams with real PyTorch and transformers; `make test-frameworks` runs this."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from balanced_slices import FIELDS, VOCABULARY, arranged, documents, learned, serves, slice_of
from fake_daemon import FakeDaemon
from test_docs import ROOT, blocks
from test_frames import address
from test_whole import batch_of

import batchweave
from batchweave import errors
from batchweave.mesh import Place
from batchweave.torch import nested, packed, ragged, tensors, to_device
from batchweave.views import context_parallel

torch: Any = importlib.import_module("torch")
transformers: Any = importlib.import_module("transformers")

# What transformers says about its own configurations.
pytestmark = pytest.mark.filterwarnings("ignore")

SLICED = arranged(documents(60))
PAGE = (ROOT / "docs" / "even-steps.md").read_text()


def steps_of(slices: list[Any], fields: tuple[str, ...] = FIELDS) -> list[list[Any]]:
    """One step of eight slices."""
    total = learned(slices)
    return [[slice_of(bins, total, fields) for bins in slices]]


def opened(daemon: FakeDaemon, slices: list[Any], fields: tuple[str, ...] = FIELDS) -> None:
    daemon.on_hello = serves(steps_of(slices, fields))


def llama() -> Any:
    torch.manual_seed(5)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config).double()


def test_items_equal_the_flattening_collator(path: Path) -> None:
    slices = arranged(documents(60, masked=False))
    collate = transformers.DataCollatorWithFlattening(return_flash_attn_kwargs=True)
    with FakeDaemon(path, slices=8, slots=128) as daemon:
        opened(daemon, slices, ())
        with batchweave.torch.Dataset(path, micro_batches=True) as dataset:
            (item,) = dataset
    bins = [slices[piece][index] for index in range(3) for piece in range(8)]
    assert len(item) == len(bins)
    for found, one in zip(item, bins, strict=True):
        if not one:
            continue
        wanted = collate([{"input_ids": d.tokens.tolist()} for d in one])
        assert set(found) == {*wanted, "num_items_in_batch"}
        for name, want in wanted.items():
            if torch.is_tensor(want):
                assert found[name].dtype == want.dtype, name
                assert torch.equal(found[name], want), name
            else:
                assert found[name] == want, name
        assert found["num_items_in_batch"] == learned(slices)


def test_a_model_learns_the_same_from_any_arrangement(path: Path) -> None:
    given = documents(40, seed=3)
    model, found = llama(), []
    total = sum(int(d.mask.sum()) for d in given)
    for seed in (1, 2):
        with FakeDaemon(path, slices=8, slots=128) as daemon:
            opened(daemon, arranged(given, seed=seed), ("loss_mask",))
            model.zero_grad()
            with batchweave.torch.Dataset(path, micro_batches=True) as dataset:
                for item in dataset:
                    for micro in item:
                        model(**micro).loss.backward()
        found.append([parameter.grad.clone() for parameter in model.parameters()])
    model.zero_grad()
    for document in given:
        ids = torch.from_numpy(document.tokens)[None]
        logits = model(input_ids=ids).logits[0, :-1]
        losses = torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none")
        ((losses * torch.from_numpy(document.mask)[1:]).sum() / total).backward()
    alone = [parameter.grad for parameter in model.parameters()]
    for one, other, each in zip(*found, alone, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-7)
        torch.testing.assert_close(one, each, rtol=1e-4, atol=1e-7)
    assert max(float(grad.abs().max()) for grad in alone) > 1e-3


def test_shifted_items_equal_the_micro_batches(path: Path) -> None:
    with FakeDaemon(path, slices=8, slots=128) as daemon:
        opened(daemon, SLICED)
        for dtype in ("int64", None):
            arguments: Any = {"labels": "shifted", "micro_batches": True, "dtype": dtype}
            with batchweave.torch.Dataset(path, **arguments) as dataset:
                item = next(iter(dataset))
                assert dataset.last is not None
                micros = list(dataset.last.micro_batches())
                for found, micro in zip(item, micros, strict=True):
                    wanted = packed(micro if len(micro.inputs) else micro.padded(1), "shifted")
                    assert set(found) == set(wanted)
                    for name, want in wanted.items():
                        assert np.array_equal(np.asarray(found[name]), want), name
                    assert found["cu_seqlens"].dtype == torch.int32
                    kind = torch.int64 if dtype else torch.uint16
                    assert found["input_ids"].dtype == kind
                    if dtype is None and micro.inputs.size:
                        assert found["input_ids"].data_ptr() == address(micro.inputs)
                # The empty bin: models need an input.
                assert not len(micros[-1].tokens)
                assert item[-1]["input_ids"].shape == (1, 1)
                assert not item[-1]["loss_mask"].any()
                del item, micros, found, micro, wanted, want


def test_a_dataset_of_whole_steps_is_refused_at_the_first_item(path: Path) -> None:
    with FakeDaemon(path, slices=8, slots=128) as daemon:
        opened(daemon, SLICED)
        with (
            batchweave.torch.Dataset(path) as dataset,
            pytest.raises(errors.BadShapeError, match=r"step 0: .*micro_batches=True"),
        ):
            next(iter(dataset))


def test_a_ranks_part_of_each_micro_batch(path: Path) -> None:
    with FakeDaemon(path, slices=8, slots=128) as daemon:
        daemon.on_hello = lambda peer: serves(steps_of(SLICED, ("loss_mask",)))(peer)
        place = Place.of({"cp": 3}, rank=1, world=3)
        with batchweave.torch.Dataset(path, mesh=place, cp="contiguous", micro_batches=True) as d:
            item = next(iter(d))
            assert d.last is not None
            for found, micro in zip(item, d.last.micro_batches(), strict=True):
                if len(micro.inputs):
                    want = context_parallel(micro, 1, 3, "contiguous")
                    for name in ("input_ids", "labels", "loss_mask", "position_ids"):
                        assert np.array_equal(found[name].numpy(), want[name]), name
                    assert found["cu_seqlens"].tolist() == want["cu_seqlens"].tolist()
            del item, found, micro


def test_tensors_of_a_micro_batch() -> None:
    total = learned(SLICED)
    for micro in batch_of(slice_of(SLICED[0], total)).micro_batches():
        given = to_device(micro, device="cpu")
        for name, want in packed(micro).items():
            assert np.array_equal(np.asarray(given[name]), want), name
        if len(micro.tokens):
            assert given["input_ids"].data_ptr() != address(micro.tokens)
            assert tensors(micro)["tokens"].data_ptr() == address(micro.tokens)
        images = [each.tolist() for each in micro.ragged("image")]
        assert [each.tolist() for each in ragged(micro, "image")] == images
        assert [each.tolist() for each in ragged(given, "image")] == images
        if images:
            assert [each.tolist() for each in nested(micro, "image").unbind()] == images


class Tiny(torch.nn.Module):  # type: ignore[misc]
    """A model of one matrix with what the page's loop calls."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table = torch.nn.Embedding(VOCABULARY, VOCABULARY)
        self.syncs: list[bool] = []

    def set_requires_gradient_sync(self, on: bool) -> None:
        self.syncs.append(on)

    def forward(self, given: dict[str, Any]) -> Any:
        return self.table(given["input_ids"][0])


def test_the_pages_loop_trains(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (loop, *_) = (text for _, text in blocks(PAGE))
    monkeypatch.setenv("BATCHWEAVE_SOCKET", str(path))
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    model, grads = Tiny(), []
    optimizer = SimpleNamespace(zero_grad=model.zero_grad)
    optimizer.step = lambda: grads.append(model.table.weight.grad.clone())
    with FakeDaemon(path, slices=8, slots=128) as daemon:
        opened(daemon, SLICED)
        exec(loop, {"model": model, "optimizer": optimizer})
    assert model.syncs == [False] * 23 + [True]
    every = [(int(t), int(u)) for d in flat() for t, u, m in pairs(d) if m]
    logits = model.table(torch.tensor([t for t, _ in every]))
    # The page scales by the number of ranks, by which an all-reduce divides.
    loss = 2 * torch.nn.functional.cross_entropy(logits, torch.tensor([u for _, u in every]))
    model.zero_grad()
    loss.backward()
    torch.testing.assert_close(grads[0], model.table.weight.grad, rtol=1e-5, atol=1e-7)


def flat() -> list[Any]:
    return [d for bins in SLICED for one in bins for d in one]


def pairs(document: Any) -> Any:
    return zip(document.tokens[:-1], document.tokens[1:], document.mask[1:], strict=True)


def test_the_pages_attention_does_not_cross_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    (first, second) = (text for _, text in blocks(PAGE) if "def attention" in text)
    stand_in: Any = ModuleType("flash_attn")
    stand_in.flash_attn_varlen_func = varlen
    monkeypatch.setitem(sys.modules, "flash_attn", stand_in)
    flash: dict[str, Any] = {}
    flex: dict[str, Any] = {}
    exec(first, flash)
    # The same function without a compiler, which takes minutes here.
    with monkeypatch.context() as patch:
        patch.setattr(torch, "compile", lambda function: function)
        exec(second, flex)
    micro = max(
        batch_of(slice_of(SLICED[1], 9, ())).micro_batches(), key=lambda one: len(one.inputs)
    )
    assert len(micro.cu_seqlens) > 2
    given = to_device(micro.padded(64), device="cpu", labels="shifted")
    q, k, v = torch.randn(3, 64, 2, 16)
    wanted = flash["attention"](q, k, v, given)
    across = [each.transpose(0, 1)[None] for each in (q, k, v)]
    found = flex["attention"](*across, given)[0].transpose(0, 1)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def varlen(
    q: Any, k: Any, v: Any, borders: Any, same: Any, longest: int, most: int, causal: bool
) -> Any:
    """What flash-attention's function of this signature computes: each sequence alone."""
    assert borders is same
    assert longest == most == int(borders.diff().max())
    assert (int(borders[-1]), causal, borders.dtype) == (len(q), True, torch.int32)
    attend = torch.nn.functional.scaled_dot_product_attention
    parts = []
    for at, to in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        own = [each[at:to].transpose(0, 1)[None] for each in (q, k, v)]
        parts.append(attend(*own, is_causal=True)[0].transpose(0, 1))
    return torch.cat(parts)
