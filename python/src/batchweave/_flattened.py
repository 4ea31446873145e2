"""A micro-batch of a balanced stream as the arguments of a model's call, without padding.

They have the names of Hugging Face's `DataCollatorWithFlattening(return_flash_attn_kwargs=True)`,
or, with shifted labels, those of flash-attention's function of variable length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from batchweave._conventions import MASK, OF_INPUTS, as_labels, ignore
from batchweave._layout import Array
from batchweave._micro_batches import POSITIONS, SEGMENT_IDS, MicroBatch
from batchweave._rows import DOCUMENTS


def flattened(micro: MicroBatch, labels: str) -> dict[str, Any]:
    """Returns the arguments as numpy arrays, views where the arrays of the stream are."""
    return arguments(micro, whole(micro, labels), lambda array: array, labels)


def whole(micro: MicroBatch, labels: str) -> dict[str, Array]:
    """Returns the arrays of a micro-batch, with masks and positions that the stream lacks.

    Beside shifted labels also its segment ids, from which attention that takes no borders makes
    a mask.
    """
    found = {name: array for name, array in micro.items() if name != DOCUMENTS}
    found |= {MASK: micro.mask_of_tokens(), POSITIONS: micro.positions_of_tokens()}
    return {**found, SEGMENT_IDS: micro.segments_of_tokens()} if labels == "shifted" else found


def arguments(
    micro: MicroBatch, given: Mapping[str, Any], convert: Callable[[Array], Any], labels: str
) -> dict[str, Any]:
    """Returns the arguments from the arrays of `whole`, or from tensors of them.

    `convert` makes borders like `given`; they stay int32, as attention wants them.
    """
    tokens, mask, shifted = given["tokens"], given[MASK], labels == "shifted"
    if shifted:
        found = {"input_ids": tokens[:-1][None], "labels": tokens[1:][None], MASK: mask[1:][None]}
    else:
        learned = as_labels(tokens)
        ignore(learned, mask == 0)
        found = {"input_ids": tokens[None], "labels": learned[None]}
    for name, value in given.items():
        if name in OF_INPUTS:
            found[OF_INPUTS[name]] = (value[:-1] if shifted else value)[None]
        elif name not in ("tokens", MASK):
            found[name] = value[None] if name in micro.per_token else value
    if shifted:
        found["cu_seqlens"] = convert(micro.cu_seqlens)
        found["max_seqlen"] = micro.max_seqlen
    else:
        borders = micro.borders(len(micro.tokens))
        longest = int((borders[1:] - borders[:-1]).max(initial=0))
        for side in ("q", "k"):
            found[f"cu_seq_lens_{side}"] = convert(borders)
            found[f"max_length_{side}"] = longest
    found["num_items_in_batch"] = micro.loss_tokens
    return found
