"""The generated manifests: `python tests/py/manifests.py` writes them, with kubectl.

`built/` has the output of each overlay. The rules of the Prometheus operator are those of
deploy/prometheus; JobSet and TrainJob have the pods of the overlay gpu.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
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


def templates(resource: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the pod templates of any object: of a JobSet those of its Jobs."""
    spec = resource.get("spec", {})
    if resource["kind"] == "TrainingRuntime":
        spec = spec["template"]["spec"]
    jobs = [job["template"]["spec"] for job in spec.get("replicatedJobs", [])]
    jobs = jobs or [spec.get("jobTemplate", {}).get("spec", spec)]
    return [job["template"] for job in jobs if "template" in job]


def training_on_gpus() -> dict[str, Any]:
    """Return the spec of the Job of the overlay gpu, with names as the sources have them."""
    text = build(KUBERNETES / "overlays" / "gpu")
    text = re.sub(r"\b(batchweave-producer|batchweave-consumer|store)-[a-z0-9]{10}\b", r"\1", text)
    text = re.sub(r"image: \S*/(batchweave|trainer):\S+", r"image: \1", text)
    found: dict[str, Any] = next(
        one["spec"]
        for one in yaml.safe_load_all(text)
        if one["kind"] == "Job" and one["metadata"]["name"] == "training"
    )
    return found


def jobset() -> list[dict[str, Any]]:
    """Return the training as a JobSet, which restarts all pods together."""
    job = training_on_gpus()
    pod = job["template"]["spec"]
    # The JobSet makes the Service; its pods have longer names.
    del pod["subdomain"]
    trainer = pod["containers"][0]
    trainer["args"] = [
        word.replace("training-0.training", "training-node-0-0.training")
        for word in trainer["args"]
    ]
    spec = {
        "network": {"enableDNSHostnames": True, "subdomain": "training"},
        "failurePolicy": {"maxRestarts": 100},
        "replicatedJobs": [
            {"name": "node", "replicas": 1, "template": {"spec": {**job, "backoffLimit": 0}}}
        ],
    }
    return [
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "training"},
            "spec": spec,
        }
    ]


def trainjob() -> list[dict[str, Any]]:
    """Return the training for Kubeflow: a runtime with the sidecar, and a TrainJob that uses it."""
    job = training_on_gpus()
    template = job["template"]
    del template["spec"]["subdomain"]
    trainer = template["spec"]["containers"][0]
    # Kubeflow sets PET_NNODES and others, which torchrun reads, in the container of this name.
    trainer["name"] = "node"
    del trainer["args"]
    trainer["command"] = ["torchrun", "--max-restarts=100", "train.py"]
    trainer["env"] = [one for one in trainer["env"] if one["name"] == "BATCHWEAVE_SOCKET"]
    nodes, ranks = job["completions"], int(trainer["resources"]["limits"]["nvidia.com/gpu"])
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    kept = {name: job[name] for name in ("podFailurePolicy", "podReplacementPolicy", "template")}
    runtime = {
        "mlPolicy": {"numNodes": nodes, "torch": {"numProcPerNode": ranks}},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {"name": "node", "template": {"metadata": {"labels": labels}, "spec": kept}}
                ]
            }
        },
    }
    reference = {
        "apiGroup": "trainer.kubeflow.org",
        "kind": "TrainingRuntime",
        "name": "batchweave",
    }
    group = "trainer.kubeflow.org/v1alpha1"
    return [
        {
            "apiVersion": group,
            "kind": "TrainingRuntime",
            "metadata": {"name": "batchweave"},
            "spec": runtime,
        },
        {
            "apiVersion": group,
            "kind": "TrainJob",
            "metadata": {"name": "training"},
            "spec": {"runtimeRef": reference},
        },
    ]


def rules() -> list[dict[str, Any]]:
    """Return the objects of RULES."""
    return [prometheus_rule()]


# Each file with the name of its source, and the function that makes its objects.
GENERATED: dict[Path, tuple[str, Callable[[], list[dict[str, Any]]]]] = {
    RULES: ("deploy/prometheus", rules),
    KUBERNETES / "overlays/jobset/jobset.yaml": ("the overlay gpu", jobset),
    KUBERNETES / "overlays/trainjob/trainjob.yaml": ("the overlay gpu", trainjob),
}


def main() -> None:
    for path, (source, objects) in GENERATED.items():
        text = yaml.safe_dump_all(objects(), sort_keys=False, width=1000)
        path.write_text(f"# Made of {source} by `make manifests`.\n{text}")
    for overlay in OVERLAYS:
        (BUILT / f"{overlay}.yaml").write_text(build(KUBERNETES / "overlays" / overlay))


if __name__ == "__main__":
    main()
