"""E9: restarts with other numbers of ranks give the same batches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paper import audit, transforms
from paper.experiment import Chart, Context, Experiment, Outcome
from paper.programs import WrongError
from paper.streams import Site, Trainer

SLICES, WORLDS = 16, (16, 8, 4, 8)


def run(ctx: Context, out: Outcome) -> None:
    """Trains once without a stop, and once in parts with other numbers of ranks."""
    part = ctx.of(10, 100, 1_000)
    given = ctx.sub("elastic") / "input"
    transforms.make(given, "plain", (part * len(WORLDS) + 200) * SLICES, 1)
    with Site(ctx) as site:
        # Without a bound: the second job reads nothing until the first run is over.
        site.producer(0, 1, given, "plain", workers=1, slices=SLICES, lead=0)
        whole, restarted = Path(site.folder / "whole.json"), Path(site.folder / "parts.json")
        _, socket = site.consumer("a", job="whole", arena=64, prefetch=32)
        _, other = site.consumer("b", job="parts", arena=64, prefetch=32)
        steps = part * len(WORLDS)
        straight = _train(ctx, site, socket, "whole", whole, steps, WORLDS[0])
        found: list[dict[str, Any]] = []
        for number, world in enumerate(WORLDS, 1):
            some = _train(ctx, site, other, "parts", restarted, part * number, world)
            row = {"ranks": world, "steps": len(some), "first_batch_s": some[0]["wait"]}
            out.rows.append({**row, "samples": sum(len(step["ids"]) for step in some)})
            found += some
    audit.exactly_once("BatchWeave, restarted with other ranks", found, 1)
    if _contents(straight) != _contents(found):
        raise WrongError("a run with other numbers of ranks had other batches; please report it")
    out.notes.append(
        f"{steps} steps: the same samples in the same order, with and without restarts"
    )
    points = [(float(n), float(row["ranks"])) for n, row in enumerate(out.rows)]
    parts = [f"{row['steps']} steps" for row in out.rows]
    out.charts.append(
        Chart("ranks of each part", "part", "ranks", [("ranks", points)], "bar", parts)
    )


def _train(
    ctx: Context, site: Site, socket: Path, job: str, state: Path, steps: int, world: int
) -> list[dict[str, Any]]:
    words = ["batchweave", "--place", str(socket), "--job", job, "--steps", str(steps)]
    words += ["--state", str(state), "--world", str(world), "--here", str(world)]
    made = Trainer(ctx, site.folder, [*words, "--attempt", f"{steps:032x}"], name=job)
    return made.trained(300, site)


def _contents(steps: list[dict[str, Any]]) -> dict[int, Any]:
    learned: dict[int, Mapping[str, Any]] = audit.history(steps)
    return {step: learned[step]["ids"] for step in sorted(learned)}


EXPERIMENT = Experiment(
    "e9", "elastic restarts", "restarts with other numbers of ranks, with the same batches", run
)
