"""A batch in a notebook, or as a page: bounded HTML, with all text of the stream escaped."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from batchweave._joined import OFFSETS
from batchweave._layout import Array
from batchweave._markup import TIMES, code, counted, page_of, quiet, shape, table, whole
from batchweave._png import pictures, sizes_of
from batchweave._rows import count, is_balanced, is_offsets
from batchweave._samples import Sample, borders
from batchweave.errors import BatchWeaveError

if TYPE_CHECKING:
    from batchweave._documents import Decoder
    from batchweave.batch import Batch


@dataclass(frozen=True)
class Bounds:
    """What is shown of a batch at most."""

    rows: int
    documents: int
    """Of a row."""
    chars: int
    """Of a row's text."""


NOTEBOOK = Bounds(rows=4, documents=8, chars=1000)
PAGE = Bounds(rows=64, documents=64, chars=32_000)
IDS_MAX = 128
"""Tokens of a document that is not decoded, at most."""
_PICTURES_MAX = 8
"""Pictures of an array in a sample or in a row's documents, at most, and one per document."""
_VALUES_MAX = 12
_ARRAYS_MAX = 32
# Larger batches are not read again as a whole, only the slices of the rows that are shown.
_WHOLE_BYTES_MAX = 16 << 20
# No row follows after this many characters.
_HTML_MAX = 16 << 20


def page(shown: Batch, decoder: Decoder | None) -> str:
    """Returns a page of a batch's first rows for a browser."""
    return page_of(f"Step {shown.step:,}", batch(shown, decoder, PAGE))


def batch(shown: Batch, decoder: Decoder | None, bounds: Bounds = NOTEBOOK) -> str:
    """Returns the head of a batch and its first rows."""
    rows = sum(count(piece) for piece in shown.slices)
    samples = list(itertools.islice(shown.samples(), bounds.rows))
    decoded, why = _decoded(shown, samples, decoder)
    parts = [_head(shown, rows, decoder), _arrays(shown)]
    if why:
        parts.append(f"<div>{quiet(f'not decoded: {why}')}</div>")
    size = 0
    for sample in samples:
        if size < _HTML_MAX:
            parts.append(_row(shown, sample, decoded.get((sample.slice, sample.row)), bounds))
            size += len(parts[-1])
            rows -= 1
    if rows:
        kind = _kind(shown.slices[0])
        parts.append(quiet(f"{counted(rows, f'more {kind}')}: batch.samples()"))
    return whole(parts)


def _decoded(
    shown: Batch, samples: list[Sample], decoder: Decoder | None
) -> tuple[dict[tuple[int, int], dict[str, Any]], str]:
    """Returns the decoded rows by slice and row, or a reason for their absence."""
    if decoder is None:
        return {}, ""
    size = sum(array.nbytes for piece in shown.slices for array in piece.values())
    slices: list[int | None] = [None]
    if size > _WHOLE_BYTES_MAX:
        slices = list(dict.fromkeys(sample.slice for sample in samples))
    try:
        rows = [row for piece in slices for row in decoder.rows(piece)]
    except BatchWeaveError as error:
        return {}, str(error.args[0])
    return {(row["slice"], row["row"]): row for row in rows}, ""


def _head(shown: Batch, rows: int, decoder: Decoder | None) -> str:
    of = quiet(f" of {decoder.url}") if decoder else ""
    what = counted(rows, kind := _kind(shown.slices[0]))
    if kind == "bin":
        tokens = sum(len(piece["tokens"]) for piece in shown.slices)
        what += f" of together {counted(tokens, 'token')}"
    elif kind == "row":
        what = f"{counted(rows, 'row')} {TIMES} {shown.slices[0]['tokens'].shape[-1]:,} tokens"
    slices = counted(len(shown.slices), "slice")
    return f"<div><b>Step {shown.step:,}</b>{of}<br>{what}, in {slices}</div>"


def _kind(piece: Mapping[str, Array]) -> str:
    if is_balanced(piece):
        return "bin"
    return "row" if "tokens" in piece else "sample"


def _arrays(shown: Batch) -> str:
    arrays = list(shown.slices[0].items())
    rows = [
        (code(name), "bfloat16" if shown.is_bfloat16(name) else str(array.dtype), shape(array))
        for name, array in arrays[:_ARRAYS_MAX]
    ]
    if len(arrays) > _ARRAYS_MAX:
        rows.append((f"{len(arrays) - _ARRAYS_MAX} more", "", ""))
    return table(rows, ("array", "type", "shape in a slice"))


def _row(shown: Batch, sample: Sample, decoded: dict[str, Any] | None, bounds: Bounds) -> str:
    kind = "Bin" if sample.is_bin else "Row" if "tokens" in sample else "Sample"
    cost = f", cost {sample['costs']:,.0f}" if sample.is_bin else ""
    head = f"<div><b>{kind} {sample.index}</b> {quiet(f'slice {sample.slice}{cost}')}</div>"
    if "tokens" not in sample:
        inner = _sample(shown, sample, decoded)
    elif decoded is not None:
        inner = "".join(_texts(shown, sample, decoded, bounds))
    else:
        inner = "".join(_ids(shown, sample, bounds))
    return f'<div class="bw-row">{head}{inner}</div>'


