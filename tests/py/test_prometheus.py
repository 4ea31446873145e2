"""Metrics, rules, alerts and the dashboard, with Prometheus's own tools and a real server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard import DASHBOARD, Series, draw, series
from site_of_daemons import ROOT, Site, eventually, free_port, get

RULES = ROOT / "deploy" / "prometheus"
PICTURES = os.environ.get("BATCHWEAVE_PICTURES")


def tool(name: str) -> str:
    found = shutil.which(name)
    if not found:
        pytest.skip(f"NOT CHECKED: {name} is not installed (apt-get install prometheus)")
    return found


def promtool(*arguments: str, stdin: str | None = None) -> str:
    result = subprocess.run(
        [tool("promtool"), *arguments], input=stdin, text=True, capture_output=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def queries() -> list[str]:
    """Return every expression of the dashboard."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


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
    texts["dashboard"] = "\n".join(queries())
    texts["metrics.md"] = (ROOT / "docs" / "metrics.md").read_text()
    for name, text in texts.items():
        used = set(re.findall(r"(?<![:\w])batchweave_(?:producer|consumer|reclaim)_\w+", text))
        assert used <= known, f"{name} names what no daemon has: {sorted(used - known)}"
        rules = set(re.findall(r"\b\w+:batchweave_\w+:\w+", text))
        assert rules <= recorded, f"{name} names rules that are none: {sorted(rules - recorded)}"


def test_every_label_is_explained() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    table = re.findall(r"^\| `batchweave_\w+` \| \w+ \| \w* \| (.*?) \|", page, re.MULTILINE)
    labels = set(re.findall(r"`(\w+)`", " ".join(table)))
    explained = set(re.findall(r"^\| `(\w+)` \| ", page, re.MULTILINE))
    assert labels
    assert labels <= explained, labels - explained


def test_what_the_daemons_serve_passes_check_metrics(site: Site) -> None:
    for port in (site.producer_port, site.consumer_port):
        status, text = get(port, "/metrics")
        assert status == 200
        promtool("check", "metrics", stdin=text)


class Server:
    """Prometheus, which scrapes the site each second with the shipped rules."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.port = free_port()
        shipped = (RULES / "prometheus.yml").read_text()
        config = (
            shipped.replace("15s", "1s")
            .replace("127.0.0.1:9464", f"127.0.0.1:{site.producer_port}")
            .replace("127.0.0.1:9465", f"127.0.0.1:{site.consumer_port}")
        )
        (folder / "prometheus.yml").write_text(config)
        for name in ("rules.yml", "alerts.yml"):
            shutil.copy(RULES / name, folder / name)
        with (folder / "prometheus.log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    tool("prometheus"),
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=log,
            )

    def query(self, expression: str) -> list[Any]:
        status, text = get(self.port, "/api/v1/query?query=" + urllib.parse.quote(expression))
        if status != 200:
            assert status in (0, 503), text
            return []
        return list(json.loads(text)["data"]["result"])


@pytest.fixture(scope="module")
def server(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(site, tmp_path_factory.mktemp("server"))
    yield server
    server.process.kill()
    server.process.wait()


def test_each_query_of_the_dashboard_answers(site: Site, server: Server) -> None:
    expressions = queries()
    assert len(expressions) > 15
    left = set(expressions)

    def answered() -> bool:
        left.difference_update([one for one in list(left) if server.query(one)])
        return not left

    try:
        eventually("data for every query", answered)
    except AssertionError:
        pytest.fail(f"no data for {sorted(left)}\n{site.log('batchweave-consumer')}")


def test_the_dashboard_can_be_drawn(server: Server) -> None:
    """With BATCHWEAVE_PICTURES the picture is kept."""
    eventually("delivered tokens", lambda: bool(server.query("dp_rank:batchweave_ahead:seconds")))
    end = time.time()
    span = (end - 60, end)

    def ask(expression: str) -> list[Series]:
        words = {"query": expression, "start": span[0], "end": span[1], "step": 1}
        status, text = get(server.port, "/api/v1/query_range?" + urllib.parse.urlencode(words))
        assert status == 200, text
        return series(text)

    drawn = draw(ask, span, [(end - 5, "now")])
    panels = [one for one in json.loads(DASHBOARD.read_text())["panels"] if one["type"] != "row"]
    assert drawn.count('class="panel"') == len(panels)
    # There may be no failed requests and no lost commits.
    assert drawn.count("<polyline") >= len(panels) - 3
    if PICTURES:
        (Path(PICTURES) / "dashboard-healthy.svg").write_text(drawn)


def test_no_alert_is_raised_by_a_healthy_site(site: Site, server: Server) -> None:
    eventually("scrapes", lambda: bool(server.query('up{job="batchweave-consumer"} == 1')))
    raised = server.query('ALERTS{alertstate="firing"}')
    assert not raised, raised
    assert site.delivered > 0
