"""The arguments of `reader.report`, checked and made a record of a step's losses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from batchweave._label_groups import documents_of, learned_tokens, rows_of
from batchweave._layout import Array
from batchweave._values import (
    DETAILS_MAX,
    DOCUMENTS,
    PART,
    ROWS,
    SOURCE_NUMBERS,
    SOURCES_MAX,
    Details,
    Source,
    record,
)
from batchweave.batch import Batch
from batchweave.errors import BadReportError


class Given(NamedTuple):
    """The losses of a step as the loop gives them."""

    loss: Any
    tokens: Any
    sources: Mapping[int, tuple[float, float]] | None
    rows: Any
    documents: Any
    part: bool

    def any(self) -> bool:
        """Returns whether there are losses."""
        return not (self.loss is self.tokens is self.sources is self.rows is self.documents is None)


def record_of(batch: Batch | int, given: Given, split: tuple[int, int]) -> bytes:
    """Returns the record of a step's losses; `split`: this rank's part of each slice's rows."""
    step = batch if isinstance(batch, int) else batch.step
    try:
        return _record(batch, step, given, split)
    except ValueError as error:
        raise BadReportError(f"step {step} cannot be reported: {error}", step=step) from None


def _record(batch: Batch | int, step: int, given: Given, split: tuple[int, int]) -> bytes:
    kind = PART if given.part or split[1] > 1 else 0
    if given.sources is given.rows is given.documents is None:
        return record(step, *_summed_loss(batch, given), kind)
    sources = [] if given.sources is None else _sources(given.sources)
    details = None
    if given.rows is not None and given.documents is not None:
        raise ValueError("both rows= and documents= are given; give one of them")
    if given.rows is not None:
        details, kind = _placed(_rows(given.rows, batch), batch, split), kind | ROWS
    elif given.documents is not None:
        details, kind = _documents(given.documents, batch, split), kind | DOCUMENTS
    sums = [] if given.sources is None else [_sum_of_sources(sources)]
    if details is not None:
        sums.insert(0, _sum_of_details(details))
    bad = max((bad for _, _, bad in sums), default=0.0)
    if given.loss is None and given.tokens is None:
        total, weight, _ = sums[0]
    else:
        total, weight, of_loss = _summed_loss(batch, given)
        bad = of_loss or bad
    return record(step, total, weight, bad, kind, sources, details)


def _summed_loss(batch: Batch | int, given: Given) -> tuple[float, float, float]:
    """Returns sum and weight of the step's loss, or as third the weight of one not finite."""
    if given.loss is None:
        raise ValueError("tokens= without loss=; give the mean loss over these tokens")
    loss, weight = _number("loss", given.loss), _tokens(batch, given.tokens)
    total = loss * weight
    return (total, weight, 0.0) if math.isfinite(total) else (0.0, 0.0, weight)


def _number(name: str, value: Any) -> float:
    try:
        # torch warns of a number that has a gradient.
        return float(value.detach() if hasattr(value, "detach") else value)
    except (TypeError, ValueError, RuntimeError):
        shape = getattr(value, "shape", None)
        what = type(value).__name__ if shape is None else f"an array of shape {list(shape)}"
        raise ValueError(
            f"{name}= is {what}; give one number (losses of each token: LossReporter)"
        ) from None


def _tokens(batch: Batch | int, tokens: Any) -> float:
    if tokens is None:
        found = None if isinstance(batch, int) else learned_tokens(batch)
        if found is None:
            what = "a step's number" if isinstance(batch, int) else "a batch without tokens"
            raise ValueError(f"{what} has no number of tokens; give tokens= beside loss=")
        return found
    weight = _number("tokens", tokens)
    if not 0 <= weight < math.inf:
        raise ValueError(f"tokens={tokens!r}; give the number of tokens of the mean, from 0 on")
    return weight


def _sources(given: Mapping[int, tuple[float, float]]) -> list[Source]:
    if len(given) > SOURCES_MAX:
        raise ValueError(f"{len(given)} sources; a step has at most {SOURCES_MAX}")
    found = []
    for number, pair in given.items():
        try:
            total, weight = map(float, pair)
            is_number = number == int(number) and not isinstance(number, bool)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(
                f"source {number!r} has {pair!r}; give {{number: (sum of losses, weight)}}"
            ) from None
        if not is_number or not 0 <= number < SOURCE_NUMBERS:
            raise ValueError(f"source {number!r}; sources are numbers from 0 to 65535")
        if not 0 <= weight < math.inf:
            raise ValueError(f"sources= has the weight {weight}; weights are from 0 on")
        found.append((int(number), total, weight))
    return found


def _details(name: str, given: Any) -> tuple[Array, Array]:
    try:
        means, weights = (np.asarray(one, np.float64) for one in given)
    except (TypeError, ValueError):
        raise ValueError(f"{name}= is not (means, weights), two arrays of numbers") from None
    if means.ndim != 1 or means.shape != weights.shape:
        shapes = f"{list(means.shape)} and {list(weights.shape)}"
        raise ValueError(f"{name}= has shapes {shapes}; give two arrays of one number each")
    _check_weights(name, weights)
    return means, weights


def _check_weights(name: str, weights: Array) -> None:
    bad = ~((weights >= 0) & (weights < math.inf))
    if bad.any():
        raise ValueError(f"{name}= has the weight {weights[bad][0]}; weights are from 0 on")


def _check_count(name: str, have: int, wanted: int | None) -> None:
    if have > DETAILS_MAX or (wanted or 0) > DETAILS_MAX:
        raise ValueError(
            f"losses of {max(have, wanted or 0)} {name}; a step has at most {DETAILS_MAX}"
        )
    if wanted is not None and have != wanted:
        raise ValueError(f"losses of {have} {name}; the batch of this rank has {wanted}")


def _rows(given: Any, batch: Batch | int) -> tuple[Array, Array]:
    means, weights = _details("rows", given)
    _check_count("rows", len(means), None if isinstance(batch, int) else len(rows_of(batch)[0]))
    return means, weights


def _placed(own: tuple[Array, Array], batch: Batch | int, split: tuple[int, int]) -> Details:
    """Returns the details of all rows of the coordinate, where a rank has a part of them."""
    means, weights = own
    if split[1] > 1:
        if isinstance(batch, int):
            raise ValueError("rows= of a part of the rows (split_rows) need the batch; pass it")
        places, total = rows_of(batch, *split)
        _check_count("rows", total, None)
        wide = np.zeros((2, total))
        wide[:, places] = own
        means, weights = wide
    return Details(means, weights)


def _documents(given: Any, batch: Batch | int, split: tuple[int, int]) -> Details:
    means, weights = _details("documents", given)
    if split[1] > 1:
        raise ValueError("documents= of a part of the rows (split_rows); give rows= instead")
    _check_count("documents", len(means), None if isinstance(batch, int) else documents_of(batch))
    return Details(means, weights)


def _sum_of_sources(sources: list[Source]) -> tuple[float, float, float]:
    """Returns sum and weight of the finite losses, and the weight of the others."""
    finite = [(total, weight) for _, total, weight in sources if math.isfinite(total)]
    total = math.fsum(total for total, weight in finite if weight > 0)
    weight = math.fsum(weight for _, weight in finite)
    return total, weight, math.fsum(weight for _, _, weight in sources) - weight


def _sum_of_details(details: Details) -> tuple[float, float, float]:
    """Returns sum and weight of the finite losses, and the weight of the others."""
    means, weights = details
    finite = np.isfinite(means)
    total = float((np.where(finite, means, 0.0) * weights).sum())
    return total, float(weights[finite].sum()), float(weights[~finite].sum())
