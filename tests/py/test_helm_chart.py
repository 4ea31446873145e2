"""The Helm chart renders what kustomize makes of the overlay aws."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from chart import CHART, TEMPLATES, read_values, render, templates
from manifests import KUBERNETES
from test_kubernetes import beyond_restricted, resources

AWS = KUBERNETES / "overlays" / "aws"


def values_of_aws() -> dict[str, Any]:
    """Return the values that a user of the overlay would set."""
    values = read_values()
    kustomization = yaml.safe_load((AWS / "kustomization.yaml").read_text())
    images = {one["name"]: f"{one['newName']}:{one['newTag']}" for one in kustomization["images"]}
    values["image"], values["trainer"]["image"] = images["batchweave"], images["trainer"]
    for daemon in ("producer", "consumer"):
        values["configuration"][daemon] = (AWS / f"{daemon}.toml").read_text()
    for one in resources("aws"):
        if one["kind"] == "ServiceAccount":
            name = one["metadata"]["name"].removeprefix("batchweave-")
            values["accounts"][name] = one["metadata"]["annotations"]
    return values


def comparable(objects: list[dict[str, Any]]) -> dict[tuple[str, str], Any]:
    """Return objects by kind and name, without what is meant to differ."""
    found = {}
    for one in objects:
        # kustomize ends the name of a ConfigMap with a digest; the chart has it in an annotation.
        text = re.sub(
            r"\b(batchweave-producer|batchweave-consumer|store)-[a-z0-9]{10}\b",
            r"\1",
            json.dumps(one),
        )
        text = re.sub(r'"checksum/configuration": "[0-9a-f]{64}"', "", text)
        plain = json.loads(
            text.replace('"annotations": {}, ', "").replace(', "annotations": {}', "")
        )
        found[plain["kind"], plain["metadata"]["name"]] = plain
    return found


def test_the_templates_are_made_of_the_base() -> None:
    there = {path.stem: path.read_text() for path in TEMPLATES.iterdir()}
    assert there == templates(), "run: make manifests"


def test_the_chart_renders_what_kustomize_makes() -> None:
    ours = comparable(render(values_of_aws(), "batchweave"))
    theirs = comparable(resources("aws"))
    # `helm install --create-namespace` makes it; docs name the label.
    del theirs["Namespace", "batchweave"]
    assert set(ours) == set(theirs)
    for key, one in theirs.items():
        assert ours[key] == one, key


def test_other_values_reach_their_places() -> None:
    values = read_values()
    values["trainer"]["nodes"], values["producers"]["replicas"] = 4, 64
    values["stream"] = "second"
    made = {(one["kind"], one["metadata"]["name"]): one for one in render(values, "second")}
    job = made["Job", "training"]["spec"]
    assert (job["completions"], job["parallelism"]) == (4, 4)
    trainer = job["template"]["spec"]["containers"][0]
    assert {"name": "BATCHWEAVE_WORLD_SIZE", "value": "4"} in trainer["env"]
    assert made["StatefulSet", "tokens"]["spec"]["replicas"] == 64
    assert job["template"]["metadata"]["labels"]["batchweave.io/stream"] == "second"
    assert {one["metadata"]["namespace"] for one in made.values()} == {"second"}
    assert beyond_restricted(job["template"]["spec"]) == []


def test_a_changed_configuration_rolls_the_producers() -> None:
    values = read_values()

    def digest() -> str:
        objects = render(values, "batchweave")
        made = next(one for one in objects if one["kind"] == "StatefulSet")
        annotations = made["spec"]["template"]["metadata"]["annotations"]
        return str(annotations["checksum/configuration"])

    before = digest()
    values["configuration"]["producer"] += "\n[ahead]\nmax_steps = 100\n"
    assert digest() != before


@pytest.mark.parametrize("daemon", ["producer", "consumer"])
def test_the_default_configurations_match_the_overlay(daemon: str) -> None:
    lines = [line for line in (AWS / f"{daemon}.toml").read_text().splitlines() if line]
    own = read_values()["configuration"][daemon].splitlines()
    kept = [line for line in lines if "Every key" not in line]
    assert [line for line in own if line] == kept


def test_helm_renders_the_same(tmp_path: Path) -> None:
    """Debian has no Helm; where there is one, it is asked."""
    if not (helm := shutil.which("helm")):
        print("NOT COMPARED: helm is not installed")
        return
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values_of_aws()))
    command = [helm, "template", "main", str(CHART), "--namespace", "batchweave", "-f", str(file)]
    # A Helm that was compiled without flags takes itself for an older cluster.
    command += ["--kube-version", "1.34.0"]
    done = subprocess.run(command, text=True, capture_output=True, check=True)
    theirs = [one for one in yaml.safe_load_all(done.stdout) if one]
    for one in theirs:
        one["metadata"].setdefault("namespace", "batchweave")
    assert comparable(theirs) == comparable(render(values_of_aws(), "batchweave"))
