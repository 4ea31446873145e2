"""The programs of a Kubernetes cluster, from registries: Debian's packages and Go's modules.

They are made in a folder of the run; BATCHWEAVE_LIVE_PROGRAMS names one that is kept.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from machine import CannotRunError, unpacked

KUBERNETES = "1.34.4"
BUILT = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubectl",
]
# Programs in Debian's packages, by the path below the folder into which a package is unpacked.
PACKAGED = {
    "usr/bin/etcd": "etcd-server",
    "usr/bin/containerd": "containerd",
    "usr/sbin/runc": "runc",
    "usr/lib/cni/ptp": "containernetworking-plugins",
}
# Modules with definitions of objects that overlays have, and where they are in them.
DEFINITIONS = {
    "sigs.k8s.io/jobset@v0.8.1": "config/components/crd/bases",
    "github.com/kubeflow/trainer/v2@v2.0.0": "manifests/base/crds",
}
# Go's compiler takes about this much for kubelet or the API server, and the caches on the disk.
MEMORY_GIB, DISK_GIB = 4, 8


class Programs:
    """Folders with the programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.built = folder / "bin"
        self.packaged = folder / "root"

    @property
    def path(self) -> str:
        """Returns a PATH on which all of them are, before those of this machine."""
        own = [self.built, self.packaged / "usr/bin", self.packaged / "usr/sbin"]
        return ":".join([*map(str, own), os.environ.get("PATH", ""), "/usr/sbin:/sbin"])

    def missing(self) -> list[str]:
        """Returns the programs that must be compiled."""
        return [name for name in BUILT if not (self.built / name).exists()]

    def obtain(self) -> str:
        """Unpacks and compiles what the folder does not have yet."""
        for path, package in PACKAGED.items():
            if not (self.packaged / path).exists():
                self.packaged.mkdir(parents=True, exist_ok=True)
                unpacked(package, self.packaged)
        if missing := self.missing():
            self.compile(missing)
        kept = f", in {self.folder}" if os.environ.get("BATCHWEAVE_LIVE_PROGRAMS") else ""
        etcd = self.version("etcd", "--version").removeprefix("etcd Version: ")
        containerd = self.version("containerd", "--version").split(" ")[2]
        return f"Kubernetes {KUBERNETES}, etcd {etcd}, containerd {containerd}{kept}"

    def version(self, program: str, option: str) -> str:
        """Returns the first line that a program prints of its version."""
        environment = {**os.environ, "PATH": self.path}
        done = subprocess.run(
            [program, option], capture_output=True, text=True, check=False, env=environment
        )
        if done.returncode != 0:
            raise CannotRunError(f"{program} {option} fails: {done.stderr.strip()}")
        return done.stdout.splitlines()[0]

    def compile(self, programs: list[str]) -> None:
        """Compiles programs of Kubernetes with Go: some minutes of processor time each."""
        if not shutil.which("go"):
            raise CannotRunError(
                "go is missing: install Go 1.24 or newer, which compiles Kubernetes"
            )
        if shutil.disk_usage(self.folder).free < DISK_GIB << 30:
            raise CannotRunError(
                f"less than {DISK_GIB} GiB are free in {self.folder}: see BATCHWEAVE_LIVE_PROGRAMS"
            )
        module = self.folder / "module"
        module.mkdir(exist_ok=True)
        (module / "go.mod").write_text(self.requirements())
        (module / "go.sum").unlink(missing_ok=True)
        major, minor, _ = KUBERNETES.split(".")
        says = {"Version": f"v{KUBERNETES}", "Major": major, "Minor": minor, "Commit": "unknown"}
        flags = " ".join(
            f"-X k8s.io/component-base/version.git{name}={value}" for name, value in says.items()
        )
        for program in programs:
            print(f"          compiles {program}", flush=True)
            target = str(self.built / program)
            self.go(
                *("build", "-mod=mod", "-p=1", "-trimpath", f"-ldflags=-s -w {flags}"),
                *("-o", target, f"k8s.io/kubernetes/cmd/{program}"),
            )

    def definitions(self) -> list[Path]:
        """Returns files with the definitions of JobSet and of Kubeflow's trainer."""
        files: list[Path] = []
        for module, below in DEFINITIONS.items():
            found = json.loads(self.go("mod", "download", "-json", module))
            # Beside them is a kustomization.
            files += sorted((Path(found["Dir"]) / below).glob("*_*.yaml"))
        return files

    def requirements(self) -> str:
        """Returns a go.mod, which replaces modules that only Kubernetes's own checkout has."""
        found = self.go("mod", "download", "-json", f"k8s.io/kubernetes@v{KUBERNETES}")
        own = Path(json.loads(found)["GoMod"]).read_text()
        staged = sorted(set(re.findall(r"(?m)^\s*(k8s\.io/\S+) v0\.0\.0$", own)))
        version = f"v0.{KUBERNETES.split('.', 1)[1]}"
        lines = [f"replace {name} => {name} {version}" for name in staged]
        needs = re.search(r"(?m)^go \S+$", own)
        return "\n".join(
            [
                "module live",
                needs[0] if needs else "go 1.24.0",
                f"require k8s.io/kubernetes v{KUBERNETES}",
                *lines,
                "",
            ]
        )

    def go(self, *words: str) -> str:
        """Runs Go with caches in the folder, at the lowest priority."""
        (self.folder / "module").mkdir(exist_ok=True)
        environment = {
            **os.environ,
            "CGO_ENABLED": "0",
            "GOCACHE": str(self.folder / "gocache"),
            "GOMODCACHE": str(self.folder / "gomod"),
            # Otherwise the modules' folders could not be removed.
            "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -modcacherw".strip(),
        }
        done = subprocess.run(
            ["nice", "-n", "10", "go", *words],
            cwd=self.folder / "module",
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            told = [line for line in done.stderr.splitlines() if "go: downloading" not in line]
            last = " / ".join(told[-3:])
            raise CannotRunError(
                f"go {words[0]} fails: {last}; it needs a Go module proxy (GOPROXY)"
            )
        return done.stdout
