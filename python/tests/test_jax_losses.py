"""`batchweave.jax.LossReporter` with JAX: the sums are those of a loop over all labels.

`make test-frameworks` runs this; see conftest.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from balanced_slices import arranged, documents, ranks
from fake_daemon import ROWS, SEQ_LEN, FakeDaemon, Values
from test_label_groups import expected, rows_batch
from test_loss_reporter import of
from test_reports import connect, sessions, taking

from batchweave.jax import LossReporter, micro_batches

__all__ = ["taking"]

jax: Any = importlib.import_module("jax")
jnp: Any = importlib.import_module("jax.numpy")


def reported(daemon: FakeDaemon, path: Path, batch: Any, *given: Any, **more: Any) -> Values:
    """Returns the losses that arrive of one step."""
    with connect(path) as reader:
        next(reader)
        report = LossReporter(reader, **more)
        report(of(reader, 0, batch), *given)
    peer = sessions(daemon)[-1]
    assert peer.bye.wait(20)
    (found,) = peer.values
    return found


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("detail", ["row", "document"])
def test_sums_are_as_of_a_loop_over_all_labels(
    taking: FakeDaemon, path: Path, dtype: Any, detail: str
) -> None:
    batch = rows_batch(6, fields=("document_ids", "segment_ids", "source_ids"))
    losses = jax.random.uniform(jax.random.key(1), (6, 12), dtype)
    found = reported(taking, path, batch, losses, detail=detail)
    total, sources, details = expected(batch, np.asarray(losses, float).reshape(-1), detail)
    assert found.sum == pytest.approx(float(total), rel=1e-5)
    assert set(found.sources) == set(sources)
    for number, pair in sources.items():
        assert found.sources[number] == pytest.approx(tuple(pair), rel=1e-5)
    for number, (mean, weight) in enumerate(found.details):
        one, of_all = details.get(number, [0.0, 0.0])
        assert weight == of_all
        assert mean * weight == pytest.approx(one, rel=1e-5)


def test_bins_of_one_shape_and_losses_that_are_not_finite(taking: FakeDaemon, path: Path) -> None:
    batch = ranks(arranged(documents(200, seed=3), seed=3), 4)[2]
    given = micro_batches(batch, 64)
    losses = jnp.ones(given["labels"].shape)
    bad = int(np.flatnonzero(given["loss_mask"][0])[0])
    losses = losses.at[0, bad].set(jnp.nan)
    found = reported(taking, path, batch, losses, detail="row")
    count = int(given["loss_mask"].sum())
    assert (found.sum, found.weight, found.nonfinite) == (count - 1, count - 1, 1)
    assert sorted(weight for _, weight in found.details) == sorted(
        float(row.sum()) - (number == 0) for number, row in enumerate(given["loss_mask"])
    )


def test_steps_are_fetched_together(taking: FakeDaemon, path: Path) -> None:
    with connect(path) as reader:
        report = LossReporter(reader, every=4)
        for batch in reader:
            report(batch, jnp.full((ROWS, SEQ_LEN), float(batch.step)))
            if batch.step == 9:
                break
    peer = sessions(taking)[-1]
    assert peer.bye.wait(20)
    assert [one.sum / one.weight for one in peer.values] == list(range(10))
