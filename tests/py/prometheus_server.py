"""Prometheus's own programs: promtool, and a server that scrapes the daemons of a site."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
from pathlib import Path
from typing import Any

import pytest
from site_of_daemons import ROOT, Site, free_port, get

RULES = ROOT / "deploy" / "prometheus"


def tool(name: str) -> str:
    """Return the path of one of the programs."""
    found = shutil.which(name)
    if not found:
        pytest.skip(f"NOT CHECKED: {name} is not installed (apt-get install prometheus)")
    return found


def promtool(*arguments: str, stdin: str | None = None) -> str:
    """Run promtool, which must succeed, and return its output."""
    result = subprocess.run(
        [tool("promtool"), *arguments], input=stdin, text=True, capture_output=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


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
        """Return the series of an expression now; none while the server starts."""
        status, text = get(self.port, "/api/v1/query?query=" + urllib.parse.quote(expression))
        if status != 200:
            assert status in (0, 503), text
            return []
        return list(json.loads(text)["data"]["result"])

    def label_values(self, metric: str, label: str) -> list[str]:
        """Return the values of a label over the series of a selector."""
        words = urllib.parse.urlencode({"match[]": metric})
        status, text = get(self.port, f"/api/v1/label/{label}/values?{words}")
        assert status == 200, text
        return list(json.loads(text)["data"])
