"""`batchweave.jax.LossReporter`: sums that JAX computes while this process goes on."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from batchweave import _loss_reporter
from batchweave._label_groups import Plan
from batchweave._loss_reporter import Copy
from batchweave.errors import BadReportError


class LossReporter(_loss_reporter.LossReporter):
    """Reports trained steps with their losses, without waiting for the device.

    As `batchweave.torch.LossReporter`, outside of `jax.jit`. Losses are those of this process:
    of an array over several processes, its addressable part. Those of all bins of a balanced
    batch may be one array, `[bins, seq_len]`. Sums have JAX's precision, by default float32.
    """

    def _sums(self, losses: Sequence[Any], weights: Sequence[Any] | None, how: Plan) -> Any:
        for one in losses:
            if not getattr(one, "is_fully_addressable", True):
                raise BadReportError(
                    f"step {how.step}: the losses lie in several processes; give this process's "
                    "own: the data of loss.addressable_shards",
                    step=how.step,
                )
        jnp: Any = importlib.import_module("jax.numpy")
        loss = _flat(jnp, losses)
        weight = None if weights is None else _flat(jnp, weights)
        sizes = [] if how.sources is None else [_rounded(len(how.sources))]
        sizes += [_rounded(how.details + 1)] if how.details else []
        return _compiled()(loss, weight, how.codes, sizes=tuple(sizes)), how

    def _copies(self, sums: Sequence[Any]) -> Sequence[Copy]:
        for one, _ in sums:
            one.copy_to_host_async()
        return [_JaxCopy(one, how) for one, how in sums]


def _rounded(count: int) -> int:
    """Returns a power of two: each size is compiled once."""
    return max(8, 1 << (count - 1).bit_length())


def _flat(jnp: Any, arrays: Sequence[Any]) -> Any:
    parts = [jnp.reshape(one, -1) for one in arrays]
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


@functools.cache
def _compiled() -> Callable[..., Any]:
    jax: Any = importlib.import_module("jax")
    found: Callable[..., Any] = jax.jit(_added, static_argnames="sizes")
    return found


def _added(loss: Any, weight: Any, codes: Any, *, sizes: tuple[int, ...]) -> Any:
    jnp: Any = importlib.import_module("jax.numpy")
    wide = jnp.promote_types(loss.dtype, jnp.float32)
    loss = loss.astype(wide)
    weight = (codes[0] if weight is None else weight).astype(wide)
    finite = jnp.isfinite(loss)
    good = weight * finite
    # The last column counts losses that are not finite.
    each = jnp.stack([jnp.where(finite, loss, 0) * good, good, (weight > good).astype(wide)], 1)
    found = [each.sum(0)]
    for count, index in zip(sizes, codes[1:], strict=True):
        found.append(jnp.zeros((count, 3), wide).at[index].add(each).reshape(-1))
    return jnp.concatenate(found)


class _JaxCopy(Copy):
    """An array that JAX copies, without the places that round its sizes up."""

    def __init__(self, sums: Any, how: Plan) -> None:
        self._sums, self._how = sums, how

    def is_done(self) -> bool:
        return bool(self._sums.is_ready())

    def numbers(self) -> Any:
        found, how = np.asarray(self._sums), self._how
        end = 3 * (1 + (0 if how.sources is None else _rounded(len(how.sources))))
        of_sources = 3 * (1 + (0 if how.sources is None else len(how.sources)))
        return np.concatenate([found[:of_sources], found[end:]])
