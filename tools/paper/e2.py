"""E2: commits over the size of the manifest, and DAC without its parts, in the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paper.experiment import Chart, Context, Experiment, Outcome
from paper.programs import lines, note

POLICIES = {
    "DAC, records of changes": (),
    "interval (AIMD), a rewritten manifest": ("--policy", "interval", "--manifest", "rewrite"),
    "interval (AIMD), chunks": ("--policy", "interval", "--manifest", "rewrite-chunked"),
    "interval (AIMD), records of changes": ("--policy", "interval"),
    "naive retry, a rewritten manifest": ("--policy", "naive", "--manifest", "rewrite"),
}
ABLATIONS = {
    "DAC": (),
    "without copies in keys": ("--short-keys",),
    "without a leader that stays": ("--policy", "dac-unled"),
    "without intents (backs off)": ("--policy", "plain"),
    "without anything (naive)": ("--policy", "naive"),
}
RATE = 2


def run(ctx: Context, out: Outcome) -> None:
    """Simulates both tables."""
    out.notes.append(
        "virtual time; interval (AIMD) is after the paper's description, not its code: each "
        "producer adapts its own commit interval"
    )
    histories = ctx.of([100], [100, 10_000, 1_000_000], [100, 1_000, 10_000, 100_000, 1_000_000])
    seconds = ctx.of(3, 10, 60)
    rates: dict[str, list[tuple[float, float]]] = {}
    tails: dict[str, list[tuple[float, float]]] = {}
    producers = 16
    for name, words in POLICIES.items():
        for history in histories:
            more = [*words, "--history", str(history)]
            found = simulated(ctx, more, [producers], seconds)[0]
            offered = producers * RATE
            visible = offered * float(found["visible_over_offered"])
            row = {"system": name, "producers": producers, "manifest_entries": history}
            out.rows.append({**row, "visible_per_s": visible, "p99_ms": found["p99_ms"]})
            rates.setdefault(name, []).append((history, visible))
            if found["p99_ms"]:
                tails.setdefault(name, []).append((history, float(found["p99_ms"])))
    x, title = "entries in the manifest", f"{producers} producers, {RATE} entries/s each"
    out.charts.append(Chart(title, x, "visible entries/s", list(rates.items()), log_x=True))
    chart = Chart("their latency", x, "p99, ms", list(tails.items()), log_x=True, log_y=True)
    out.charts.append(chart)
    if len(histories) > 1:
        mine = [rate for _, rate in rates["DAC, records of changes"]]
        out.at_least(
            "DAC, throughput at the largest manifest over the smallest", mine[-1] / mine[0], 0.95
        )
    counts = ctx.of([4], [1, 16, 64], [1, 4, 16, 64, 256])
    series: dict[str, list[tuple[float, float]]] = {}
    for name, words in ABLATIONS.items():
        for found in simulated(ctx, words, counts, seconds):
            row = {"system": name, "producers": found["producers"], "p50_ms": found["p50_ms"]}
            requests = found["requests_per_entry"]
            out.rows.append({**row, "p99_ms": found["p99_ms"], "requests_per_entry": requests})
            series.setdefault(name, []).append((found["producers"], float(found["p99_ms"] or 0)))
    out.charts.append(
        Chart("DAC without its parts", "producers", "p99, ms", list(series.items()), log_y=True)
    )


def simulated(
    ctx: Context, words: Sequence[str], producers: Sequence[int], seconds: int
) -> list[dict[str, Any]]:
    """Runs the simulator."""
    note(f"  batchweave-sim commit {' '.join(words)}")
    command = [str(ctx.bin_dir / "batchweave-sim"), "commit", "--json", "--rate", str(RATE)]
    command += ["--producers", ",".join(map(str, producers)), "--seconds", str(seconds), *words]
    return lines(command, ctx.env, ctx.folder / "sim.log")


EXPERIMENT = Experiment(
    "e2",
    "commits over the size of the manifest",
    "decentralized adaptive commit keeps ingestion stable as the manifest grows",
    run,
)
