"""Overlays for larger clusters: what must agree in each, and what it is for."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest
from manifests import OVERLAYS, templates
from test_kubernetes import pods, resources

# Python 3.10 has no tomllib; there pytest brings the same.
TOML: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


def named(kind: str, name: str, overlay: str) -> dict[str, Any]:
    found = [
        one for one in resources(overlay) if one["kind"] == kind and one["metadata"]["name"] == name
    ]
    assert len(found) == 1, (kind, name, overlay)
    return found[0]


def configuration(overlay: str, name: str) -> dict[str, Any]:
    maps = [one["data"] for one in resources(overlay) if one["kind"] == "ConfigMap"]
    found: dict[str, Any] = TOML.loads(next(data[name] for data in maps if name in data))
    return found


def container(pod: dict[str, Any], name: str) -> dict[str, Any]:
    both = pod["containers"] + pod.get("initContainers", [])
    return next(one for one in both if one["name"] == name)


def options(trainer: dict[str, Any]) -> dict[str, str]:
    words = [*trainer["command"], *trainer["args"]]
    return dict(word.split("=", 1) for word in words if word.startswith("--"))


@pytest.mark.parametrize("overlay", ["gpu", "guaranteed"])
def test_the_numbers_of_nodes_and_of_ranks_agree(overlay: str) -> None:
    job = named("Job", "training", overlay)["spec"]
    pod = job["template"]["spec"]
    trainer = container(pod, "trainer")
    given = options(trainer)
    assert int(given["--nnodes"]) == job["completions"] == job["parallelism"]
    assert given["--nproc-per-node"] == trainer["resources"]["limits"]["nvidia.com/gpu"]
    arena = configuration(overlay, "consumer.toml")["arena"]
    assert arena["ranks"] == int(given["--nproc-per-node"])
    # A default of 64 MiB would fail NCCL at its start.
    shared = next(one for one in pod["volumes"] if one["name"] == "shm")["emptyDir"]
    assert shared["medium"] == "Memory"
    assert {"name": "shm", "mountPath": "/dev/shm"} in trainer["volumeMounts"]


@pytest.mark.parametrize("overlay", ["gpu", "guaranteed"])
def test_the_ranks_meet_at_the_first_pod_by_its_name(overlay: str) -> None:
    service = named("Service", "training", overlay)["spec"]
    job = named("Job", "training", overlay)
    template = job["spec"]["template"]
    host, port = options(container(template["spec"], "trainer"))["--rdzv-endpoint"].split(":")
    # An Indexed Job gives its pods the names JOB-INDEX, and a subdomain makes them names of hosts.
    assert host == f"{job['metadata']['name']}-0.{template['spec']['subdomain']}"
    assert template["spec"]["subdomain"] == "training"
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"]
    assert service["selector"].items() <= template["metadata"]["labels"].items()
    assert int(port) in [one["port"] for one in service["ports"]]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_drained_node_is_no_failure_of_a_job(overlay: str) -> None:
    for one in resources(overlay):
        jobs = [job["template"]["spec"] for job in one.get("spec", {}).get("replicatedJobs", [])]
        for job in jobs or [one["spec"]] if one["kind"] in ("Job", "JobSet") else []:
            rules = job["podFailurePolicy"]["rules"]
            ignored = [rule for rule in rules if rule["action"] == "Ignore"]
            assert ignored[0]["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
            assert job["template"]["spec"]["restartPolicy"] == "Never"


def test_each_container_of_a_guaranteed_pod_has_its_limits_as_requests() -> None:
    pod = named("Job", "training", "guaranteed")["spec"]["template"]["spec"]
    for one in pod["containers"] + pod["initContainers"]:
        amounts = one["resources"]
        assert amounts["requests"] == amounts["limits"], one["name"]
        assert {"cpu", "memory"} <= set(amounts["limits"]), one["name"]
        assert int(amounts["limits"]["cpu"]) > 0, "whole cores, for the static policy"


def test_a_lane_of_a_lost_daemon_is_taken_over() -> None:
    given = configuration("lanes", "producer.toml")
    assert given["stream"]["order"] == "lanes"
    assert given["producer"]["lanes"] == given["stream"]["producers"]
    assert given["producer"]["takeover_after"] != "0s"
    deployment = named("Deployment", "lanes", "lanes")["spec"]
    assert deployment["replicas"] == 2
    kinds = {(one["kind"], one["metadata"]["name"]) for one in resources("lanes")}
    assert ("StatefulSet", "tokens") not in kinds
    budget = named("PodDisruptionBudget", "lanes", "lanes")["spec"]["selector"]["matchLabels"]
    assert budget.items() <= deployment["template"]["metadata"]["labels"].items()


def test_a_second_stream_shares_nothing_with_the_first() -> None:
    first, second = resources("aws"), resources("second")
    names = [
        {(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in each}
        for each in (first, second)
    ]
    assert not names[0] & names[1]
    assert len(first) == len(second)
    for name in ("producer.toml", "consumer.toml"):
        here, there = (configuration(each, name)["store"]["url"] for each in ("aws", "second"))
        assert here != there
    labels = [
        one["spec"]["template"]["metadata"]["labels"]
        for one in second
        if "template" in one.get("spec", {})
    ]
    assert len(labels) == 2
    assert all(one["batchweave.io/stream"] == "second" for one in labels)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_one_root_in_all_places(overlay: str) -> None:
    maps = [one["data"] for one in resources(overlay) if one["kind"] == "ConfigMap"]
    (root,) = {data["BATCHWEAVE_STORE"] for data in maps if "BATCHWEAVE_STORE" in data}
    for name in ("producer.toml", "consumer.toml"):
        assert configuration(overlay, name)["store"]["url"] == root
    assert configuration(overlay, "consumer.toml")["job"]["name"] == "training"
    verify = dict(pods(overlay))["verify"]["containers"][0]["command"]
    assert verify[-1] == "training"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_drain_goes_on_with_many_producers_at_a_time(overlay: str) -> None:
    """A budget in percent needs a StatefulSet or a Deployment, so the Job has none."""
    kinds = {one["kind"] for one in resources(overlay)}
    budgets = [one for one in resources(overlay) if one["kind"] == "PodDisruptionBudget"]
    assert len(budgets) == (1 if kinds & {"StatefulSet"} or overlay == "lanes" else 0)
    for one in budgets:
        percent = one["spec"]["maxUnavailable"]
        assert int(str(percent).removesuffix("%")) >= 25
        assert str(percent).endswith("%")


@pytest.mark.parametrize("overlay", [one for one in OVERLAYS if one not in ("dev", "aks")])
def test_pods_reach_the_credentials_of_their_node(overlay: str) -> None:
    name, address = ("to-pod-identity", "169.254.170.23/32")
    if overlay == "gke":
        name, address = ("to-metadata-server", "169.254.169.254/32")
    policy = named("NetworkPolicy", name, overlay)["spec"]
    rule = policy["egress"][0]
    assert {"ipBlock": {"cidr": address}} in rule["to"]
    assert rule["ports"] == [{"port": 80, "protocol": "TCP"}]
    labels = policy["podSelector"]["matchLabels"]
    for one in resources(overlay):
        for template in templates(one):
            assert labels.items() <= template["metadata"]["labels"].items(), one["metadata"]


@pytest.mark.parametrize(
    ("overlay", "annotation"),
    [
        ("aws", "eks.amazonaws.com/role-arn"),
        ("gke", "iam.gke.io/gcp-service-account"),
        ("aks", "azure.workload.identity/client-id"),
    ],
)
def test_each_role_has_an_identity_of_its_own(overlay: str, annotation: str) -> None:
    accounts = [one for one in resources(overlay) if one["kind"] == "ServiceAccount"]
    identities = {one["metadata"]["annotations"][annotation] for one in accounts}
    assert len(identities) == len(accounts) == 4


def test_the_webhook_of_aks_finds_the_pods() -> None:
    for one in resources("aks"):
        for template in templates(one):
            assert template["metadata"]["labels"]["azure.workload.identity/use"] == "true"
