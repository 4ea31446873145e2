"""A stream's summary in a notebook."""

from __future__ import annotations

from html import escape
from typing import Any

from batchweave._markup import code, counted, quiet, table, whole

_PRODUCERS_MAX = 8


def stream(url: str, status: dict[str, Any]) -> str:
    """Returns the summary of a stream, from `batchweave status --json`."""
    shape, totals = status["stream"], status["totals"]
    rows = counted(shape["rows_per_slice"], "row")
    facts = [
        ("steps", _range(status["watermark"], status["head"]["steps"])),
        (
            "batch",
            f"{counted(shape['slices'], 'slice')} of {rows} of {shape['seq_len']:,} tokens",
        ),
        ("tokens", _about(totals["tokens"], totals["exact"])),
        ("tokenizer", str(shape["tokenizer"]["name"])),
        ("producers", _producers(status["producers"])),
        ("end", _end(status["end"], status["head"]["steps"])),
    ]
    if totals.get("documents") is not None:
        facts.insert(3, ("documents", _about(totals["documents"], totals["documents_exact"])))
    cells = [(quiet(name), escape(value)) for name, value in facts]
    return whole([f"<b>Stream</b> {code(url)}", table(cells)])


def _about(number: int, exact: bool) -> str:
    return f"{'' if exact else 'about '}{number:,}"


def _range(first: int, end: int) -> str:
    if first == end:
        return f"none: all {end:,} are reclaimed" if end else "none yet"
    text = f"{end - first:,}, from {first:,} to {end - 1:,}"
    return text + (f" ({first:,} older ones are reclaimed)" if first else "")


def _end(end: int | None, head: int) -> str:
    if end is None:
        return "not yet: more steps may follow"
    return "reached" if end <= head else f"after {end:,} steps"


def _producers(every: list[dict[str, Any]]) -> str:
    shown = [f"{each['name']} ({each['state']})" for each in every[:_PRODUCERS_MAX]]
    more = len(every) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")
