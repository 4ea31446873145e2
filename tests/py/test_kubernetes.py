"""The Kubernetes manifests: valid by the real schemas, built from their sources, and consistent."""

from __future__ import annotations

import functools
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from manifests import BUILT, KUBERNETES, MONITORING, OVERLAYS, templates

# Kinds of controllers: `make live-kubernetes` checks them by their definitions.
CUSTOM = {"JobSet", "TrainJob", "TrainingRuntime"}
# The kinds whose pods serve metrics.
JOBS = {"StatefulSet", "Deployment", "Job", *CUSTOM}
# The container that has the ranks: TrainJob has a name of its own for it.
TRAINER = {"trainer", "node"}
# Those of C, where PyYAML was built with them, are ten times as fast.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def built(overlay: str) -> Path:
    return BUILT / f"{overlay}.yaml"


@functools.cache
def parsed(text: str) -> bytes:
    """Parse documents of YAML, which takes long, once; pickled, so that each caller has its own."""
    return pickle.dumps(list(yaml.load_all(text, LOADER)))


def documents(text: str) -> list[Any]:
    found: list[Any] = pickle.loads(parsed(text))
    return found


def resources(overlay: str) -> list[dict[str, Any]]:
    return [one for one in documents(built(overlay).read_text()) if one]


def pods(overlay: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the name and spec of every pod template."""
    return [
        ("training" if one["kind"] == "TrainingRuntime" else one["metadata"]["name"], pod["spec"])
        for one in resources(overlay)
        for pod in templates(one)
    ]


def checkable(overlay: str) -> list[dict[str, Any]]:
    """Return the resources of known kinds, and the pods of other kinds as those of Jobs."""
    known = [one for one in resources(overlay) if one["kind"] not in CUSTOM]
    for one in resources(overlay):
        if one["kind"] in CUSTOM:
            known += [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "metadata": one["metadata"],
                    "spec": {"template": {**template, "spec": {**template["spec"]}}},
                }
                for template in templates(one)
            ]
    return known


def test_valid_by_strict_schemas(tmp_path: Path) -> None:
    """All overlays by one process, which names the file of an error."""
    paths, seen = [], set()
    for overlay in OVERLAYS:
        known = [yaml.dump(one, Dumper=DUMPER) for one in checkable(overlay)]
        assert len(known) > 10, overlay
        # Most are in several overlays: each is checked once.
        fresh = [one for one in known if one not in seen]
        seen.update(fresh)
        assert fresh, overlay
        paths.append(tmp_path / f"{overlay}.yaml")
        paths[-1].write_text("---\n".join(fresh))
    beside = Path(sys.executable).parent
    tool = shutil.which("kubernetes-validate", path=f"{beside}:{os.environ['PATH']}")
    assert tool, "kubernetes-validate is missing: pip install kubernetes-validate"
    result = subprocess.run(
        [tool, "--strict", *map(str, paths)], text=True, capture_output=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "WARN" not in result.stdout + result.stderr, result.stdout + result.stderr
    for path in paths:
        assert str(path) in result.stdout + result.stderr, path


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_is_committed_is_what_the_sources_build(overlay: str) -> None:
    kubectl = shutil.which("kubectl")
    if not kubectl:
        # Not an error of the checkout: Debian has no version of this age. The rest is checked.
        print("NOT COMPARED: kubectl is not installed")
        return
    folder = KUBERNETES / "overlays" / overlay
    result = subprocess.run(
        [kubectl, "kustomize", str(folder)], text=True, capture_output=True, check=True
    )
    assert documents(result.stdout) == documents(built(overlay).read_text()), "run: make manifests"


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
            if container["name"] not in TRAINER:
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
    arena = re.search(r'(?m)^bytes = "(\d+)GiB"$', config)
    assert arena
    limits = consumer["resources"]["limits"]
    if "hugepages-2Mi" in limits:
        assert limits["hugepages-2Mi"] == f"{2 * int(arena[1])}Gi"
        assert 'huge_pages = "reserved"' in config
    else:
        assert limits["memory"] == f"{2 * int(arena[1]) * 1024 + 256}Mi"
    folders = [mount["mountPath"] for mount in consumer["volumeMounts"]]
    assert "/run/batchweave" in folders


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_scraped_pods_carry_the_labels_that_the_dashboard_selects_by(overlay: str) -> None:
    monitor = yaml.safe_load((MONITORING / "podmonitor.yaml").read_text())
    rules = monitor["spec"]["podMetricsEndpoints"][0]["relabelings"]
    sources = {rule["targetLabel"]: rule["sourceLabels"][0] for rule in rules}
    assert set(sources) == {"stream", "run"}
    pods = [pod for one in resources(overlay) if one["kind"] in JOBS for pod in templates(one)]
    scraped = [one for one in pods if one["metadata"]["labels"].get("batchweave.io/store")]
    assert len(scraped) == 2
    for pod in scraped:
        labels = pod["metadata"]["labels"]
        assert "batchweave.io/store" in labels, "the PodMonitor selects by it"
        named = {"__meta_kubernetes_pod_label_" + re.sub(r"[./-]", "_", name) for name in labels}
        assert sources["stream"] in named


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_configurations_hold_no_placeholder_but_the_pod_s_name(overlay: str) -> None:
    for one in resources(overlay):
        for name, text in one.get("data", {}).items():
            if name.endswith(".toml"):
                assert "STORE_URL" not in text
                assert '"SOURCE"' not in text


# The fields that the Pod Security Standards' level "restricted" asks for or forbids, as of
# Kubernetes 1.31: https://kubernetes.io/docs/concepts/security/pod-security-standards/
RESTRICTED_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}


def beyond_restricted(pod: dict[str, Any]) -> list[str]:
    """Return the fields that a `restricted` namespace would refuse in this pod."""
    wrong = [name for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name)]
    of_pod = pod.get("securityContext", {})
    if of_pod.get("sysctls"):
        wrong.append("sysctls")
    for volume in pod.get("volumes", []):
        wrong += [f"volume {kind}" for kind in set(volume) - {"name"} - RESTRICTED_VOLUMES]
    for container in pod["containers"] + pod.get("initContainers", []):
        context = {**of_pod, **container.get("securityContext", {})}
        capabilities = context.get("capabilities", {})
        rules = {
            "privileged": not context.get("privileged"),
            "privilege escalation": context.get("allowPrivilegeEscalation") is False,
            "root": context.get("runAsNonRoot") is True and context.get("runAsUser") != 0,
            "seccomp": context.get("seccompProfile", {}).get("type")
            in {"RuntimeDefault", "Localhost"},
            "capabilities": "ALL" in capabilities.get("drop", [])
            and set(capabilities.get("add", [])) <= {"NET_BIND_SERVICE"},
            "proc mount": context.get("procMount", "Default") == "Default",
            "host ports": not any(port.get("hostPort") for port in container.get("ports", [])),
        }
        wrong += [f"{container['name']}: {rule}" for rule, held in rules.items() if not held]
    return wrong


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_pod_is_restricted(overlay: str) -> None:
    found = dict(pods(overlay))
    assert {"training", "reclaim"} <= set(found)
    assert len(found) > 2
    assert {
        name: finding for name, pod in found.items() if (finding := beyond_restricted(pod))
    } == {}
    for one in resources(overlay):
        if one["kind"] == "Namespace":
            labels = one["metadata"]["labels"]
            assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"hostNetwork": True}, "hostNetwork"),
        ({"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}, "volume hostPath"),
        ({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}, "consumer: root"),
        ({"securityContext": {"runAsNonRoot": True}}, "trainer: seccomp"),
    ],
)
def test_a_pod_beyond_restricted_is_found(change: dict[str, Any], finding: str) -> None:
    pod = {**dict(pods("dev"))["training"], **change}
    assert finding in beyond_restricted(pod)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"privileged": True}, "privileged"),
        ({"allowPrivilegeEscalation": True}, "privilege escalation"),
        ({"runAsUser": 0}, "root"),
        ({"capabilities": {"drop": []}}, "capabilities"),
        ({"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}, "capabilities"),
    ],
)
def test_a_container_beyond_restricted_is_found(change: dict[str, Any], finding: str) -> None:
    pod = dict(pods("dev"))["training"]
    trainer = pod["containers"][0]
    changed = {**trainer, "securityContext": {**trainer["securityContext"], **change}}
    assert f"trainer: {finding}" in beyond_restricted({**pod, "containers": [changed]})


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_ranks_reach_each_other_and_no_other_pod_reaches_them(overlay: str) -> None:
    """Policies add up: traffic that one of them allows is allowed."""
    found = [one for one in resources(overlay) if one["kind"] == "NetworkPolicy"]
    ranks = {"app.kubernetes.io/name": "batchweave-training"}
    policies = {one["metadata"]["name"]: one["spec"] for one in found}
    between = policies["ranks"]
    assert between["podSelector"] == {"matchLabels": ranks}
    assert between["ingress"] == [{"from": [{"podSelector": {"matchLabels": ranks}}]}]
    assert between["egress"] == [{"to": [{"podSelector": {"matchLabels": ranks}}]}]
    labels = [
        pod["metadata"]["labels"]
        for one in resources(overlay)
        if one["kind"] in {"Job", *CUSTOM} and one["metadata"]["name"] in ("training", "batchweave")
        for pod in templates(one)
    ]
    assert labels
    assert all(ranks.items() <= one.items() for one in labels)
    ways_in = [one for spec in policies.values() for one in spec.get("ingress", [])]
    # The scraper from its namespace, and the clients of the dev overlay's store.
    assert all("from" in way for way in ways_in)
