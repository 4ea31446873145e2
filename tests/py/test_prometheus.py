"""Metrics, rules and alerts, with Prometheus's own tools; test_dashboard.py has the dashboard."""

from __future__ import annotations

import re

from dashboard import queries
from prometheus_server import RULES, promtool
from site_of_daemons import ROOT, Site, get


def documented() -> dict[str, str]:
    """Return the metrics of docs/metrics.md by type; its own tests compare them with the code."""
    page = (ROOT / "docs" / "metrics.md").read_text()
    return dict(re.findall(r"^\| `(batchweave_\w+)` \| (\w+) \|", page, re.MULTILINE))


def test_alerts_say_what_to_do() -> None:
    for alert in (RULES / "alerts.yml").read_text().split("- alert: ")[1:]:
        assert re.search(r"severity: (page|ticket|info)\n", alert), alert
        assert re.search(r'description: ".{40,}"', alert), alert


def test_rules_and_alerts_are_valid_and_their_tests_pass() -> None:
    promtool("check", "rules", str(RULES / "rules.yml"), str(RULES / "alerts.yml"))
    promtool("check", "config", str(RULES / "prometheus.yml"))
    promtool("test", "rules", str(RULES / "alerts_test.yml"))


def test_every_alert_has_a_test_that_fires_and_one_that_is_silent() -> None:
    alerts = re.findall(r"- alert: (\w+)", (RULES / "alerts.yml").read_text())
    tests = (RULES / "alerts_test.yml").read_text()
    assert len(alerts) > 10
    for alert in alerts:
        assert f"name: {alert} fires" in tests, alert
        assert f"name: {alert} is silent" in tests, alert


def test_each_metric_that_is_used_exists() -> None:
    kinds = documented()
    assert len(kinds) > 40
    known = set(kinds)
    for name, kind in kinds.items():
        if kind == "histogram":
            known |= {name + end for end in ("_bucket", "_sum", "_count")}
    recorded = set(re.findall(r"record: (\S+)", (RULES / "rules.yml").read_text()))
    texts = {path.name: path.read_text() for path in (RULES / "rules.yml", RULES / "alerts.yml")}
    texts["alerts_test.yml"] = (RULES / "alerts_test.yml").read_text()
    texts["dashboard"] = "\n".join(query.expr for query in queries())
    texts["metrics.md"] = (ROOT / "docs" / "metrics.md").read_text()
    for name, text in texts.items():
        used = set(re.findall(r"(?<![:\w])batchweave_(?:producer|consumer|reclaim)_\w+", text))
        assert used <= known, f"{name} names what no daemon has: {sorted(used - known)}"
        rules = set(re.findall(r"\b\w+:batchweave_\w+:\w+", text))
        assert rules <= recorded, f"{name} names rules that are none: {sorted(rules - recorded)}"


def test_every_label_is_explained() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    table = re.findall(r"^\| `batchweave_\w+` \| \w+ \| (.*?) \|", page, re.MULTILINE)
    labels = set(re.findall(r"`(\w+)`", " ".join(table)))
    explained = set(re.findall(r"^- `(\w+)`: ", page, re.MULTILINE))
    assert labels
    assert labels <= explained, labels - explained


def test_what_the_daemons_serve_passes_check_metrics(site: Site) -> None:
    for port in (site.producer_port, site.consumer_port):
        status, text = get(port, "/metrics")
        assert status == 200
        promtool("check", "metrics", stdin=text)
