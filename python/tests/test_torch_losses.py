"""`batchweave.torch.LossReporter` with PyTorch: the sums are those of a loop over all labels.

`make test-frameworks` runs this; see conftest.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from balanced_slices import arranged, documents, ranks
from fake_daemon import ROWS, SEQ_LEN, FakeDaemon, Values
from test_label_groups import expected, rows_batch
from test_loss_reporter import of
from test_reports import connect, sessions, taking

import batchweave.torch
from batchweave.torch import LossReporter, packed, tensor

__all__ = ["taking"]

torch: Any = importlib.import_module("torch")
cross_entropy: Any = torch.nn.functional.cross_entropy


# Copies from a GPU are checked where there is one.
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@contextlib.contextmanager
def without_waiting(device: str) -> Iterator[None]:
    """An operation that waits for the GPU is an error."""
    if device == "cpu":
        yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def reported(daemon: FakeDaemon, path: Path, batch: Any, *given: Any, **more: Any) -> Values:
    """Returns the losses that arrive of one step."""
    with connect(path) as reader:
        own = next(reader)
        report = LossReporter(reader, **more)
        report(own if batch is None else of(reader, 0, batch), *given)
    peer = sessions(daemon)[-1]
    assert peer.bye.wait(20)
    (found,) = peer.values
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("detail", ["row", "document"])
@pytest.mark.parametrize("device", DEVICES)
def test_sums_are_as_of_a_loop_over_all_labels(
    taking: FakeDaemon, path: Path, dtype: Any, detail: str, device: str
) -> None:
    batch = rows_batch(6, fields=("document_ids", "segment_ids", "source_ids"))
    losses = torch.rand((6, 12), generator=torch.Generator().manual_seed(1)).to(dtype)
    losses.requires_grad_()
    found = reported(taking, path, batch, losses.to(device), detail=detail)
    total, sources, details = expected(batch, losses.detach().double().reshape(-1), detail)
    assert found.sum == pytest.approx(float(total))
    assert {n: pair[1] for n, pair in found.sources.items()} == {
        n: pair[1] for n, pair in sources.items()
    }
    for number, pair in sources.items():
        assert found.sources[number][0] == pytest.approx(float(pair[0]), rel=1e-6)
    for number, (mean, weight) in enumerate(found.details):
        one, of_all = details.get(number, [0.0, 0.0])
        assert weight == of_all
        assert mean * weight == pytest.approx(float(one), rel=1e-6)


def test_a_loop_of_cross_entropy_reports_the_mean_loss(taking: FakeDaemon, path: Path) -> None:
    logits = torch.randn((ROWS, SEQ_LEN, 11))
    labels = torch.randint(0, 11, (ROWS, SEQ_LEN))
    losses = cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    mean = cross_entropy(logits.flatten(0, 1), labels.flatten())
    for shape in ((ROWS, SEQ_LEN), (-1,)):
        found = reported(taking, path, None, losses.reshape(shape))
        assert found.sum / found.weight == pytest.approx(float(mean), rel=1e-6)
        assert found.weight == ROWS * SEQ_LEN


def test_ignored_labels_weigh_nothing(taking: FakeDaemon, path: Path) -> None:
    batch = rows_batch(2, fields=("segment_ids",))
    arrays = {name: tensor(np.array(batch[name])) for name in batch}
    given = packed({**arrays, "tokens": arrays["tokens"].long()})
    labels = given["labels"][:, 1:]
    assert (labels == -100).any()
    logits = torch.randn((*labels.shape, 100))
    losses = cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    mean = cross_entropy(logits.transpose(1, 2), labels)
    found = reported(taking, path, batch, losses)
    assert found.weight == int((labels != -100).sum())
    assert found.sum / found.weight == pytest.approx(float(mean), rel=1e-6)


def test_bins_and_weights_and_losses_that_are_not_finite(taking: FakeDaemon, path: Path) -> None:
    batch = ranks(arranged(documents(200, seed=3), seed=3), 4)[2]
    losses = [torch.ones(len(micro.inputs)) for micro in batch.micro_batches()]
    assert min(map(len, losses)) > 0
    losses[0][0] = float("nan")
    weights = [torch.full_like(one, 0.5) for one in losses]
    found = reported(taking, path, batch, losses, weights, detail="document")
    count = sum(len(one) for one in losses)
    assert (found.sum, found.weight, found.nonfinite) == ((count - 1) / 2, (count - 1) / 2, 1)
    assert len(found.details) == sum(len(piece["documents"]) - 1 for piece in batch.slices)


@pytest.mark.parametrize("device", DEVICES)
def test_the_copy_is_one_for_several_steps_and_no_step_waits(
    taking: FakeDaemon, path: Path, device: str
) -> None:
    with connect(path) as reader:
        report = LossReporter(reader, every=4)
        copied: list[int] = []
        copies = report._copies
        report._copies = lambda sums: copied.append(len(sums)) or copies(sums)  # type: ignore[func-returns-value, method-assign]
        for batch in reader:
            losses = torch.full((ROWS, SEQ_LEN), float(batch.step), device=device)
            with without_waiting(device):
                report(batch, losses)
            if batch.step == 9:
                break
        assert copied == [4, 4]
    peer = sessions(taking)[-1]
    assert peer.bye.wait(20)
    assert [one.sum / one.weight for one in peer.values] == list(range(10))


def test_a_loss_with_a_gradient_is_a_number(taking: FakeDaemon, path: Path) -> None:
    with connect(path) as reader:
        loss = torch.ones((), requires_grad=True) * 2
        reader.report(next(reader), loss=loss, tokens=3)
    peer = sessions(taking)[-1]
    assert peer.bye.wait(20)
    assert [one.sum for one in peer.values] == [6]


def test_it_is_a_part_of_the_module() -> None:
    assert "LossReporter" in dir(batchweave.torch)
