"""The figures of several rounds: medians, ranges, and tables of them."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rivals.common import note


class Row(NamedTuple):
    """What was measured, in which case, of which system."""

    part: str
    case: str
    side: str


Found = Mapping[Row, Mapping[str, float]]
"""The figures of one run of a side: one row or several."""


class Side(NamedTuple):
    """A side of a comparison: its name, and what measures it once."""

    name: str
    measure: Callable[[], Found]


class Metric(NamedTuple):
    """A column of a table: its name in JSON, its heading, and the factor between them."""

    name: str
    heading: str
    factor: float = 1.0
    digits: int = 1


class Figures:
    """The values of all rounds."""

    def __init__(self) -> None:
        self._rows: dict[Row, dict[str, list[float]]] = {}

    def in_turns(self, rounds: int, sides: Sequence[Side]) -> None:
        """Measures all sides in each round; every second round begins with the last side."""
        for n in range(rounds):
            for side in sides if n % 2 == 0 else sides[::-1]:
                note(f"round {n + 1} of {rounds}: {side.name}")
                for row, values in side.measure().items():
                    known = self._rows.setdefault(row, {})
                    for name, value in values.items():
                        known.setdefault(name, []).append(value)

    def rows(self) -> list[dict[str, Any]]:
        """Returns the rows for JSON, with median, range and the value of each round."""
        return [
            {
                **row._asdict(),
                **{
                    name: {
                        "median": statistics.median(values),
                        "range": [min(values), max(values)],
                        "rounds": values,
                    }
                    for name, values in named.items()
                },
            }
            for row, named in sorted(self._rows.items(), key=self._order)
        ]

    def _order(self, item: tuple[Row, Any]) -> tuple[int, int]:
        """Orders rows by part and case as first measured."""
        rows = list(self._rows)
        row = item[0]
        first = next(n for n, each in enumerate(rows) if each[:2] == row[:2])
        return first, rows.index(row)

    def table(self, part: str, title: str, metrics: Sequence[Metric]) -> str:
        """Returns the table of a part: median and, in parentheses, the range."""
        lines = [["", "", *(metric.heading for metric in metrics)]]
        case = ""
        for row, named in sorted(self._rows.items(), key=self._order):
            if row.part != part:
                continue
            cells = [_cell(metric, named.get(metric.name)) for metric in metrics]
            lines.append([row.case if row.case != case else "", row.side, *cells])
            case = row.case
        widths = [max(len(line[n]) for line in lines) for n in range(len(lines[0]))]
        text = [
            "  ".join(
                cell.ljust(width) if n < 2 else cell.rjust(width)
                for n, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([title, *text])


def _cell(metric: Metric, values: Sequence[float] | None) -> str:
    if not values:
        return "-"

    def of(value: float) -> str:
        return f"{value * metric.factor:,.{metric.digits}f}"

    if len(values) == 1:
        return of(values[0])
    return f"{of(statistics.median(values))} ({of(min(values))} to {of(max(values))})"


def quantile(values: Sequence[float], share: float) -> float:
    """Returns the value below which this share of the values lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def as_json(figures: Figures, rounds: int, settings: Mapping[str, Any]) -> str:
    """Returns the JSON of a comparison."""
    load = round(os.getloadavg()[0], 1)
    found = {"cpus": os.cpu_count(), "load": load, "rounds": rounds, **settings}
    return json.dumps({**found, "rows": figures.rows()}, indent=2)
