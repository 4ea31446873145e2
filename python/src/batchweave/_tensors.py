"""Torch tensors over the daemon's memory, without a copy.

torch refuses read-only arrays, or warns. numpy reads `__array_interface__` of any object and keeps
that object: one that claims to be writable and keeps the array yields a second array, which all
versions of torch accept. A write through such a tensor is a segmentation fault: use `copy=True` for
private ones.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from batchweave._bins import no_rows
from batchweave._conventions import OF_INPUTS
from batchweave._flattened import arguments, whole
from batchweave._layout import Array
from batchweave._micro_batches import MicroBatch
from batchweave._packed import packed
from batchweave._rows import is_balanced
from batchweave.batch import Batch, Slice
from batchweave.views import WHOLE, Share, context_parallel, padded_for

# Indexes of models, which need wide numbers whatever their stored type.
_INDEXES = frozenset(["tokens", "input_ids", "labels", *OF_INPUTS, *OF_INPUTS.values()])


class _Memory:
    """The owner of the second array's memory."""

    __slots__ = ("__array_interface__", "_array")

    def __init__(self, array: Array) -> None:
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface
        self._array = array


def torch_module() -> Any:
    """Imports and returns PyTorch."""
    return importlib.import_module("torch")


def tensor(array: Array, *, bfloat16: bool = False) -> Any:
    """Returns a tensor that shares and keeps the array's memory; never write to it."""
    torch = torch_module()
    if array.dtype == np.uint16 and not hasattr(torch, "uint16"):
        array = array.view(np.int16)
    elif array.dtype in (np.uint32, np.uint64) and not hasattr(torch, str(array.dtype)):
        array = array.view(array.dtype.name[1:])
    if not array.flags.writeable:
        array = np.asarray(_Memory(array))
    found = torch.from_numpy(array)
    return found.view(torch.bfloat16) if bfloat16 else found


def tensors(piece: Slice | MicroBatch, dtype: Any = None) -> dict[str, Any]:
    """Returns the arrays of a slice or of a balanced stream's micro-batch as tensors.

    With `dtype`, integers are converted by a copy.

    torch has few operations for uint16 and uint32 on the CPU, so models need `torch.int64` there.
    Arrays of bytes (U8: masks, pictures) stay uint8.
    """
    return _tensors(piece, piece, dtype)


def widens(name: str, array: Array, *, bfloat16: bool) -> bool:
    """Returns whether an array is of integers that models need in another type."""
    if bfloat16 or array.dtype.kind not in "iu":
        return False
    return array.dtype != np.uint8 or name in _INDEXES


def _tensors(
    piece: Batch | Slice | MicroBatch, arrays: Mapping[str, Array], dtype: Any
) -> dict[str, Any]:
    """Returns arrays of `piece`, perhaps under other names, as tensors."""
    found = {name: tensor(a, bfloat16=piece.is_bfloat16(name)) for name, a in arrays.items()}
    if dtype is None:
        return found
    return {
        name: _converted(found[name], array, dtype)
        if widens(name, array, bfloat16=piece.is_bfloat16(name))
        else found[name]
        for name, array in arrays.items()
    }


def _converted(value: Any, array: Array, dtype: Any) -> Any:
    if array.dtype.kind == "u" and not str(value.dtype).startswith("torch.uint"):
        # In old versions of torch the bits are those of the unsigned number.
        return torch_module().from_numpy(array.astype(np.int64)).to(dtype)
    return value.to(dtype)


def model_inputs(
    source: Batch | Slice | MicroBatch, dtype: Any, share: Share = WHOLE, labels: str = "unshifted"
) -> dict[str, Any]:
    """Returns the tensors of a model's call, of all slices of a batch, only this rank's columns."""
    if isinstance(source, MicroBatch):
        return _of_micro_batch(source, dtype, share, labels)
    if is_balanced(source if isinstance(source, Slice) else source.slices[0]):
        raise no_rows("tensors of a whole step", "take those of each batch.micro_batches()")
    arrays = dict(source)
    # Cut first, so that the parts of other ranks are not converted.
    if share[2] == "full":
        return _tensors(source, packed(arrays, labels), dtype)
    return _tensors(source, context_parallel(arrays, *share), dtype)


def _of_micro_batch(micro: MicroBatch, dtype: Any, share: Share, labels: str) -> dict[str, Any]:
    divided = share[2] != "full"
    if divided:
        micro, labels = padded_for(micro, share), "shifted"
    given = _tensors(micro, whole(micro, labels), dtype)
    found = arguments(micro, given, tensor, labels)
    return context_parallel(found, *share) if divided else found
