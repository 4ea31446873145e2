"""A Kubernetes cluster of two nodes on one machine, in namespaces of its own, without a network.

The nodes share a kernel and the namespaces, but each has its kubelet, its containerd, its addresses
for pods and its cgroups. Network policies are stored and not enforced.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import settings
from image import Image
from machine import CannotRunError, StepError
from programs import DISK_GIB, MEMORY_GIB, Programs
from settings import KERNEL, NETWORK, SERVICES, TOKEN, Place

# Programs of this machine: name, and the Debian package that has it.
NEEDED = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "iptables": "iptables",
    "openssl": "openssl",
    "busybox": "busybox-static",
}
KEEPER = [
    "unshare",
    "--mount",
    "--net",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "--propagation",
    "private",
]
CGROUPS = Path("/sys/fs/cgroup")
# A link, and rules as kube-proxy makes them, in a network namespace that ends with the command.
TRIAL = """
set -e
ip link set lo up
ip link add trial0 type bridge
ip link add trial1 type veth peer name trial2
iptables -t nat -A POSTROUTING -m comment --comment x -m mark --mark 0x4000 -j MASQUERADE
chance='-m statistic --mode random --probability 0.5'
iptables -t nat -A OUTPUT -p tcp $chance -j DNAT --to-destination 10.0.0.1:1
"""


def refusals() -> list[str]:
    """Returns the reasons for which this machine cannot run a cluster."""
    if os.geteuid() != 0:
        return ["a cluster needs root (namespaces, mounts, cgroups): run it with sudo"]
    found = [
        f"{program} is missing: install {package}"
        for program, package in NEEDED.items()
        if not shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    ]
    if not CGROUPS.is_mount():
        found.append(f"{CGROUPS} is not mounted: kubelet needs a cgroup tree")
    if "\toverlay" not in Path("/proc/filesystems").read_text():
        found.append("the kernel has no overlayfs, which containerd needs: modprobe overlay")
    if found:
        return found
    enter = ["unshare", "--net", "--mount", "--pid", "--fork", "sh", "-c", TRIAL]
    tried = subprocess.run(enter, capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        last = " ".join(tried.stderr.split())
        found.append(f"namespaces with links and address translation do not work: {last}")
    memory = re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text())
    if memory and int(memory[1]) < MEMORY_GIB << 20:
        found.append(f"less than {MEMORY_GIB} GiB of memory are free")
    return found


class Cluster:
    """The folder, the namespaces, and the processes in them."""

    def __init__(self, scratch: Path, programs: Programs) -> None:
        self.scratch = scratch
        self.programs = programs
        self.keeper: subprocess.Popen[bytes] | None = None
        self.leader = 0
        self.places = [
            Place(number, scratch / f"node-{number}", f"/{scratch.name}/node-{number}")
            for number in (1, 2)
        ]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    @classmethod
    def prepare(cls) -> Cluster:
        """Makes a scratch folder, or says why a cluster is impossible here."""
        if reasons := refusals():
            raise CannotRunError("; ".join(reasons))
        scratch = Path(tempfile.mkdtemp(prefix="live-kubernetes."))
        if shutil.disk_usage(scratch).free < DISK_GIB << 30:
            scratch.rmdir()
            raise CannotRunError(
                f"less than {DISK_GIB} GiB are free in {scratch.parent}: see TMPDIR"
            )
        kept = os.environ.get("BATCHWEAVE_LIVE_PROGRAMS", "")
        folder = Path(kept) if kept else scratch / "programs"
        folder.mkdir(parents=True, exist_ok=True)
        return cls(scratch, Programs(folder.resolve()))

    def begin(self) -> None:
        """Makes the namespaces. The shell in them is the parent of all orphans, and their end."""
        self.keeper = subprocess.Popen(
            [*KEEPER, "bash", "-c", "while :; do sleep 3600 & wait; done"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            # A signal of the terminal is for this program, which ends the cluster.
            start_new_session=True,
        )
        children = Path(f"/proc/{self.keeper.pid}/task/{self.keeper.pid}/children")
        self.eventually("a process in the namespaces", lambda: bool(children.read_text()), 10)
        self.leader = int(children.read_text().split()[0])
        self.eventually("its own /proc", lambda: "bash" in self.inside("cat /proc/1/comm"), 10)
        lines = ["set -e", "ip link set lo up", "ip link add live0 type bridge"]
        lines += [f"ip address add {one.address}/24 dev live0" for one in self.places]
        lines += ["ip link set live0 up", "ip route add default dev live0"]
        lines += ["echo 1 >/proc/sys/net/ipv4/ip_forward", "mount -t tmpfs tmpfs /run"]
        for number, (name, value) in enumerate(KERNEL.items()):
            file = self.write(f"kernel/{number}", value + "\n")
            lines.append(f"mount --bind {file} /proc/sys/{name}")
        for place in self.places:
            lines.append(f"mkdir -p /run/{place.name}")
            for tree in self.trees():
                (tree / place.cgroup.lstrip("/")).mkdir(parents=True)
        self.inside("\n".join(lines))

    @staticmethod
    def trees() -> list[Path]:
        """Returns the cgroup trees: one, or one for each controller."""
        if (CGROUPS / "cgroup.controllers").exists():
            return [CGROUPS]
        return [one for one in CGROUPS.iterdir() if one.is_dir() and not one.is_symlink()]

    def write(self, name: str, text: str) -> Path:
        """Writes a file of the scratch folder."""
        file = self.scratch / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def enter(self, words: list[str]) -> list[str]:
        """Returns the command line that runs a program in the namespaces."""
        namespaces = [f"--target={self.leader}", "--mount", "--net", "--pid"]
        variables = [f"PATH={self.programs.path}", f"KUBECONFIG={self.scratch}/kubeconfig"]
        where = f"--chdir={self.scratch}"
        return ["nsenter", *namespaces, "/usr/bin/env", where, *variables, *words]

    def inside(
        self, script: str, check: bool = True, seconds: float = 120, folder: str = ""
    ) -> str:
        """Runs a shell command in the namespaces; returns its output, with that of errors."""
        return self.result(script, check, seconds, folder)[1]

    def result(
        self, script: str, check: bool = True, seconds: float = 120, folder: str = ""
    ) -> tuple[int, str]:
        """Runs a shell command in the namespaces; returns its exit code and output."""
        script = f"cd {folder} && {script}" if folder else script
        try:
            done = subprocess.run(
                self.enter(["bash", "-c", script]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise StepError(f"`{script}` did not end within {seconds:g} s") from late
        if check and done.returncode != 0:
            raise StepError(
                f"`{script}` ended with {done.returncode}: {done.stdout.strip()[-1500:]}"
            )
        return done.returncode, done.stdout

    def start(self, name: str, words: str, program: str = "") -> None:
        """Starts a program of the cluster, in the folder and with a log of its own."""
        log = self.scratch / "logs" / name
        log.parent.mkdir(exist_ok=True)
        with log.open("ab") as out:
            self.processes[name] = subprocess.Popen(
                self.enter([program or name, *words.split()]),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def end(self, name: str) -> None:
        """Ends a program that `start` has started: nsenter, and its child in the namespaces."""
        process = self.processes.pop(name)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        for child in [*children.split(), str(process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGTERM)
        process.wait()

    def control_plane(self) -> str:
        """Starts etcd, the API server, controllers, scheduler, proxy and name server."""
        self.write("kubeconfig", settings.kubeconfig())
        self.write("tokens.csv", f"{TOKEN},admin,admin,system:masters\n")
        self.write("proxy.json", settings.proxy())
        self.inside(f"openssl genrsa -out {self.scratch}/key 2048")
        self.inside(f"openssl rsa -in {self.scratch}/key -pubout -out {self.scratch}/key.public")
        etcd = "http://127.0.0.1:2379"
        urls = f"--listen-client-urls {etcd} --advertise-client-urls {etcd}"
        self.start("etcd", f"--data-dir etcd {urls} --listen-peer-urls http://127.0.0.1:2380")
        self.start(
            "kube-apiserver",
            f"--etcd-servers={etcd} --bind-address=127.0.0.1 --advertise-address={NETWORK}.1 "
            "--cert-dir=certificates --service-account-key-file=key.public "
            "--service-account-signing-key-file=key "
            "--service-account-issuer=https://kubernetes.default.svc "
            f"--service-cluster-ip-range={SERVICES} --token-auth-file=tokens.csv "
            "--authorization-mode=RBAC --endpoint-reconciler-type=none "
            "--kubelet-preferred-address-types=InternalIP",
        )
        self.answers("kubectl get --raw /readyz")
        common = "--kubeconfig=kubeconfig --leader-elect=false --bind-address=127.0.0.1"
        common += " --cert-dir=certificates"
        account = "--service-account-private-key-file=key --root-ca-file=certificates/apiserver.crt"
        self.start("kube-controller-manager", f"{common} {account}")
        self.start("kube-scheduler", common)
        self.start("kube-proxy", f"--config=proxy.json --hostname-override={self.places[0].name}")
        names = Path(__file__).with_name("names.py")
        self.start("names", f"{names} {NETWORK}.1 {TOKEN}", "python3")
        return self.inside("kubectl version").strip().splitlines()[-1]

    def nodes(self) -> str:
        """Starts containerd and kubelet of each node; waits until both are ready."""
        system, own = Path("/usr/lib/cni"), self.programs.packaged / "usr/lib/cni"
        plugins = own if (own / "ptp").exists() else system
        runc = self.programs.packaged / "usr/sbin/runc"
        for place in self.places:
            name = place.name
            config = self.write(
                f"{name}/containerd.toml", settings.containerd(place, plugins, runc)
            )
            self.write(f"{name}/cni/pods.conflist", settings.network(place))
            self.write(f"{name}/kubelet.json", settings.kubelet(place))
            self.start(f"containerd-{name}", f"--config {config}", "containerd")
            self.answers(f"ctr --address {place.socket} version")
            self.start(
                f"kubelet-{name}",
                f"--kubeconfig=kubeconfig --config={name}/kubelet.json "
                f"--root-dir={place.folder}/kubelet --cert-dir={name}/certificates "
                f"--hostname-override={name} --node-ip={place.address} "
                f"--node-labels=topology.kubernetes.io/zone=zone-{place.number}",
                "kubelet",
            )
        count = "kubectl get nodes --no-headers | grep -c ' Ready '"
        self.eventually("nodes", lambda: self.result(count, check=False)[1].strip() == "2", 300)
        return ", ".join(place.name for place in self.places)

    def answers(self, command: str) -> None:
        """Waits until a command succeeds."""
        self.eventually(command, lambda: self.result(command, check=False)[0] == 0, 300)

    def bring(self, image: Image) -> str:
        """Makes an image and imports it into both nodes; returns its size."""
        archive = image.archive(self.scratch / "image.tar")
        for place in self.places:
            self.inside(
                f"ctr --address {place.socket} --namespace k8s.io images import {archive}",
                seconds=300,
            )
        size = archive.stat().st_size >> 20
        archive.unlink()
        return f"{image.name} {size} MiB"

    def eventually(
        self,
        what: str,
        done: Callable[[], bool],
        seconds: float = 240,
        shown: Callable[[], str] = lambda: "",
    ) -> None:
        """Waits for a condition; an ended program of the cluster ends the wait."""
        deadline = time.monotonic() + seconds
        while not done():
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise StepError(f"{name} ended with {process.returncode}: {self.tail(name)}")
            if time.monotonic() > deadline:
                raise StepError(f"not after {seconds:g} s: {what}\n{shown()}".strip())
            time.sleep(0.2)

    def tail(self, name: str, lines: int = 5) -> str:
        """Returns the last lines of a program's log."""
        log = (self.scratch / "logs" / name).read_text(errors="replace").splitlines()
        return "\n".join(log[-lines:])

    def remove(self) -> None:
        """Ends all processes in the namespaces, and removes folder and cgroups."""
        if self.keeper:
            # The end of the first process ends all of its namespace, and the mounts with it.
            self.keeper.kill()
            self.keeper.wait()
            for process in self.processes.values():
                process.kill()
                process.wait()
        deadline = time.monotonic() + 30
        left = [tree / self.scratch.name for tree in self.trees()]
        while left := [one for one in left if one.exists()]:
            for own in left:
                for group in [*sorted(own.rglob("*/"), reverse=True), own]:
                    with contextlib.suppress(OSError):
                        group.rmdir()
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        shutil.rmtree(self.scratch, ignore_errors=True)
        for one in [self.scratch, *left]:
            if one.exists():
                print(f"left behind: {one}", flush=True)
