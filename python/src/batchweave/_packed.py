"""The arguments of a model's call by their usual names, in one of two conventions for labels.

`unshifted`: `labels` are `input_ids`, token by token, and the model shifts them by itself, as those
of Hugging Face do. `shifted`: each label is the token after its input, for loops that compute the
loss themselves. Both have the same loss. Works on numpy arrays and torch tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from batchweave._bins import no_rows
from batchweave._conventions import (
    IGNORED,
    MASK,
    OF_INPUTS,
    as_labels,
    check_labels,
    ignore,
    of_torch,
)
from batchweave._flattened import flattened
from batchweave._micro_batches import MicroBatch
from batchweave._rows import is_balanced, is_of_a_bin
from batchweave.errors import BadMeshError

# Replaced by other arrays.
_CONSUMED = frozenset(["tokens", "num_segments", MASK])


def packed(arrays: Mapping[str, Any], labels: str = "unshifted") -> dict[str, Any]:
    """Returns the arguments of a model's call, from the tensors or arrays of a slice or a batch.

    `labels="unshifted"`, for `model(**arguments)` of Hugging Face: `input_ids` are the whole rows
    of `tokens`, and `labels` a copy of them with -100 at tokens that are not to be learned.
    `labels="shifted"`, for a loss of one's own: `input_ids` are the rows without their last token,
    `labels` without their first one, as views; `loss_mask` is aligned with the labels.

    Not to be learned are the tokens where the stream's `loss_mask` is 0; without one, where it has
    `segment_ids`, padding and the first token of each document. `positions` become `position_ids`;
    they, `segment_ids`, `document_ids` and `source_ids` are as wide as the inputs; `cu_seqlens` is
    shortened to `num_segments`; other arrays are passed on. Arrays that the stream lacks are left
    out.

    A micro-batch of a balanced stream becomes one row without padding, `[1, tokens]`, with the
    borders of its documents: `cu_seq_lens_q`, `cu_seq_lens_k`, `max_length_q` and `max_length_k`
    beside unshifted labels; `cu_seqlens`, `max_seqlen`, `loss_mask` and `segment_ids` beside
    shifted ones; and the learned tokens of the global batch as `num_items_in_batch`.
    """
    check_labels(labels)
    if isinstance(arrays, MicroBatch):
        return flattened(arrays, labels)
    if is_balanced(arrays) or is_of_a_bin(arrays):
        raise no_rows("packed()", "pass each one of batch.micro_batches()")
    if "tokens" not in arrays:
        # Opaque samples, or arguments that are packed already.
        return dict(arrays)
    tokens, mask = arrays["tokens"], mask_of_labels(arrays)
    width, shifted = tokens.shape[-1], labels == "shifted"
    if shifted:
        found = {"input_ids": tokens[..., :-1], "labels": tokens[..., 1:]}
        if mask is not None:
            found[MASK] = mask
    else:
        found = {"input_ids": tokens, "labels": _with_ignored(tokens, mask, arrays.get(MASK))}
    for name, value in arrays.items():
        if name in OF_INPUTS:
            found[OF_INPUTS[name]] = _of_inputs(name, value, width, shifted)
        elif name == "cu_seqlens" and "num_segments" in arrays:
            found[name] = _borders(value, arrays["num_segments"], width, shifted)
        elif name not in _CONSUMED:
            found[name] = value
    return found


def mask_of_labels(arrays: Mapping[str, Any]) -> Any:
    """Returns 1 where the label after an input is to be learned, 0 elsewhere; None: everywhere."""
    width = arrays["tokens"].shape[-1]
    if MASK in arrays:
        mask = arrays[MASK]
        return mask[..., 1:] if mask.shape[-1] == width else mask
    segments = arrays.get("segment_ids")
    if segments is None or segments.shape[-1] != width:
        return None
    # A document does not predict the next one; 0 is padding.
    after = segments[..., 1:]
    found = (after == segments[..., :-1]) & (after != 0)
    return found.byte() if of_torch(found) else found.view(np.uint8)


def unshifted_already(arrays: Mapping[str, Any]) -> bool:
    """Returns whether packed arguments have unshifted labels."""
    inputs, labels = arrays["input_ids"], arrays.get("labels")
    if labels is None or labels.shape != inputs.shape:
        return False
    ignored = labels == IGNORED
    same = bool(((labels == inputs) | ignored).all())
    # Rows of one token alone are valid in both conventions.
    return same and not bool(((labels[..., :-1] == inputs[..., 1:]) | ignored[..., :-1]).all())


def _with_ignored(tokens: Any, mask: Any, stored: Any) -> Any:
    """Returns a copy of the tokens with -100 where the mask is 0."""
    labels = as_labels(tokens)
    if mask is None:
        return labels
    ignore(labels[..., 1:], mask == 0)
    # A row's first token is never predicted.
    if stored is not None and stored.shape[-1] == tokens.shape[-1]:
        ignore(labels[..., :1], stored[..., :1] == 0)
    else:
        labels[..., :1] = IGNORED
    return labels


def _of_inputs(name: str, value: Any, width: int, shifted: bool) -> Any:
    if shifted:
        return value[..., :-1] if value.shape[-1] == width else value
    if value.shape[-1] == width - 1:
        raise BadMeshError(
            f"array {name!r} has rows of {width - 1}, tokens rows of {width}: it is stored for "
            'shifted inputs, so pass labels="shifted", or store one entry per token'
        )
    return value


def _borders(value: Any, segments: Any, width: int, shifted: bool) -> Any:
    """Removes the padding, down to the row with the most segments."""
    found = value[..., : int(segments.max()) + 1]
    # Stored for inputs without the row's last token, which continues the last segment.
    return found if shifted else found + (found == width - 1)
