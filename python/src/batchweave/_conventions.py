"""Names of arrays in models, and the two conventions for labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from batchweave.errors import BadHelloError

CONVENTIONS = ("unshifted", "shifted")
IGNORED = -100
"""The label that counts for no loss, in PyTorch and in Hugging Face's models."""

# Arrays with an element per token of `tokens`, and their names in models. Shifted inputs are all
# tokens but the last, labels all but the first; arrays of that width stay unchanged there.
OF_INPUTS = {
    "positions": "position_ids",
    "position_ids": "position_ids",
    "segment_ids": "segment_ids",
    "document_ids": "document_ids",
    "source_ids": "source_ids",
}
MASK = "loss_mask"


def check_labels(labels: str) -> None:
    """Checks the name of a convention."""
    if labels not in CONVENTIONS:
        raise BadHelloError(
            f'labels={labels!r}: give "unshifted" (labels equal input_ids and the model shifts '
            'them, as those of Hugging Face do) or "shifted" (each label is the next token, for a '
            "loss of your own)"
        )


def as_labels(tokens: Any) -> Any:
    """Returns a private copy of tokens as int64, which holds the label of ignored ones."""
    labels = tokens.long() if of_torch(tokens) else tokens.astype(np.int64)
    return tokens.clone() if labels is tokens else labels


def ignore(labels: Any, where: Any) -> None:
    """Replaces labels, in place, by the one that counts for no loss."""
    if of_torch(labels):
        labels.masked_fill_(where, IGNORED)
    else:
        np.copyto(labels, IGNORED, where=where)


def of_torch(value: Any) -> bool:
    """Returns whether the value is a tensor of torch, without importing it."""
    return hasattr(value, "masked_fill_")
