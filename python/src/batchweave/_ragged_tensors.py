"""Arrays of any length as tensors: nested, padded, or one per sample, document or picture."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from batchweave import _ragged
from batchweave._joined import OFFSETS
from batchweave._micro_batches import MicroBatch
from batchweave._ragged import Ragged
from batchweave._tensors import tensor, torch_module
from batchweave.batch import Batch, Slice
from batchweave.errors import BadShapeError

Source = Batch | Mapping[str, Any]
"""A batch, a slice, or tensors by name: an item of a `Dataset`, or the result of `to_device`."""


def nested(source: Source, name: str) -> Any:
    """Returns an array as a nested tensor of the jagged layout: an entry per sample or document.

    Its values are those of the batch, without a copy. Tested with PyTorch 2.6.
    """
    values, offsets = _values(source, name), _values(source, name + OFFSETS)
    make = getattr(torch_module().nested, "nested_tensor_from_jagged", None)
    if make is None:
        raise BadShapeError(
            f"nested tensors of PyTorch {torch_module().__version__} have no jagged layout: use "
            "a newer PyTorch (tested: 2.6), batchweave.torch.padded, or batchweave.torch.ragged"
        )
    return make(values, offsets)


def padded(source: Source, name: str, value: float = 0) -> tuple[Any, Any]:
    """Returns an array filled up with `value` to the longest sample or document, and the lengths.

    The first is a copy of the shape [entries, longest, ...], on the device of the source.
    """
    torch = torch_module()
    values, offsets = _values(source, name), _values(source, name + OFFSETS)
    lengths = offsets[1:] - offsets[:-1]
    longest = int(lengths.max()) if len(lengths) else 0
    dense = values.new_full((len(lengths), longest, *values.shape[1:]), value)
    dense[torch.arange(longest, device=values.device) < lengths[:, None]] = values
    return dense, lengths


def ragged(source: Source, name: str, shape: str | None = None) -> list[Any]:
    """Returns a tensor per sample or document, or per row of the array `shape`, as views.

    `ragged(item, "pixels", shape="size")` are the pictures, each [height, width, channels].
    """
    values = _values(source, name)
    found = _borders(source, name, shape, len(values))
    ends = found.offsets.tolist()
    pieces = [values[at:to] for at, to in itertools.pairwise(ends)]
    if found.shapes is None:
        return pieces
    shapes = [(*extent, *values.shape[1:]) for extent in found.shapes.tolist()]
    return [piece.reshape(extent) for piece, extent in zip(pieces, shapes, strict=True)]


def _values(source: Source, name: str) -> Any:
    if isinstance(source, Batch | Slice | MicroBatch):
        return tensor(source[name], bfloat16=source.is_bfloat16(name))
    return source[name]


def _borders(source: Source, name: str, shape: str | None, items: int) -> Ragged:
    if isinstance(source, Batch | Slice | MicroBatch):
        return source.ragged(name, shape)
    names = [name + OFFSETS] if shape is None else [name + OFFSETS, shape, shape + OFFSETS]
    arrays = {each: source[each].cpu().numpy() for each in names if each in source}
    # Borders and shapes are all that is needed, so the items stay on their device.
    return _ragged.of({**arrays, name: np.empty((items, 0))}, name, shape)
