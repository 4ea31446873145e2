"""What an experiment gets and returns, and how systems take turns."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from paper.programs import note

SCALES = ("tiny", "quick", "full")
"""Tiny is for the harness's own tests; quick takes ten minutes on two cores in all."""


class Context(NamedTuple):
    """The conditions of a run."""

    scale: str
    folder: Path
    bin_dir: Path
    env: Mapping[str, str]
    python: str
    packages: Mapping[str, str]
    """Of `python`: the packages that it has of those that the harness uses."""
    kafka: Path | None = None
    java: str = "java"

    def of(self, tiny: Any, quick: Any, full: Any) -> Any:
        """Returns the value for this scale."""
        return {"tiny": tiny, "quick": quick, "full": full}[self.scale]

    @property
    def rounds(self) -> int:
        """Returns how many times each system is measured."""
        return int(self.of(1, 1, 3))

    @property
    def batchweave(self) -> str:
        """Returns the path of the program."""
        return str(self.bin_dir / "batchweave")

    def sub(self, name: str) -> Path:
        """Makes a new folder."""
        for number in range(10_000):
            path = self.folder / f"{name}-{number}"
            if not path.exists():
                path.mkdir(parents=True)
                return path
        raise AssertionError(name)


class Goal(NamedTuple):
    """A figure that is bounded by an issue or a claim."""

    text: str
    value: float | None
    bound: str
    met: bool | None
    """None: it could not be measured here."""


class Chart(NamedTuple):
    """A panel of a picture."""

    title: str
    x: str
    y: str
    series: Sequence[tuple[str, Sequence[tuple[float, float]]]]
    kind: str = "line"
    """line, or bar, whose x is a number of `names`."""
    names: Sequence[str] = ()
    marks: Sequence[tuple[float, str]] = ()
    log_x: bool = False
    log_y: bool = False


@dataclass
class Outcome:
    """The result of an experiment."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    missing: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def lacks(self, system: str, remedy: str) -> None:
        """Names a system that is not measured here, and how it would be."""
        note(f"  not measured: {system}: {remedy}")
        self.missing.append({"system": system, "remedy": remedy})

    def at_least(self, text: str, value: float, bound: float) -> None:
        """Adds a goal with a lower bound."""
        self.goals.append(Goal(text, value, f"at least {bound:g}", value >= bound))

    def at_most(self, text: str, value: float, bound: float) -> None:
        """Adds a goal with an upper bound."""
        self.goals.append(Goal(text, value, f"at most {bound:g}", value <= bound))


class Experiment(NamedTuple):
    """An experiment of the paper."""

    name: str
    title: str
    claim: str
    """What the paper's abstract, or a digest of it, says."""
    run: Callable[[Context, Outcome], None]


Measure = Callable[[], Mapping[str, Any]]


def in_turns(rounds: int, sides: Mapping[str, Measure]) -> dict[str, dict[str, Any]]:
    """Measures all sides in each round, every second one backwards.

    Returns the median of each figure, of words the last one, the values of each
    round, and the load of the machine before each.
    """
    found: dict[str, list[Mapping[str, Any]]] = {name: [] for name in sides}
    loads: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in list(sides)[:: -1 if number % 2 else 1]:
            note(f"  round {number + 1} of {rounds}: {name}")
            loads[name].append(round(os.getloadavg()[0], 2))
            found[name].append(sides[name]())
    return {name: {**_medians(all_), "load": loads[name]} for name, all_ in found.items() if all_}


def _medians(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    medians: dict[str, Any] = {}
    for key, last in found[-1].items():
        values = [each.get(key) for each in found]
        number = all(type(value) in (int, float) for value in values)
        medians[key] = statistics.median(values) if number else last  # type: ignore[type-var]
    numbers = {key for key, value in medians.items() if type(value) in (int, float)}
    medians["rounds"] = [{key: each[key] for key in numbers} for each in found]
    return medians


def bars(
    title: str, x: str, y: str, found: Mapping[str, Mapping[str, Any]], figures: Mapping[str, str]
) -> Chart:
    """Returns a bar for each system of each of these figures, by their names in the picture."""
    series = [
        (name, [(float(n), float(values[key])) for n, key in enumerate(figures)])
        for name, values in found.items()
    ]
    return Chart(title, x, y, series, "bar", tuple(figures.values()))


def quantile(values: Sequence[float], share: float) -> float:
    """Returns the value below which this share of the values lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
