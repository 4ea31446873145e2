"""Which samples a training run has lost or seen twice, and summaries of its steps."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from paper.experiment import quantile
from paper.programs import WrongError

Steps = Sequence[Mapping[str, Any]]


class Counts(NamedTuple):
    """Samples of the model's history: those that are missing, and those that are there twice."""

    lost: int
    doubled: int
    repeated_steps: int
    """Steps that were trained again after a restart, from the checkpoint."""


def history(steps: Steps) -> dict[int, Mapping[str, Any]]:
    """Returns what the final model has learned: of a repeated step, the last time."""
    return {int(each["step"]): each for each in steps}


def count(steps: Steps, sources: int) -> Counts:
    """Counts a record's samples. Each of `sources` gives its ids in order: p, p + sources, ..."""
    learned = history(steps)
    seen = Counter(number for each in learned.values() for number in each["ids"])
    lost = 0
    for source in range(sources):
        mine = [number for number in seen if number % sources == source]
        lost += (max(mine) - source) // sources + 1 - len(mine) if mine else 0
    lost = max(lost, max(learned, default=-1) + 1 - len(learned))
    doubled = sum(times - 1 for times in seen.values())
    return Counts(lost, doubled, len(steps) - len(learned))


def exactly_once(system: str, steps: Steps, sources: int) -> Counts:
    """Fails aloud unless each sample was learned once."""
    found = count(steps, sources)
    if found.lost or found.doubled:
        raise WrongError(
            f"{system} has lost {found.lost} and doubled {found.doubled} samples in "
            f"{len(steps)} steps: this contradicts exactly-once delivery; please report it"
        )
    return found


def summary(steps: Steps, batch: int, warm: int) -> dict[str, Any]:
    """Returns the figures of the steps after the first `warm` ones."""
    some = list(steps)[min(warm, len(steps) // 2) :]
    seconds = [float(each["seconds"]) for each in some]
    waits = [float(each["wait"]) for each in some]
    return {
        "step_mean_ms": 1e3 * statistics.mean(seconds),
        "step_p50_ms": 1e3 * statistics.median(seconds),
        "step_p99_ms": 1e3 * quantile(seconds, 0.99),
        "waiting_percent": 100 * sum(waits) / sum(seconds),
        "next_p50_ms": 1e3 * statistics.median(waits),
        "next_p99_ms": 1e3 * quantile(waits, 0.99),
        "samples_per_s": batch * len(some) / sum(seconds),
        "mb_per_step": statistics.mean(float(each["bytes"]) for each in some) / 1e6,
        "steps": len(some),
    }


def lost_seconds(steps: Steps, usual: float) -> float:
    """Returns the seconds beyond the usual ones of each step that took more than twice that."""
    return sum(s - usual for each in steps if (s := float(each["seconds"])) > 2 * usual)


def merged(records: Iterable[Steps]) -> list[dict[str, Any]]:
    """Returns one record of the ranks of several processes: of each step all ids."""
    by_step: dict[int, dict[str, Any]] = {}
    for steps in records:
        for each in steps:
            known = by_step.setdefault(int(each["step"]), {**each, "ids": []})
            known["ids"] = [*known["ids"], *each["ids"]]
    return [by_step[step] for step in sorted(by_step)]
