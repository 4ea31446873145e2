"""Reads deploy/grafana/batchweave.json: panels, queries, values of variables."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from site_of_daemons import ROOT

DASHBOARD = ROOT / "deploy" / "grafana" / "batchweave.json"
VARIABLES = ("stream", "job", "node", "rank")


@dataclass(frozen=True)
class Query:
    """One expression, with the panel, annotation or variable that it belongs to."""

    panel: str
    expr: str


def read() -> dict[str, Any]:
    """Return the whole dashboard."""
    return dict(json.loads(DASHBOARD.read_text()))


def panels() -> list[dict[str, Any]]:
    """Return all panels that are not headings of rows."""
    return [one for one in read()["panels"] if one["type"] != "row"]


def queries() -> list[Query]:
    """Return the expressions of all panels and annotations."""
    whole = read()
    of_panels = [Query(p["title"], t["expr"]) for p in panels() for t in p["targets"]]
    return of_panels + [Query(one["name"], one["expr"]) for one in whole["annotations"]["list"]]


def filled(expr: str, window: str = "1m", **chosen: str) -> str:
    """Return an expression as Grafana asks it; a variable without a choice is `.*`, as for All."""
    for name in VARIABLES:
        expr = expr.replace(f"${name}", chosen.get(name, ".*"))
    expr = expr.replace("$__rate_interval", window)
    left = re.findall(r"\$\w+", expr)
    assert not left, f"{left} in {expr}"
    return expr
