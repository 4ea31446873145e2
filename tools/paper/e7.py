"""E7: the time from a kill to the next batch, over the length of the stream."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any

from paper import loaders, transforms
from paper.experiment import Chart, Context, Experiment, Outcome, in_turns
from paper.programs import FailedError, until
from paper.streams import Site, Trainer
from paper.supervised import Run

COMPUTE, LEAD, LONG_LEAD, SAVE_EVERY = 0.02, 64, 4096, 50
_RUN_SECONDS, _SPARE = 1800.0, 12_000
LOADER_BATCH, LOADER_WORKERS = 8, 2
KINDS = ("producer", "consumer", "trainer")


def run(ctx: Context, out: Outcome) -> None:
    """Measures each history."""
    histories = ctx.of([20], [100, 10_000], [100, 10_000, 1_000_000])
    cases = [("folder", "none", steps) for steps in histories]
    cases += ctx.of([], [("dev-s3", "s3-standard", 100)], [("dev-s3", "s3-standard", 10_000)])
    points: dict[str, list[tuple[float, float]]] = {}
    for store, latency, steps in cases:
        name = store if latency == "none" else f"{store}, {latency}"
        side = f"BatchWeave, {name}, {steps:,} steps"
        found = in_turns(ctx.rounds, {side: lambda s=store, n=latency, h=steps: ours(ctx, s, n, h)})  # type: ignore[misc]
        out.rows.append({"system": f"BatchWeave, {name}", "history_steps": steps, **found[side]})
        worst = max(found[side][f"{kind}_s"] for kind in KINDS)
        out.at_most(f"recovery, {name}, {steps:,} steps of history, s", worst, 5.0)
        if latency == "none":
            for kind in KINDS:
                series = points.setdefault(f"BatchWeave, {kind} killed", [])
                series.append((steps, found[side][f"{kind}_s"]))
    _rivals(ctx, out, ctx.of(histories, histories[-1:], histories), points)
    out.charts.append(
        Chart(
            "from SIGKILL to the next batch",
            "steps of history",
            "s",
            list(points.items()),
            log_x=True,
            log_y=True,
        )
    )


def _head(site: Site) -> int:
    found = site.status()
    return -1 if found is None else int(found["head"]["steps"])


def ours(ctx: Context, store: str, latency: str, history: int) -> Mapping[str, Any]:
    """Makes a stream of this length, and kills each process near its head."""
    given = ctx.sub("history") / "input"
    transforms.make(given, "plain", history + _SPARE, 1)
    with Site(ctx, store=store, latency=latency) as site, Run(ctx, site.folder, site) as running:
        lead = min(LONG_LEAD, max(LEAD, history))
        first = site.producer(0, 1, given, "plain", workers=1, lead=lead, slices=1)
        running.add("consumer", lambda: site.consumer(arena=64, prefetch=32)[0])
        words = ["batchweave", "--place", str(site.folder / "s"), "--save-every"]
        state = ["--state", str(running.state), "--steps"]
        quick = [*words, str(1 << 30), *state]
        Trainer(ctx, site.folder, [*quick, str(history)]).trained(_RUN_SECONDS, site)
        first.kill()
        head = _head(site)
        if head > history:
            Trainer(ctx, site.folder, [*quick, str(head)]).trained(_RUN_SECONDS, site)
        more: dict[str, Any] = {"workers": 1, "lead": LEAD, "slices": 1}
        running.add("p0", lambda: site.producer(0, 1, given, "plain", **more))
        last = [*words, str(SAVE_EVERY), "--compute", f"{COMPUTE:g}", "--steps", str(head + _SPARE)]
        running.trainer(last)
        running.until_step(head + 2 * SAVE_EVERY, 120)
        found = {"producer_s": _commit_after(running, site)}
        for kind in KINDS[1:]:
            running.go(2.0)
            found[f"{kind}_s"] = _batch_after(running, kind)
        return {**found, "steps": head}


def _commit_after(running: Run, site: Site) -> float:
    """Kills the producer, and returns the time until its next commit."""
    moment = running.kill("p0")
    before = _head(site)

    def committed() -> bool:
        running.poll()
        return _head(site) > before

    until(committed, 120, "no commit after the kill of the producer")
    return time.monotonic() - moment


def _batch_after(running: Run, kind: str) -> float:
    """Kills a process, and returns the longest time without a step afterwards."""
    moment = running.kill(kind)
    running.go(1.0)
    wait = 0.5
    while wait < 60:
        running.go(wait)
        after = [float(step["at"]) for step in running.steps() if step["at"] > moment]
        if len(after) > 20:
            ends = [moment, *after]
            return max(b - a for a, b in itertools.pairwise(ends[:40]))
    raise FailedError(f"no steps after the kill of the {kind}: {running.running[kind].log}")


def _rivals(
    ctx: Context, out: Outcome, histories: list[int], points: dict[str, list[tuple[float, float]]]
) -> None:
    """Measures trainers of a DataLoader, and of MosaicML's, from their start to the next batch."""
    ways = [("dataloader", "iterate", "DataLoader, skips by loading (free samples)")]
    ways.append(("dataloader", "skip", "DataLoader, the sampler skips"))
    ways.append(("mosaic", "skip", "MosaicML StreamingDataset, its state"))
    for way, resume, name in ways:
        if not loaders.available(ctx, out, way, name):
            continue
        for history in histories:
            try:
                found = _resumed(ctx, way, resume, history)
            except FailedError as why:
                out.lacks(name, f"it failed: {str(why)[-200:]}")
                break
            out.rows.append({"system": name, "history_steps": history, "trainer_s": found})
            points.setdefault(name, []).append((history, found))


def _resumed(ctx: Context, way: str, resume: str, history: int) -> float:
    """Returns the time from the start of a trainer with a checkpoint to its first step."""
    folder, given = ctx.sub("resumed"), ctx.sub("rows") / "input"
    transforms.make(given, "ids", (history + 50) * LOADER_BATCH, 16)
    place, words = given, ["--workload", "ids", "--batch", str(LOADER_BATCH)]
    words += ["--workers", str(LOADER_WORKERS), "--save-every", "10", "--resume", resume]
    words += ["--state", str(folder / "state.json"), "--steps"]
    if way == "mosaic":
        place = folder / "shards"
        loaders.convert(ctx, way, place, given)
        first = [way, "--place", str(place), *words, "10"]
        Trainer(ctx, folder, first).trained(_RUN_SECONDS)
        loaders.advance(folder / "state.json", history, LOADER_BATCH)
    else:
        (folder / "state.json").write_text(f'{{"step": {history - 1}, "data": null}}')
    began = time.monotonic()
    made = Trainer(ctx, folder, [way, "--place", str(place), *words, str(history + 5)])
    steps = made.trained(_RUN_SECONDS)
    first_ids = set(steps[0]["ids"])
    if min(first_ids) != history * LOADER_BATCH:
        raise FailedError(f"{way} resumed at sample {min(first_ids)}, not {history * LOADER_BATCH}")
    return float(steps[0]["at"]) - began


EXPERIMENT = Experiment(
    "e7",
    "recovery over the length of the history",
    "deterministic recovery from any checkpoint, without reading what was trained",
    run,
)
