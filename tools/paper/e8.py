"""E8: stored bytes of a long run."""

from __future__ import annotations

from paper.experiment import Chart, Context, Experiment, Outcome
from paper.programs import lines


def run(ctx: Context, out: Outcome) -> None:
    """Runs `batchweave bench reclaim`."""
    steps, interval = ctx.of((1_000, 100), (2_000, 200), (20_000, 500))
    words = [ctx.batchweave, "bench", "reclaim", "--json", "--steps", str(steps)]
    words += ["--interval", str(interval), "--ahead", "100"]
    found = lines(words, ctx.env, ctx.folder / "reclaim.log")[0]
    out.rows.append(
        {
            "steps": steps,
            "uploaded_mb": found["uploaded_bytes"] / 1e6,
            "most_stored_mb": found["most_bytes"] / 1e6,
            "allowed_mb": found["bound_bytes"] / 1e6,
            "requests_per_tgb": found["reclaimer"]["requests_per_tgb"],
        }
    )
    ratio = found["most_bytes"] / found["bound_bytes"]
    out.at_most("most stored bytes over checkpoints kept plus the lead", ratio, 1.0)
    samples = found["samples"]
    every = max(1, len(samples) // 400)
    stored = [(s["step"], s["stored_bytes"] / 1e6) for s in samples[::every]]
    last = samples[-1]["step"]
    without = [(0.0, 0.0), (last, found["uploaded_bytes"] / 1e6)]
    allowed = [(x, found["bound_bytes"] / 1e6) for x in (0.0, last)]
    series = [("stored", stored), ("allowed", allowed), ("without reclamation", without)]
    out.charts.append(Chart("two checkpoints kept", "step", "MB", series))


EXPERIMENT = Experiment(
    "e8", "bounded storage", "reclamation is tied to distributed checkpoints: bounded storage", run
)
