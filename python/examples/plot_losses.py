"""Draws loss curves of ddp_gpt.py as an SVG: `plot_losses.py OUT.svg NAME=losses.jsonl ...`.

A step that a restart trained again is drawn with its last value; each change of process is marked.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 320, 50, 40, 30
COLOURS = ("#1f77b4", "#d62728", "#2ca02c")


def read(path: Path) -> tuple[dict[int, float], list[int]]:
    """Returns losses by step, and the steps at which another process continued."""
    losses: dict[int, float] = {}
    restarts: list[int] = []
    before: Any = None
    for text in path.read_text().splitlines():
        line = json.loads(text)
        losses[line["step"]] = line["loss"]
        if before is not None and line["pid"] != before:
            restarts.append(line["step"])
        before = line["pid"]
    return losses, restarts


def draw(runs: dict[str, Path]) -> str:
    """Returns the picture as SVG."""
    found = {name: read(path) for name, path in runs.items()}
    values = [v for losses, _ in found.values() for v in losses.values()]
    last = max(step for losses, _ in found.values() for step in losses)
    low, high = min(values), max(values)

    def at(step: float, loss: float) -> str:
        x = LEFT + (WIDTH - LEFT - 20) * step / max(1, last)
        y = TOP + (HEIGHT - TOP - BOTTOM) * (high - loss) / max(1e-9, high - low)
        return f"{x:.1f},{y:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">step (0 to {last})</text>',
        f'<text x="4" y="{TOP + 4}">{high:.2f}</text>',
        f'<text x="4" y="{HEIGHT - BOTTOM}">{low:.2f}</text>',
    ]
    for number, (name, (losses, restarts)) in enumerate(found.items()):
        colour = COLOURS[number % len(COLOURS)]
        line = " ".join(at(step, loss) for step, loss in sorted(losses.items()))
        # The first line is wide, so that both are visible where they agree.
        width = 6 if number == 0 else 1.5
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="{width}" '
            f'stroke-opacity="{0.35 if number == 0 else 1}"/>'
        )
        for step in restarts:
            x = at(step, low).split(",")[0]
            parts.append(
                f'<line x1="{x}" x2="{x}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="{colour}" '
                'stroke-dasharray="4 3"/>'
            )
        parts.append(
            f'<text x="{WIDTH - 20}" y="{TOP + 16 * number}" text-anchor="end" '
            f'fill="{colour}">{name}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    pairs = [argument.partition("=") for argument in sys.argv[2:]]
    Path(sys.argv[1]).write_text(draw({name: Path(path) for name, _, path in pairs}))