def _texts(shown: Batch, sample: Sample, decoded: dict[str, Any], bounds: Bounds) -> Iterator[str]:
    """Yields the documents of a row as text, with their arrays."""
    documents, left = decoded["documents"], bounds.chars
    beside, others = _beside(shown, sample, len(documents), bounds)
    for part, arrays in zip(documents[: bounds.documents], beside, strict=False):
        text, left = _text(part, left)
        yield f'<div class="bw-doc">{_caption(part)}<p class="bw-text">{text}</p>{arrays}</div>'
    yield _more(len(documents) - bounds.documents, "document") + others
    if decoded["padding"]:
        yield f'<div class="bw-pad">padding, {counted(decoded["padding"], "token")}</div>'


def _beside(shown: Batch, sample: Sample, documents: int, bounds: Bounds) -> tuple[list[str], str]:
    """Returns the arrays of each document of a row; those of other documents as a text of its own.

    Where a stream has no borders of documents, its rows may seem to have others than their arrays.
    """
    names = [name for name in sample if is_offsets(name + OFFSETS, sample)]
    if not names:
        return [""] * documents, ""
    found = sample.documents
    limit = max(_PICTURES_MAX // max(len(found), 1), 1)
    tables = [
        _values(shown, {name: part[name] for name in names}, limit)
        for part in found[: bounds.documents]
    ]
    if len(found) == documents:
        return tables, ""
    alone = "".join(f'<div class="bw-doc">{each}</div>' for each in tables)
    return [""] * documents, alone + _more(len(found) - bounds.documents, "document")


def _more(hidden: int, noun: str) -> str:
    return quiet(counted(hidden, f"more {noun}")) if hidden > 0 else ""


def _caption(part: dict[str, Any]) -> str:
    words = [part["source"] or "a document"]
    if part["text"] is not None:
        words.append(counted(part["tokens"], "token"))
    if part["skip"]:
        words.append(f"from token {part['skip']:,} on")
    if part["pass"]:
        words.append(f"pass {part['pass'] + 1}")
    return quiet(", ".join(words))


def _text(part: dict[str, Any], left: int) -> tuple[str, int]:
    """Returns a document's text, shortened to `left` characters, and the characters left then."""
    runs = part.get("runs") or [{"learned": True, "text": part["text"] or ""}]
    # Colours tell apart: a document of one kind needs none, unless nothing of it is learned.
    mixed = not all(run["learned"] for run in runs)
    found, hidden = [], 0
    for run in runs:
        text = run["text"][: max(left, 0)]
        left -= len(text)
        hidden += len(run["text"]) - len(text)
        kind = ("bw-on" if run["learned"] else "bw-off") if mixed and text else ""
        found.append(f'<span class="{kind}">{escape(text)}</span>' if kind else escape(text))
    if hidden:
        found.append(quiet(f" … {counted(hidden, 'more character')}"))
    return "".join(found), left


def _ids(shown: Batch, sample: Sample, bounds: Bounds) -> Iterator[str]:
    """Yields the documents of a row as token ids, with their arrays."""
    tokens = sample["tokens"]
    parts = borders(sample) or ([] if sample.is_bin else [(0, len(tokens))])
    beside, others = _beside(shown, sample, len(parts), bounds)
    for (at, to), arrays in zip(parts[: bounds.documents], beside, strict=False):
        words = " ".join(_id(sample, k) for k in range(at, min(to, at + IDS_MAX)))
        hidden = to - at - IDS_MAX
        more = quiet(f" … {counted(hidden, 'more token')}") if hidden > 0 else ""
        caption = quiet(counted(to - at, "token"))
        yield f'<div class="bw-doc">{caption}<p class="bw-text">{words}{more}</p>{arrays}</div>'
    yield _more(len(parts) - bounds.documents, "document") + others
    padding = len(tokens) - sum(to - at for at, to in parts)
    if padding:
        yield f'<div class="bw-pad">padding, {counted(padding, "token")}</div>'


def _id(sample: Sample, at: int) -> str:
    tokens, mask = sample["tokens"], sample.get("loss_mask")
    learned = mask is None or mask.shape != tokens.shape or mask[at]
    return f"{tokens[at]}" if learned else f'<span class="bw-off">{tokens[at]}</span>'


def _sample(shown: Batch, sample: Sample, decoded: dict[str, Any] | None) -> str:
    captions = [_caption(part) for part in (decoded or {}).get("documents", [])]
    return f'<div class="bw-doc">{"".join(captions)}{_values(shown, sample, _PICTURES_MAX)}</div>'


def _values(shown: Batch, arrays: Mapping[str, Array], limit: int) -> str:
    """Returns a table of arrays: pictures as such, `limit` of each; of others the first values."""
    rows = []
    for name, array in list(arrays.items())[:_ARRAYS_MAX]:
        urls, more = pictures(array, limit, sizes_of(array, arrays.values()))
        # Letters, digits and the signs of base64 only.
        images = "".join(f'<img alt="" src="{url}">' for url in urls)
        value = images + _more(more, "picture") or _first(array, shown.is_bfloat16(name))
        rows.append((code(name), shape(array), value))
    return table(rows)


def _first(array: Array, bfloat16: bool) -> str:
    first = array.reshape(-1)[:_VALUES_MAX]
    if bfloat16:
        first = (first.astype(np.uint32) << 16).view(np.float32)
    words = [f"{value:g}" if isinstance(value, float) else str(value) for value in first.tolist()]
    return code(" ".join(words) + (" …" if array.size > _VALUES_MAX else ""))
