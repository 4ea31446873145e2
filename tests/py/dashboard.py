"""Draws deploy/grafana/batchweave.json without Grafana: the same panels, filled with the data of a
Prometheus server answers to their queries, as one SVG.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable
from html import escape
from typing import Any

from site_of_daemons import ROOT

DASHBOARD = ROOT / "deploy" / "grafana" / "batchweave.json"
# Of Grafana's grid of 24 columns.
COLUMN, ROW = 48, 30
COLOURS = ["#3366cc", "#dc3912", "#109618", "#ff9900", "#990099", "#0099c6", "#b82e2e", "#66aa00"]
# The most lines in a legend; the rest is only counted.
NAMES_MAX = 4
UNITS = {"s": "s", "bytes": "B", "Bps": "B/s", "reqps": "/s", "short": ""}

# Labels and points (seconds, value) of one series.
Series = tuple[dict[str, str], list[tuple[float, float]]]
# From an expression to its series over the drawn time.
Ask = Callable[[str], list[Series]]


def series(answer: str) -> list[Series]:
    """Return the series in an answer of /api/v1/query_range, without gaps."""
    found = []
    for one in json.loads(answer)["data"]["result"]:
        points = [(float(at), float(value)) for at, value in one["values"]]
        found.append((one["metric"], [p for p in points if math.isfinite(p[1])]))
    return found


def short(value: float, unit: str) -> str:
    """Return a value as text for an axis."""
    if unit == "percentunit":
        return f"{value * 100:.0f} %"
    for factor, letter in [(1e9, "G"), (1e6, "M"), (1e3, "k"), (1, "")]:
        if value >= factor:
            return f"{value / factor:.3g} {letter}{UNITS.get(unit, '')}".strip()
    if unit == "s" and value > 0:
        return f"{value * 1000:.3g} ms"
    return f"{value:.2g} {UNITS.get(unit, '')}".strip()


def legend(pattern: str, labels: dict[str, str]) -> str:
    """Return a series' name in the legend, with `{{label}}` filled in."""
    return re.sub(r"\{\{(\w+)\}\}", lambda name: labels.get(name[1], ""), pattern)


def lines(panel: dict[str, Any], ask: Ask) -> list[tuple[str, list[tuple[float, float]]]]:
    """Return the name and points of each line of a panel."""
    found = []
    for target in panel.get("targets", []):
        for labels, points in ask(target["expr"]):
            if points:
                found.append((legend(target.get("legendFormat", ""), labels), points))
    # The legend has space for a few: those that matter here.
    return sorted(found, key=lambda line: -max(value for _, value in line[1]))


def unbroken(points: list[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """Split points at gaps: where nothing was scraped, nothing is drawn."""
    step = min((b[0] - a[0] for a, b in itertools.pairwise(points)), default=0.0)
    pieces = [points[:1]]
    for before, point in itertools.pairwise(points):
        if point[0] - before[0] > 3 * step:
            pieces.append([])
        pieces[-1].append(point)
    return pieces


def panel_svg(panel: dict[str, Any], drawn: Any, span: tuple[float, float]) -> str:
    """Draw one panel: title, three grid lines, the series, and a legend."""
    at = panel["gridPos"]
    width, height = at["w"] * COLUMN - 8, at["h"] * ROW - 8
    unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "short")
    top = max((value for _, points in drawn for _, value in points), default=0.0) or 1.0
    left, upper, right, lower = 62, 28, width - 10, height - 30

    def place(point: tuple[float, float]) -> str:
        x = left + (point[0] - span[0]) / (span[1] - span[0]) * (right - left)
        return f"{x:.0f},{lower - point[1] / top * (lower - upper):.1f}"

    out = [f'<g transform="translate({at["x"] * COLUMN + 4},{at["y"] * ROW + 4})">']
    out.append(f'<rect class="panel" width="{width}" height="{height}"/>')
    out.append(f'<text class="title" x="10" y="18">{escape(panel["title"])}</text>')
    for part in (0.0, 0.5, 1.0):
        y = lower - part * (lower - upper)
        out.append(f'<path class="grid" d="M{left} {y:.0f}H{right}"/>')
        label = short(part * top, unit)
        out.append(f'<text class="axis" x="{left - 5}" y="{y + 4:.0f}">{label}</text>')
    names = []
    for number, (name, points) in enumerate(drawn):
        colour = COLOURS[number % len(COLOURS)]
        for piece in unbroken(points):
            path = " ".join(place(point) for point in piece)
            out.append(f'<polyline stroke="{colour}" points="{path}"/>')
        names.append(f'<tspan fill="{colour}">{escape(name)}</tspan>')
    if len(names) > NAMES_MAX:
        names[NAMES_MAX:] = [f"<tspan>and {len(names) - NAMES_MAX} more</tspan>"]
    legend = " ".join(names) or "<tspan>no data</tspan>"
    out.append(f'<text class="legend" x="{left}" y="{height - 10}">{legend}</text></g>')
    return "".join(out)


STYLE = """
text{font:12px sans-serif;fill:#333}.title{font-weight:600}.axis{text-anchor:end;font-size:10px}
.legend{font-size:11px}.head{font-size:15px;font-weight:600}.note{font-size:10px;fill:#a33}
.panel{fill:#fff;stroke:#ccc}.grid{stroke:#e6e6e6}.mark{stroke:#a33;stroke-dasharray:3 3;opacity:.6}
polyline{fill:none;stroke-width:1.5}
"""


def draw(ask: Ask, span: tuple[float, float], notes: list[tuple[float, str]]) -> str:
    """Draw the whole dashboard over `span`; `notes` are times with a short name, as annotations."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    width = 24 * COLUMN
    height = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in panels) * ROW + 4
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">']
    out.append(f'<style>{STYLE}</style><rect width="{width}" height="{height}" fill="#f4f5f5"/>')
    for panel in panels:
        at = panel["gridPos"]
        if panel["type"] == "row":
            y = at["y"] * ROW + 22
            out.append(f'<text class="head" x="8" y="{y}">{escape(panel["title"])}</text>')
            continue
        out.append(panel_svg(panel, lines(panel, ask), span))
        left, plot = at["x"] * COLUMN + 66, at["w"] * COLUMN - 8 - 72
        upper, lower = at["y"] * ROW + 32, (at["y"] + at["h"]) * ROW - 34
        for number, (moment, name) in enumerate(notes):
            x = left + (moment - span[0]) / (span[1] - span[0]) * plot
            y = upper + 8 + number % 2 * 10
            out.append(f'<path class="mark" d="M{x:.0f} {upper}V{lower}"/>')
            out.append(f'<text class="note" x="{x + 2:.0f}" y="{y}">{escape(name)}</text>')
    return "\n".join([*out, "</svg>\n"])
