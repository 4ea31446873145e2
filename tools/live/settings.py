"""Configuration files of the cluster's programs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

TOKEN = "administrator"
SERVICES = "10.96.0.0/16"
# Addresses are in a network namespace of the run: nothing outside sees them.
NETWORK = "10.99.0"
# Settings of the kernel that kubelet writes. Files with its values stand in their place, so that
# the machine's own stay as they are.
KERNEL = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


@dataclass
class Place:
    """A node of the cluster: its folder, and what tells it from the others on this machine."""

    number: int
    folder: Path
    cgroup: str

    @property
    def name(self) -> str:
        """Returns the node's name."""
        return f"node-{self.number}"

    @property
    def address(self) -> str:
        """Returns the node's address."""
        return f"{NETWORK}.{self.number}"

    @property
    def socket(self) -> Path:
        """Returns the path of containerd's socket."""
        return Path(f"/run/{self.name}/containerd.sock")


def kubeconfig() -> str:
    """Returns the administrator's configuration, for the programs as well."""
    server = {"server": "https://127.0.0.1:6443", "insecure-skip-tls-verify": True}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "live", "cluster": server}],
            "users": [{"name": "live", "user": {"token": TOKEN}}],
            "contexts": [{"name": "live", "context": {"cluster": "live", "user": "live"}}],
            "current-context": "live",
        }
    )


def containerd(place: Place, plugins: Path, runc: Path) -> str:
    """Returns containerd's configuration; pods get an address from a range of their node."""
    return f"""version = 2
root = "{place.folder}/containerd"
state = "/run/{place.name}/containerd"
[grpc]
  address = "{place.socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{place.folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{runc}"
"""


def network(place: Place) -> str:
    """Returns the network of a node's pods: a link to each, so that all between them is routed."""
    ranges = [[{"subnet": f"10.88.{place.number}.0/24"}]]
    addresses = {
        "type": "host-local",
        "ranges": ranges,
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": f"{place.folder}/addresses",
    }
    link = {"type": "ptp", "ipMasq": False, "ipam": addresses}
    return json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [link]})


def kubelet(place: Place) -> str:
    """Returns kubelet's configuration."""
    return json.dumps(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": place.cgroup,
            "failCgroupV1": False,
            "failSwapOn": False,
            "containerRuntimeEndpoint": f"unix://{place.socket}",
            "oomScoreAdj": 0,
            "port": 10250 + 10 * place.number,
            "healthzPort": 10248 + 10 * place.number,
            "clusterDNS": [f"{NETWORK}.1"],
            "clusterDomain": "cluster.local",
            "podLogsDir": f"{place.folder}/logs",
            # The disk is the machine's: images of the run must not be removed because it is full.
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
        }
    )


def proxy() -> str:
    """Returns the configuration of kube-proxy, which leaves the kernel's tables at their sizes."""
    return json.dumps(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "clusterCIDR": "10.88.0.0/16",
            "clientConnection": {"kubeconfig": "kubeconfig"},
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
        }
    )
