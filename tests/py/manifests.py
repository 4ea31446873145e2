"""The generated manifests: `python tests/py/manifests.py` writes them, with kubectl.

`built/` has the output of each overlay. The rules of the Prometheus operator are those of
deploy/prometheus.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from site_of_daemons import ROOT

KUBERNETES = ROOT / "deploy" / "kubernetes"
BUILT = KUBERNETES / "built"
OVERLAYS = sorted(one.name for one in (KUBERNETES / "overlays").iterdir())
MONITORING = KUBERNETES / "monitoring"
RULES = MONITORING / "rules.yaml"


def prometheus_rule() -> dict[str, Any]:
    """Return the rules and alerts of deploy/prometheus as the operator's object."""
    files = [ROOT / "deploy" / "prometheus" / name for name in ("rules.yml", "alerts.yml")]
    groups = [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "batchweave"},
        "spec": {"groups": groups},
    }


def build(folder: Path) -> str:
    """Return what kustomize makes of a folder."""
    command = ["kubectl", "kustomize", str(folder)]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def main() -> None:
    head = "# Made of deploy/prometheus by `make manifests`.\n"
    RULES.write_text(head + yaml.safe_dump(prometheus_rule(), sort_keys=False, width=1000))
    for overlay in OVERLAYS:
        (BUILT / f"{overlay}.yaml").write_text(build(KUBERNETES / "overlays" / overlay))


if __name__ == "__main__":
    main()
