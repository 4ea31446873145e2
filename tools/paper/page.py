"""The page of a run: each experiment's claim, goals, figures, picture, and what is missing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paper.svg import short

_HIDDEN = {"rounds", "load"}


def _cell(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, (int, float)):
        return f"{value:,}" if isinstance(value, int) else short(value)
    return str(value).replace("|", "\\|")


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    names: list[str] = []
    for row in rows:
        names += [
            name
            for name, value in row.items()
            if name not in names and name not in _HIDDEN and not isinstance(value, (list, dict))
        ]
    if not names:
        return []
    out = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    out += ["| " + " | ".join(_cell(row.get(name, "")) for name in names) + " |" for row in rows]
    return [*out, ""]


def _section(found: Mapping[str, Any]) -> list[str]:
    out = [f"## {found['experiment'].upper()}: {found['title']}", ""]
    out += [f"Claim: {found['claim']}", ""]
    if found["failed"]:
        out += [f"**FAILED**: {found['failed']}", ""]
    for goal in found["goals"]:
        verdict = {True: "met", False: "**missed**", None: "**not measured**"}[goal["met"]]
        value = "-" if goal["value"] is None else short(goal["value"])
        out.append(f"- {goal['text']}: {value} ({goal['bound']}): {verdict}")
    out += [f"- Not measured here: **{m['system']}**: {m['remedy']}" for m in found["missing"]]
    out += [f"- {note}" for note in found["notes"]]
    out += ["", *_table(found["rows"])]
    if found["charts"]:
        out += [f"![{found['title']}]({found['experiment']}.svg)", ""]
    machine = found["machine"]
    load = " to ".join(map(str, machine["load"]))
    file = f"{found['experiment']}.json"
    return [*out, f"{found['seconds']:.0f} s, load {load}: [{file}]({file})", ""]


def write(folder: Path, found: Sequence[Mapping[str, Any]]) -> None:
    """Writes the page of all experiments in the folder."""
    out = ["# The paper's experiments on this machine", ""]
    if found:
        machine, versions = found[0]["machine"], found[0]["versions"]
        out += [f"{machine['cpus']} cores, {machine['system']}; scale `{found[0]['scale']}`."]
        out += ["Versions: " + ", ".join(f"{k} {v}" for k, v in versions.items() if v) + ".", ""]
    goals = [goal for each in found for goal in each["goals"]]
    met = sum(goal["met"] is True for goal in goals)
    failed = [each["experiment"].upper() for each in found if each["failed"]]
    out += [f"{met} of {len(goals)} goals met; failed experiments: {', '.join(failed) or 'none'}."]
    out.append("")
    for each in found:
        out += _section(each)
    (folder / "index.md").write_text("\n".join(out))


def read(folder: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the results that lie in a folder, in order."""
    files = [folder / f"{name}.json" for name in names]
    return [json.loads(path.read_text()) for path in files if path.exists()]
