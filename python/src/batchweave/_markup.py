"""The parts of HTML for notebooks and pages: a style, and small pieces of text, escaped.

Colours are shades of the notebook's own, so that both colour schemes work.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

TIMES = "\u00d7"

STYLE = """<style>
.batchweave{font:13px/1.5 system-ui,sans-serif;max-width:60em}
.batchweave .bw-head{margin:0 0 .6em}
.batchweave .bw-quiet{opacity:.65;font-size:12px}
.batchweave table{border-collapse:collapse;margin:.3em 0 .8em;font-size:12px;background:none}
.batchweave td,.batchweave th{border:0;padding:.15em 1.2em .15em 0;text-align:left;
vertical-align:baseline;background:none;color:inherit;font-weight:inherit}
.batchweave th{opacity:.65}
.batchweave code{font:12px/1 ui-monospace,monospace;background:none;color:inherit;padding:0}
.batchweave .bw-row{margin:.9em 0}
.batchweave .bw-doc{border-left:3px solid rgba(90,140,230,.85);background:rgba(90,140,230,.1);
margin:.35em 0;padding:.3em .8em .4em;border-radius:0 4px 4px 0}
.batchweave .bw-doc:nth-child(odd){border-color:rgba(230,150,60,.85);background:rgba(230,150,60,.1)}
.batchweave .bw-text{font:12px/1.55 ui-monospace,monospace;white-space:pre-wrap;
overflow-wrap:anywhere;margin:0}
.batchweave .bw-off{opacity:.5}
.batchweave .bw-on{background:rgba(60,170,90,.22);border-radius:2px}
.batchweave .bw-pad{border-left:3px dotted currentColor;padding:0 .8em;opacity:.5;font-size:12px}
.batchweave img{image-rendering:pixelated;max-width:16em;min-width:4em;vertical-align:top;
border-radius:4px;margin:.3em 0}
</style>"""


def quiet(text: str) -> str:
    """Returns text of less weight."""
    return f'<span class="bw-quiet">{escape(text)}</span>'


def counted(number: int, noun: str) -> str:
    """Returns a number and its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def code(text: str) -> str:
    """Returns a name."""
    return f"<code>{escape(text)}</code>"


def shape(array: Any) -> str:
    """Returns the shape of an array."""
    return f" {TIMES} ".join(f"{extent:,}" for extent in array.shape) or "one value"


def table(rows: Iterable[Iterable[str]], head: Iterable[str] = ()) -> str:
    """Returns a table of cells that are HTML; `head` is text."""
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in head)]
    lines += ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines if line)}</table>"


def whole(parts: Iterable[str]) -> str:
    """Returns one output of a notebook."""
    return f'{STYLE}<div class="batchweave">{"".join(parts)}</div>'


def page_of(title: str, content: str) -> str:
    """Returns an output of a notebook as a page that runs and loads nothing."""
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<style>:root{{color-scheme:light dark}}</style><title>{escape(title)}</title></head>"
        f"<body>{content}</body></html>\n"
    )
