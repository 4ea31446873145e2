"""Draws the dashboard without Grafana: the same panels, filled with the data of a Prometheus server
that answers to their queries, as one SVG.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable
from html import escape
from typing import Any

from dashboard import filled, read

# Of Grafana's grid of 24 columns.
COLUMN, ROW = 48, 30
COLOURS = ["#3366cc", "#dc3912", "#109618", "#ff9900", "#990099", "#0099c6", "#b82e2e", "#66aa00"]
# The named colours of Grafana that thresholds and mappings use.
NAMED = {"green": "#1a7f37", "orange": "#b35900", "red": "#c4162a", "text": "#222"}
# The most lines in a legend, and characters of each; the rest is only counted.
NAMES_MAX, NAME_CHARACTERS = 4, 22
UNITS = {"s": "s", "bytes": "B", "Bps": "B/s", "reqps": "/s"}

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
    """Return a value as text."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "none":
        return f"{value:,.0f}"
    for factor, letter in [(1e9, "G"), (1e6, "M"), (1e3, "k"), (1, "")]:
        if value >= factor:
            return f"{value / factor:.3g} {letter}{UNITS.get(unit, '')}".strip()
    if unit == "s" and value > 0:
        return f"{value * 1000:.3g} ms"
    return f"{value:.2g} {UNITS.get(unit, '')}".strip()


def legend(pattern: str, labels: dict[str, str]) -> str:
    """Return a series' name in the legend, with `{{label}}` filled in."""
    return re.sub(r"\{\{(\w+)\}\}", lambda name: labels.get(name[1], ""), pattern).strip()


def shown(value: float | str, settings: dict[str, Any]) -> tuple[str, str]:
    """Return text and colour of a value by the mappings, thresholds and unit of its field."""
    number = value if isinstance(value, float) else math.nan
    key = f"{number:.0f}" if isinstance(value, float) else value
    for mapping in settings.get("mappings", []):
        options = mapping["options"]
        if mapping["type"] == "value" and key in options:
            return options[key]["text"], NAMED[options[key].get("color", "text")]
        if mapping["type"] == "range":
            upper = math.inf if options["to"] is None else options["to"]
            if options["from"] <= number <= upper:
                return options["result"]["text"], NAMED[options["result"]["color"]]
    if isinstance(value, str):
        return value, NAMED["text"]
    steps = settings.get("thresholds", {}).get("steps", [])
    passed = [s["color"] for s in steps if s["value"] is None or number >= s["value"]]
    return short(number, settings.get("unit", "short")), NAMED[passed[-1] if passed else "text"]


def lines(panel: dict[str, Any], ask: Ask) -> list[tuple[str, list[tuple[float, float]]]]:
    """Return the name and points of each line of a panel."""
    found = []
    for target in panel["targets"]:
        for labels, points in ask(target["expr"]):
            if points:
                found.append((legend(target["legendFormat"], labels), points))
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


def trend_svg(panel: dict[str, Any], ask: Ask, span: tuple[float, float]) -> list[str]:
    """Draw grid lines, the series and a legend."""
    at, drawn = panel["gridPos"], lines(panel, ask)
    width, height = at["w"] * COLUMN - 8, at["h"] * ROW - 8
    unit = panel["fieldConfig"]["defaults"]["unit"]
    bottom = float(panel["fieldConfig"]["defaults"]["min"])
    top = max((value for _, points in drawn for _, value in points), default=bottom)
    top = top if top > bottom else bottom + 1.0
    left, upper, right, lower = 62, 40, width - 10, height - 30

    def place(point: tuple[float, float]) -> str:
        x = left + (point[0] - span[0]) / (span[1] - span[0]) * (right - left)
        y = lower - (point[1] - bottom) / (top - bottom) * (lower - upper)
        return f"{x:.0f},{y:.1f}"

    axis = panel["fieldConfig"]["defaults"]["custom"]["axisLabel"]
    out = [f'<text class="axis name" x="10" y="32">{escape(axis)}</text>']
    for part in (0.0, 0.5, 1.0):
        y = lower - part * (lower - upper)
        out.append(f'<path class="grid" d="M{left} {y:.0f}H{right}"/>')
        label = short(bottom + part * (top - bottom), unit)
        out.append(f'<text class="axis" x="{left - 5}" y="{y + 4:.0f}">{label}</text>')
    names = []
    for number, (name, points) in enumerate(drawn):
        colour = COLOURS[number % len(COLOURS)]
        for piece in unbroken(points):
            path = " ".join(place(point) for point in piece)
            out.append(f'<polyline stroke="{colour}" points="{path}"/>')
        names.append(f'<tspan fill="{colour}">{escape(name[:NAME_CHARACTERS])}</tspan>')
    if len(names) > NAMES_MAX:
        names[NAMES_MAX:] = [f"<tspan>and {len(names) - NAMES_MAX} more</tspan>"]
    text = " ".join(names) or "<tspan>no data</tspan>"
    return [*out, f'<text class="legend" x="{left}" y="{height - 10}">{text}</text>']


def now(found: list[Series], end: float) -> list[tuple[dict[str, str], float]]:
    """Return the last value of each series that still has one."""
    return [(labels, p[-1][1]) for labels, p in found if p and end - p[-1][0] < 10]


def stat_svg(panel: dict[str, Any], ask: Ask, span: tuple[float, float]) -> list[str]:
    """Draw the last value in large letters."""
    settings = panel["fieldConfig"]["defaults"]
    label = panel["options"]["reduceOptions"]["fields"].strip("/^$")
    values = now(ask(panel["targets"][0]["expr"]), span[1])
    text, colour = settings["noValue"], NAMED["text"]
    if values:
        text, colour = shown(values[0][0].get(label, values[0][1]), settings)
    size = 26 if len(text) < 12 else 13
    y = panel["gridPos"]["h"] * ROW / 2 + 14
    style = f"font-size:{size}px;fill:{colour}"
    return [f'<text class="value" x="10" y="{y:.0f}" style="{style}">{escape(text)}</text>']


