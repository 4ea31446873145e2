"""The Kubernetes manifests: valid by the real schemas, built from their sources, and consistent."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from site_of_daemons import ROOT

KUBERNETES = ROOT / "deploy" / "kubernetes"
OVERLAYS = ["dev", "aws"]
# The schemas of Kubernetes do not have it: it belongs to the Prometheus operator.
CUSTOM = {"PodMonitor"}


def built(overlay: str) -> Path:
    return KUBERNETES / "built" / f"{overlay}.yaml"


def resources(overlay: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(built(overlay).read_text()) if one]


def pods(overlay: str) -> list[tuple[str, dict[str, Any]]]:
    """Name and spec of every pod template."""
    found = []
    for resource in resources(overlay):
        spec = resource.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            found.append((resource["metadata"]["name"], spec["template"]["spec"]))
    return found


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_valid_by_strict_schemas(overlay: str, tmp_path: Path) -> None:
    known = [one for one in resources(overlay) if one["kind"] not in CUSTOM]
    assert len(known) > 10
    path = tmp_path / "built.yaml"
    path.write_text(yaml.safe_dump_all(known))
    beside = Path(sys.executable).parent
    tool = shutil.which("kubernetes-validate", path=f"{beside}:{os.environ['PATH']}")
    assert tool, "kubernetes-validate is missing: pip install kubernetes-validate"
    result = subprocess.run(
        [tool, "--strict", str(path)], text=True, capture_output=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "WARN" not in result.stdout + result.stderr, result.stdout + result.stderr


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_is_committed_is_what_the_sources_build(overlay: str) -> None:
    kubectl = shutil.which("kubectl")
    if not kubectl:
        # No fault of the checkout: Debian has none of this age. The rest is checked all the same.
        print("NOT COMPARED: kubectl is not installed")
        return
    folder = KUBERNETES / "overlays" / overlay
    result = subprocess.run(
        [kubectl, "kustomize", str(folder)], text=True, capture_output=True, check=True
    )
    ours = list(yaml.safe_load_all(result.stdout))
    message = f"run: kubectl kustomize {folder.relative_to(ROOT)} > deploy/kubernetes/built/..."
    assert ours == list(yaml.safe_load_all(built(overlay).read_text())), message


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_container_is_confined_and_bounded(overlay: str) -> None:
    count = 0
    for name, pod in pods(overlay):
        assert pod["securityContext"]["runAsNonRoot"], name
        assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault", name
        for container in pod["containers"] + pod.get("initContainers", []):
            count += 1
            context = container["securityContext"]
            assert not context["allowPrivilegeEscalation"], (name, container["name"])
            assert context["capabilities"]["drop"] == ["ALL"], (name, container["name"])
            if container["name"] != "trainer":
                assert context["readOnlyRootFilesystem"], (name, container["name"])
            assert "memory" in container["resources"]["limits"], (name, container["name"])
    assert count > 4


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_consumer_is_a_native_sidecar_with_room_for_two_arenas(overlay: str) -> None:
    job = dict(pods(overlay))["training"]
    consumer = job["initContainers"][0]
    assert consumer["restartPolicy"] == "Always"
    maps = [one for one in resources(overlay) if one["kind"] == "ConfigMap"]
    config = next(one["data"]["consumer.toml"] for one in maps if "consumer.toml" in one["data"])
    assert 'bytes = "1GiB"' in config
    assert consumer["resources"]["limits"]["memory"] == f"{2 * 1024 + 256}Mi"
    folders = [mount["mountPath"] for mount in consumer["volumeMounts"]]
    assert "/run/batchweave" in folders


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_configurations_hold_no_placeholder_but_the_pod_s_name(overlay: str) -> None:
    for one in resources(overlay):
        for name, text in one.get("data", {}).items():
            if name.endswith(".toml"):
                assert "STORE_URL" not in text
                assert '"SOURCE"' not in text
