"""The arguments of a model's call by their usual names: arrays of a slice, shifted and cut alike.

Works on numpy arrays and torch tensors, by views.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Arrays with an element per token of `tokens`, and their names in models. Inputs are all but the
# last, labels all but the first; an array as wide as the inputs stays unchanged.
OF_INPUTS = {
    "positions": "position_ids",
    "position_ids": "position_ids",
    "segment_ids": "segment_ids",
    "document_ids": "document_ids",
}
OF_LABELS = {"loss_mask": "loss_mask"}


def packed(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a model's call, from the tensors or arrays of a slice.

    `input_ids` and `labels` are `tokens` shifted against one another; `positions` become
    `position_ids`; they, `segment_ids` and `document_ids` are cut like the inputs, `loss_mask` like
    the labels; `cu_seqlens` is shortened to `num_segments`; other arrays are passed on.
    Arrays that the stream lacks are left out.
    """
    found: dict[str, Any] = {}
    width = None
    if "tokens" in arrays:
        tokens = arrays["tokens"]
        width = tokens.shape[-1]
        found["input_ids"], found["labels"] = tokens[..., :-1], tokens[..., 1:]
    for name, value in arrays.items():
        if name in OF_INPUTS:
            found[OF_INPUTS[name]] = value[..., :-1] if value.shape[-1] == width else value
        elif name in OF_LABELS:
            found[OF_LABELS[name]] = value[..., 1:] if value.shape[-1] == width else value
        elif name == "cu_seqlens" and "num_segments" in arrays:
            found[name] = _shortened(value, arrays["num_segments"])
        elif name not in ("tokens", "num_segments"):
            found[name] = value
    return found


def _shortened(bounds: Any, segments: Any) -> Any:
    """Removes the padding, down to the row with the most segments."""
    most = int(segments.max())
    return bounds[..., : most + 1]