def rows(panel: dict[str, Any], ask: Ask, end: float) -> list[dict[str, float | str]]:
    """Return the rows of a table, merged by the labels that all queries have, by column name."""
    answers = [now(ask(target["expr"]), end) for target in panel["targets"]]
    common = set.intersection(*(set(labels) for some in answers for labels, _ in some))
    names = panel["transformations"][1]["options"]["renameByName"]
    found: dict[tuple[str, ...], dict[str, float | str]] = {}
    for target, some in zip(panel["targets"], answers, strict=True):
        for labels, value in some:
            row = found.setdefault(tuple(labels[name] for name in sorted(common)), {})
            row.update({names[name]: text for name, text in labels.items() if name in names})
            if (column := f"Value #{target['refId']}") in names:
                row[names[column]] = value
    return [found[key] for key in sorted(found)]


def table_svg(panel: dict[str, Any], ask: Ask, span: tuple[float, float]) -> list[str]:
    """Draw the head and the rows that fit."""
    at, options = panel["gridPos"], panel["transformations"][1]["options"]
    names = options["renameByName"]
    columns = [names[n] for n in sorted(names, key=lambda n: options["indexByName"][n])]
    settings: dict[str, dict[str, Any]] = {name: {} for name in columns}
    for override in panel["fieldConfig"]["overrides"]:
        properties = {one["id"]: one["value"] for one in override["properties"]}
        settings[override["matcher"]["options"]] = properties
    fixed = [settings[name].get("custom.width", 0) for name in columns]
    rest = (at["w"] * COLUMN - 20 - sum(fixed)) / max(fixed.count(0), 1)
    left = list(itertools.accumulate([width or rest for width in fixed], initial=10))
    out = []
    for x, name in zip(left, columns, strict=False):
        out.append(f'<text class="cell head" x="{x:.0f}" y="40">{name}</text>')
    for line, row in enumerate(rows(panel, ask, span[1])[: at["h"] - 2]):
        for x, name in zip(left, columns, strict=False):
            value, colour = shown(row[name], settings[name]) if name in row else ("-", "#222")
            place = f'x="{x:.0f}" y="{62 + line * 22}" style="fill:{colour}"'
            out.append(f'<text class="cell" {place}>{escape(value)}</text>')
    return out


STYLE = """
text{font:12px sans-serif;fill:#333}.title{font-weight:600}.axis{text-anchor:end;font-size:10px}
.name{text-anchor:start}.legend{font-size:10px}.row{font-size:15px;font-weight:600}
.head{font-weight:600}.note{font-size:10px;fill:#a33}.panel{fill:#fff;stroke:#ccc}
.grid{stroke:#e6e6e6}.mark{stroke:#a33;stroke-dasharray:3 3;opacity:.6}
polyline{fill:none;stroke-width:1.5}
"""
DRAWN = {"timeseries": trend_svg, "stat": stat_svg, "table": table_svg}


def draw(
    ask: Ask,
    span: tuple[float, float],
    notes: list[tuple[float, str]],
    only: tuple[str, ...] = ("",),
    **how: str,
) -> str:
    """Draw the rows whose titles begin with one of `only`, by default all, over `span`; `notes` are
    times with a short name, as annotations; `how` is for `dashboard.filled`.
    """
    panels, inside = [], False
    for panel in read()["panels"]:
        inside = panel["title"].startswith(only) if panel["type"] == "row" else inside
        panels += [panel] if inside else []
    up = min(panel["gridPos"]["y"] for panel in panels)
    width = 24 * COLUMN
    height = (max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in panels) - up) * ROW + 4
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">']
    out.append(f'<style>{STYLE}</style><rect width="{width}" height="{height}" fill="#f4f5f5"/>')
    for panel in panels:
        at = panel["gridPos"]
        x, y = at["x"] * COLUMN, (at["y"] - up) * ROW
        if panel["type"] == "row":
            out.append(f'<text class="row" x="8" y="{y + 22}">{escape(panel["title"])}</text>')
            continue
        size = f'width="{at["w"] * COLUMN - 8}" height="{at["h"] * ROW - 8}"'
        out.append(f'<g transform="translate({x + 4},{y + 4})"><rect class="panel" {size}/>')
        out.append(f'<text class="title" x="10" y="18">{escape(panel["title"])}</text>')
        out += DRAWN[panel["type"]](panel, lambda expr: ask(filled(expr, **how)), span)
        out.append("</g>")
        if panel["type"] == "timeseries":
            out += marks(panel, (x, y), span, notes)
    return "\n".join([*out, "</svg>\n"])


def marks(
    panel: dict[str, Any],
    corner: tuple[int, int],
    span: tuple[float, float],
    notes: list[tuple[float, str]],
) -> list[str]:
    """Draw the annotations of one panel."""
    at, out = panel["gridPos"], []
    left, plot = corner[0] + 66, at["w"] * COLUMN - 8 - 72
    upper, lower = corner[1] + 44, corner[1] + at["h"] * ROW - 34
    for number, (moment, name) in enumerate(notes):
        x = left + (moment - span[0]) / (span[1] - span[0]) * plot
        y = upper + 8 + number % 2 * 10
        out.append(f'<path class="mark" d="M{x:.0f} {upper}V{lower}"/>')
        out.append(f'<text class="note" x="{x + 2:.0f}" y="{y}">{escape(name)}</text>')
    return out
