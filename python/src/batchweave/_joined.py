"""Arrays of several slices as those of one batch: numpy arrays and torch tensors alike."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from batchweave.errors import BadMeshError

OFFSETS = ".offsets"


def joined(step: int, name: str, parts: Sequence[Any], *, borders: bool = False) -> Any:
    """Returns an array of all slices, one after another along the first axis.

    A single one is returned as it is. Scalars make an array with one entry per slice; offsets of
    samples, and other `borders`, are counted on.
    """
    kinds = {(part.dtype, tuple(part.shape[1:]), len(part.shape)) for part in parts}
    if len(kinds) > 1:
        shapes = [f"{part.dtype}{list(part.shape)}" for part in parts]
        raise BadMeshError(
            f"step {step}: array {name!r} of this rank's slices cannot be joined ({shapes}): "
            "loop over batch.slices",
            step=step,
        )
    if not parts[0].shape:
        parts = [part.reshape(1) for part in parts]
    if len(parts) == 1:
        return parts[0]
    if (borders or name.endswith(OFFSETS)) and len(parts[0].shape) == 1:
        return _counted_on(parts)
    return _concatenation(parts[0])(list(parts))


def _counted_on(parts: Sequence[Any]) -> Any:
    found, end = [parts[0]], parts[0][-1:]
    for part in parts[1:]:
        moved = part[1:] + end
        found.append(moved)
        end = part[-1:] + end
    return _concatenation(parts[0])(found)


def _concatenation(like: Any) -> Callable[[list[Any]], Any]:
    if isinstance(like, np.ndarray):
        return np.concatenate
    torch: Any = sys.modules["torch"]
    found: Callable[[list[Any]], Any] = torch.cat
    return found
