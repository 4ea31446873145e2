"""Pictures of results, as SVG: a few panels side by side, with nothing but text and lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from paper.experiment import Chart

COLOURS = ["#1f6feb", "#d1242f", "#1a7f37", "#bf8700", "#8250df", "#0598bc", "#953800", "#57606a"]
WIDTH, HEIGHT, COLUMNS = 460, 320, 2
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 34, 44
LEGEND_LINE = 15
_STYLE = (
    "text{font:12px sans-serif;fill:#24292f}.t{font-weight:600;font-size:13px}.s{font-size:10px}"
    ".e{text-anchor:end}.m{text-anchor:middle}polyline{fill:none;stroke-width:1.6}"
    ".g{stroke:#eaeef2}.k{stroke:#cf222e;stroke-dasharray:3 3;opacity:.7}"
)


def short(value: float) -> str:
    """Returns a number with few characters."""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{letter}"
    return f"{value:.3g}"


class _Axis:
    """A scale from values to places."""

    def __init__(self, values: Sequence[float], place: tuple[float, float], log: bool) -> None:
        self._log, self._place = log, place
        some = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
        low, high = (min(some), max(some)) if some else (1.0, 10.0)
        if log:
            self.low = float(math.floor(math.log10(low)))
            self.high = max(math.ceil(math.log10(high)), self.low + 1)
        else:
            self.low = min(0.0, low)
            self.high = high if high > self.low else self.low + 1.0

    def at(self, value: float) -> float:
        """Returns the place of a value."""
        if self._log:
            value = math.log10(value) if value > 0 else self.low
        share = (value - self.low) / (self.high - self.low)
        return self._place[0] + share * (self._place[1] - self._place[0])

    def ticks(self) -> list[float]:
        """Returns round values within the scale."""
        if self._log:
            span = range(int(self.low), int(self.high) + 1)
            return [10.0**power for power in span]
        raw = (self.high - self.low) / 4
        unit = 10 ** math.floor(math.log10(raw))
        step = next(factor * unit for factor in (1, 2, 2.5, 5, 10) if factor * unit >= raw * 0.99)
        first = math.ceil(self.low / step)
        return [n * step for n in range(first, int(self.high / step + 1e-9) + 1)]


def _panel(chart: Chart, height: float) -> list[str]:
    lower, right = height - BOTTOM - LEGEND_LINE * len(chart.series), WIDTH - RIGHT
    points = [point for _, series in chart.series for point in series]
    bars = chart.kind == "bar"
    xs = [point[0] for point in points] + [mark[0] for mark in chart.marks]
    across = _Axis([-0.5, len(chart.names) - 0.5] if bars else xs, (LEFT, right), chart.log_x)
    if not bars and not chart.log_x and xs and max(xs) > min(xs) > 0.3 * max(xs):
        across.low = min(xs)
    up = _Axis([point[1] for point in points], (lower, TOP), chart.log_y)
    out = [f'<text class="t" x="10" y="18">{escape(chart.title)}</text>']
    for value in up.ticks():
        y = up.at(value)
        out.append(f'<path class="g" d="M{LEFT} {y:.1f}H{right}"/>')
        out.append(f'<text class="s e" x="{LEFT - 4}" y="{y + 3:.1f}">{short(value)}</text>')
    ticks = list(enumerate(chart.names)) if bars else [(v, short(v)) for v in across.ticks()]
    for value, name in ticks:
        text = f'<text class="s m" x="{across.at(value):.1f}" y="{lower + 14}">{escape(name)}'
        out.append(f"{text}</text>")
    out.append(f'<path stroke="#57606a" d="M{LEFT} {lower}H{right}"/>')
    middle = (LEFT + right) / 2
    out.append(f'<text class="s m" x="{middle}" y="{lower + 28}">{escape(chart.x)}</text>')
    out.append(f'<text class="s" x="10" y="{TOP - 4}">{escape(chart.y)}</text>')
    for number, (value, name) in enumerate(chart.marks):
        x = across.at(value)
        out.append(f'<path class="k" d="M{x:.1f} {TOP}V{lower}"/>')
        place = f'x="{x + 2:.1f}" y="{TOP + 10 + number % 3 * 11}"'
        out.append(f'<text class="s" {place}>{escape(name)}</text>')
    for number, (name, series) in enumerate(chart.series):
        colour = COLOURS[number % len(COLOURS)]
        out += _drawn(chart, number, series, across, up, lower, colour)
        y = lower + 42 + number * LEGEND_LINE
        out.append(f'<rect x="{LEFT}" y="{y - 8}" width="10" height="8" fill="{colour}"/>')
        out.append(f'<text class="s" x="{LEFT + 15}" y="{y}">{escape(name)}</text>')
    return out


def _drawn(
    chart: Chart,
    number: int,
    series: Sequence[tuple[float, float]],
    across: _Axis,
    up: _Axis,
    lower: float,
    colour: str,
) -> list[str]:
    places = [(across.at(x), up.at(y)) for x, y in series if math.isfinite(y)]
    if chart.kind == "bar":
        slot = (across.at(1) - across.at(0)) * 0.8
        wide = slot / max(1, len(chart.series))
        return [
            f'<rect x="{x - slot / 2 + number * wide:.1f}" y="{y:.1f}" width="{wide - 1:.1f}" '
            f'height="{max(0.0, lower - y):.1f}" fill="{colour}"/>'
            for x, y in places
        ]
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2" fill="{colour}"/>' for x, y in places]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return [f'<polyline stroke="{colour}" points="{path}"/>', *(dots if len(places) < 40 else [])]


def draw(charts: Sequence[Chart]) -> str:
    """Draws panels, two in a row."""
    columns = min(COLUMNS, max(1, len(charts)))
    lines = max((len(chart.series) for chart in charts), default=0)
    height = HEIGHT + LEGEND_LINE * lines
    rows = -(-len(charts) // columns)
    size = f"{columns * WIDTH} {max(1, rows) * height}"
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}"><style>{_STYLE}</style>']
    out.append('<rect width="100%" height="100%" fill="#fff"/>')
    for number, chart in enumerate(charts):
        x, y = number % columns * WIDTH, number // columns * height
        out += [f'<g transform="translate({x},{y})">', *_panel(chart, height), "</g>"]
    return "\n".join([*out, "</svg>\n"])
