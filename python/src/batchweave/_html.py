"""A batch in a notebook: bounded HTML, with all text of the stream escaped."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from batchweave._layout import Array
from batchweave._markup import TIMES, code, counted, quiet, shape, table, whole
from batchweave._png import picture
from batchweave._rows import count
from batchweave._samples import Sample, borders
from batchweave.errors import BatchWeaveError

if TYPE_CHECKING:
    from batchweave._documents import Decoder
    from batchweave.batch import Batch

ROWS_MAX = 4
DOCUMENTS_MAX = 8
"""Documents of a row, at most."""
CHARS_MAX = 1000
"""Characters of a row's text, at most."""
IDS_MAX = 128
"""Tokens of a document that is not decoded, at most."""
_VALUES_MAX = 12
_ARRAYS_MAX = 32
# Larger batches are not read again as a whole, only the slices of the rows that are shown.
_WHOLE_BYTES_MAX = 16 << 20


def batch(shown: Batch, decoder: Decoder | None) -> str:
    """Returns the head of a batch and its first rows."""
    rows = sum(count(piece) for piece in shown.slices)
    samples = list(itertools.islice(shown.samples(), ROWS_MAX))
    decoded, why = _decoded(shown, samples, decoder)
    parts = [_head(shown, rows, decoder), _arrays(shown)]
    if why:
        parts.append(f"<div>{quiet(f'not decoded: {why}')}</div>")
    parts += [_row(shown, sample, decoded.get((sample.slice, sample.row))) for sample in samples]
    if rows > len(samples):
        kind = "row" if "tokens" in shown else "sample"
        parts.append(quiet(f"{counted(rows - len(samples), f'more {kind}')}: batch.samples()"))
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
    what = counted(rows, "sample")
    if "tokens" in shown:
        what = f"{counted(rows, 'row')} {TIMES} {shown.slices[0]['tokens'].shape[-1]:,} tokens"
    slices = counted(len(shown.slices), "slice")
    return f"<div><b>Step {shown.step:,}</b>{of}<br>{what}, in {slices}</div>"


def _arrays(shown: Batch) -> str:
    arrays = list(shown.slices[0].items())
    rows = [
        (code(name), "bfloat16" if shown.is_bfloat16(name) else str(array.dtype), shape(array))
        for name, array in arrays[:_ARRAYS_MAX]
    ]
    if len(arrays) > _ARRAYS_MAX:
        rows.append((f"{len(arrays) - _ARRAYS_MAX} more", "", ""))
    return table(rows, ("array", "type", "shape in a slice"))


def _row(shown: Batch, sample: Sample, decoded: dict[str, Any] | None) -> str:
    kind = "Row" if "tokens" in sample else "Sample"
    head = f"<div><b>{kind} {sample.index}</b> {quiet(f'slice {sample.slice}')}</div>"
    if "tokens" not in sample:
        inner = _sample(shown, sample, decoded)
    elif decoded is not None:
        inner = "".join(_texts(decoded))
    else:
        inner = "".join(_ids(sample))
    return f'<div class="bw-row">{head}{inner}</div>'


def _texts(decoded: dict[str, Any]) -> Iterator[str]:
    """Yields the documents of a row as text."""
    left = CHARS_MAX
    for part in decoded["documents"][:DOCUMENTS_MAX]:
        text, left = _text(part, left)
        yield f'<div class="bw-doc">{_caption(part)}<p class="bw-text">{text}</p></div>'
    more = len(decoded["documents"]) - DOCUMENTS_MAX
    if more > 0:
        yield quiet(counted(more, "more document"))
    if decoded["padding"]:
        yield f'<div class="bw-pad">padding, {counted(decoded["padding"], "token")}</div>'


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


def _ids(sample: Sample) -> Iterator[str]:
    """Yields the documents of a row as token ids."""
    tokens = sample["tokens"]
    parts = borders(sample) or [(0, len(tokens))]
    for at, to in parts[:DOCUMENTS_MAX]:
        words = " ".join(_id(sample, k) for k in range(at, min(to, at + IDS_MAX)))
        hidden = to - at - IDS_MAX
        more = quiet(f" … {counted(hidden, 'more token')}") if hidden > 0 else ""
        caption = quiet(counted(to - at, "token"))
        yield f'<div class="bw-doc">{caption}<p class="bw-text">{words}{more}</p></div>'
    if len(parts) > DOCUMENTS_MAX:
        yield quiet(counted(len(parts) - DOCUMENTS_MAX, "more document"))
    padding = len(tokens) - sum(to - at for at, to in parts)
    if padding:
        yield f'<div class="bw-pad">padding, {counted(padding, "token")}</div>'


def _id(sample: Sample, at: int) -> str:
    tokens, mask = sample["tokens"], sample.get("loss_mask")
    learned = mask is None or mask.shape != tokens.shape or mask[at]
    return f"{tokens[at]}" if learned else f'<span class="bw-off">{tokens[at]}</span>'


def _sample(shown: Batch, sample: Sample, decoded: dict[str, Any] | None) -> str:
    """Returns the arrays of a sample: pictures as such, of others the first values."""
    captions = [_caption(part) for part in (decoded or {}).get("documents", [])]
    rows = [
        (code(name), shape(array), _value(array, shown.is_bfloat16(name)))
        for name, array in list(sample.items())[:_ARRAYS_MAX]
    ]
    return f'<div class="bw-doc">{"".join(captions)}{table(rows)}</div>'


def _value(array: Array, bfloat16: bool) -> str:
    url = picture(array)
    if url is not None:
        # Letters, digits and the signs of base64 only.
        return f'<img alt="" src="{url}">'
    first = array.reshape(-1)[:_VALUES_MAX]
    if bfloat16:
        first = (first.astype(np.uint32) << 16).view(np.float32)
    words = [f"{value:g}" if isinstance(value, float) else str(value) for value in first.tolist()]
    return code(" ".join(words) + (" …" if array.size > _VALUES_MAX else ""))
