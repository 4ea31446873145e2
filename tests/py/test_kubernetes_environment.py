"""What a pod gets and how it ends: ranks, probes, exit codes, kinds of objects.

A real cluster has shown each of these: `make live-kubernetes`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from batchweave._launch import rank_and_world
from manifests import GENERATED, MONITORING, OVERLAYS
from site_of_daemons import BINARIES, ROOT
from test_kubernetes import pods, resources

# Under systemd a daemon that does not answer is killed after this time.
UNIT = (ROOT / "deploy/systemd/batchweave-consumer.service").read_text()
# API groups that every cluster has.
GROUPS = {"v1", "apps/v1", "batch/v1", "policy/v1", "networking.k8s.io/v1"}


def trainers(overlay: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the spec of each Job that has ranks, with the container of a rank."""
    found = []
    for one in resources(overlay):
        jobs = [job["template"]["spec"] for job in one.get("spec", {}).get("replicatedJobs", [])]
        for job in jobs or [one.get("spec", {})] if one["kind"] in ("Job", "JobSet") else []:
            containers = job["template"]["spec"]["containers"]
            found += [(job, one) for one in containers if one["name"] == "trainer"]
    return found


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_rank_learns_its_number_and_that_of_all(overlay: str) -> None:
    """The loop of README.md, by the client itself, in the environment of each pod of the Job."""
    found = trainers(overlay)
    # Kubeflow sets RANK and WORLD_SIZE by torchrun alone.
    assert found or overlay == "trainjob"
    for job, container in found:
        assert job["completionMode"] == "Indexed"
        given = {one["name"]: one.get("value", "") for one in container["env"]}
        ranks = [
            rank_and_world(None, None, given | {"JOB_COMPLETION_INDEX": str(index)})
            for index in range(job["completions"])
        ]
        assert ranks == [(index, job["completions"]) for index in range(job["completions"])]
        assert job["parallelism"] == job["completions"], "the ranks run at the same time"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_frozen_daemon_costs_as_much_as_under_systemd(overlay: str) -> None:
    """SIGTERM does not reach it, so the pod's grace period would only prolong the wait."""
    watchdog = re.search(r"(?m)^WatchdogSec=(\d+)s$", UNIT)
    assert watchdog
    count = 0
    for name, pod in pods(overlay):
        for container in pod["containers"] + pod.get("initContainers", []):
            if not (probe := container.get("livenessProbe")) or "httpGet" not in probe:
                continue
            count += 1
            failed = probe["periodSeconds"] * probe["failureThreshold"] + probe["timeoutSeconds"]
            killed = failed + probe["terminationGracePeriodSeconds"]
            assert killed <= int(watchdog[1]) + 3, (name, container["name"])
            # A daemon that is merely late is not killed.
            assert failed >= 25, (name, container["name"])
    assert count == 2


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_producers_change_without_the_training(overlay: str) -> None:
    """The pods of a Job can't be changed: `kubectl apply` ends with "field is immutable"."""
    named: dict[str, set[str]] = {}
    for name, pod in pods(overlay):
        maps = [
            volume["configMap"]["name"]
            for volume in pod.get("volumes", [])
            if "configMap" in volume
        ]
        named[name] = set(maps)
    training = named.pop("training")
    assert len(training) == 1
    assert all(not training & others for others in named.values())


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_needs_no_kind_that_a_cluster_lacks(overlay: str) -> None:
    """`kubectl apply -k` ends with an error for an unknown kind, after it has applied the rest."""
    own = {"jobset": {"jobset.x-k8s.io/v1alpha2"}, "trainjob": {"trainer.kubeflow.org/v1alpha1"}}
    found = {one["apiVersion"] for one in resources(overlay)}
    assert found <= GROUPS | own.get(overlay, set())


def test_generated_manifests_are_current() -> None:
    for path, (source, objects) in GENERATED.items():
        if source == "the overlay gpu" and not shutil.which("kubectl"):
            print("NOT COMPARED: kubectl is not installed")
            continue
        assert list(yaml.safe_load_all(path.read_text())) == objects(), "run: make manifests"


def test_monitoring_has_the_rules_and_the_dashboard_of_prometheus_and_grafana() -> None:
    listed = yaml.safe_load((MONITORING / "kustomization.yaml").read_text())["resources"]
    assert listed == ["podmonitor.yaml", "rules.yaml", "../../grafana"]
    dashboard = yaml.safe_load((ROOT / "deploy/grafana/kustomization.yaml").read_text())
    assert dashboard["configMapGenerator"][0]["files"] == ["batchweave.json"]
    # The largest object that etcd takes, and `kubectl apply` notes the content a second time.
    assert (ROOT / "deploy/grafana/batchweave.json").stat().st_size < 256 * 1024


def commands(overlay: str) -> list[tuple[str, dict[str, Any]]]:
    """Return every container that runs a program of ours, with its pod's name."""
    return [
        (name, container)
        for name, pod in pods(overlay)
        for container in pod["containers"] + pod.get("initContainers", [])
        if container["image"].rsplit("/", 1)[-1].startswith("batchweave")
    ]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_command_line_is_one_that_its_program_takes(overlay: str, tmp_path: Path) -> None:
    """A wrong option would end with 2; without configuration and store they end with these."""
    ends = {"batchweave-producer": 64, "batchweave-consumer": 64, "reclaim": 69, "verify": 69}
    seen = set()
    for name, container in commands(overlay):
        program, *words = container["command"]
        if program.startswith("/bin/busybox") or "dev-s3" in words:
            continue
        words = [word.replace("/etc/batchweave", str(tmp_path)) for word in words]
        words = [word.replace("/run/config", str(tmp_path)) for word in words]
        words = [word.replace("$(BATCHWEAVE_STORE)", "s3://bucket/stream") for word in words]
        kind = next((one for one in ends if one in (program, *words)), "")
        assert kind, (name, words)
        nowhere = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_REGION": "us-east-1"}
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "PATH": os.environ["PATH"]}
        ended = subprocess.run(
            [BINARIES / program, *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env=nowhere | keys,
        )
        assert ended.returncode == ends[kind], (name, words, ended.stderr)
        seen.add(kind)
    assert {"reclaim", "verify", "batchweave-consumer"} <= seen
