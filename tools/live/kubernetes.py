"""Follows deploy/README.md on Kubernetes in a real cluster: `tools/live/kubernetes.py BINARIES`.

etcd, the control plane, and two nodes with kubelet and containerd run in namespaces of this
machine, from registries and without a network. A training Job reads meanwhile, from before the
first fault until the proof. Exit codes: 0 all steps passed, 1 one failed, 2 this machine cannot
run a cluster.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cluster import Cluster
from machine import CannotRunError, StepError
from page import ROOT, Page
from protocol import Protocol, ended_by
from rollouts import SECTIONS, Rollouts
from workload import Workload

PROGRAMS = ["batchweave", "batchweave-lab", "batchweave-producer", "batchweave-consumer"]


def follow(cluster: Cluster, binaries: Path, page: Page, protocol: Protocol) -> None:
    """Brings the cluster up and follows the page."""
    protocol.step("programs", cluster.programs.obtain)
    cluster.begin()
    protocol.step("control plane", cluster.control_plane)
    protocol.step("nodes", cluster.nodes)
    work = Workload(cluster, binaries)
    protocol.step("images", work.furnish)
    for name, action in Rollouts(cluster, work, page).steps():
        protocol.step(name, action)
    if left := page.left():
        raise StepError(f"commands of the page that no step has run: {'; '.join(left)}")


def main(binaries: Path) -> int:
    """Brings a cluster up, follows the page, and prints a summary."""
    page = Page(ROOT / "deploy" / "README.md", SECTIONS)

    def run(protocol: Protocol) -> None:
        if missing := [name for name in PROGRAMS if not (binaries / name).exists()]:
            raise CannotRunError(f"{binaries / missing[0]} is missing: make build")
        cluster = Cluster.prepare()
        try:
            follow(cluster, binaries, page, protocol)
        finally:
            cluster.remove()

    return ended_by("live-kubernetes", run)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: tools/live/kubernetes.py BINARIES")
    sys.exit(main(Path(sys.argv[1])))
