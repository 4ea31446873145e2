"""What runs in the cluster: the manifests, their images, and what is expected of the pods."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster import Cluster
from image import Image
from machine import MIRROR, SUITE, CannotRunError, StepError, unpacked
from page import ROOT, Block, without_comment

NAMESPACE = "batchweave"
# The parts of the checkout that the page's commands need.
PARTS = ["deploy/kubernetes", "deploy/grafana", "deploy/prometheus"]
TRAINER_PACKAGES = "python3,python3-numpy"


class Workload:
    """The objects of deploy/kubernetes in a cluster."""

    def __init__(self, cluster: Cluster, binaries: Path) -> None:
        self.cluster = cluster
        self.binaries = binaries
        self.checkout = cluster.scratch / "checkout"

    def furnish(self) -> str:
        """Makes the images, imports them into the nodes, and copies the manifests."""
        cluster = self.cluster
        for part in PARTS:
            shutil.copytree(ROOT / part, self.checkout / part)
        ours = cluster.scratch / "image"
        subprocess.run(["tools/image-root", str(self.binaries), str(ours)], cwd=ROOT, check=True)
        pause = cluster.scratch / "pause"
        (pause / "bin").mkdir(parents=True)
        shutil.copy("/bin/busybox", pause / "bin/busybox")
        sleeps = ["/bin/busybox", "sleep", "2147483647"]
        images = [
            Image("localhost/pause:1", pause, sleeps),
            Image("docker.io/library/batchweave:0.1.0", ours, []),
            Image("docker.io/library/trainer:dev", self.trainer(), ["python3", "/srv/trainer.py"]),
        ]
        return ", ".join(cluster.bring(image) for image in images)

    def trainer(self) -> Path:
        """Makes the folder of a trainer's image: Debian's Python, the package, and the loop."""
        root = self.cluster.programs.folder / "trainer"
        if not (root / "usr/bin/python3").exists():
            shutil.rmtree(root, ignore_errors=True)
            self.debootstrap(root)
        package, loop = root / "usr/lib/python3/dist-packages/batchweave", root / "srv/trainer.py"
        shutil.rmtree(package, ignore_errors=True)
        unwanted = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "python/src/batchweave", package, ignore=unwanted)
        shutil.copy(Path(__file__).with_name("pod_trainer.py"), loop)
        return root

    def debootstrap(self, root: Path) -> None:
        """Installs a small Debian."""
        tools, environment = self.cluster.scratch / "tools", dict(os.environ)
        environment["PATH"] = self.cluster.programs.path
        if not shutil.which("debootstrap", path=environment["PATH"]):
            tools.mkdir()
            unpacked("debootstrap", tools)
            environment["PATH"] = f"{tools}/usr/sbin:{environment['PATH']}"
            environment["DEBOOTSTRAP_DIR"] = f"{tools}/usr/share/debootstrap"
        done = subprocess.run(
            [
                "debootstrap",
                "--variant=minbase",
                f"--include={TRAINER_PACKAGES}",
                SUITE,
                str(root),
                MIRROR,
            ],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            last = " ".join(done.stdout.splitlines()[-1:])
            raise CannotRunError(
                f"debootstrap from {MIRROR} failed: {last}; see BATCHWEAVE_LIVE_MIRROR"
            )

    def edit(self, file: str, *changes: tuple[str, str]) -> None:
        """Changes a file of the checkout as its reader would."""
        path = self.checkout / "deploy/kubernetes" / file
        text = path.read_text()
        for before, after in changes:
            if text.count(before) != 1:
                raise StepError(f"{file} has {before!r} {text.count(before)} times, not once")
            text = text.replace(before, after)
        path.write_text(text)

    def follow(self, block: Block, skip: tuple[str, ...] = ()) -> dict[str, str]:
        """Runs the commands of a block as its reader; returns their output."""
        output: dict[str, str] = {}
        for command in block.commands:
            title = without_comment(command)
            if not (skip and title.startswith(skip)):
                folder = str(self.checkout)
                output[title] = self.cluster.inside(command, seconds=300, folder=folder)
        return output

    def kubectl(self, words: str, check: bool = True) -> str:
        """Runs kubectl in the namespace."""
        return self.cluster.inside(f"kubectl -n {NAMESPACE} {words}", check=check, seconds=300)

    def objects(self, words: str) -> list[dict[str, Any]]:
        """Returns objects of the cluster."""
        found: list[dict[str, Any]] = json.loads(self.kubectl(f"get {words} -o json"))["items"]
        return found

    def eventually(self, what: str, done: Callable[[], bool], seconds: float = 240) -> None:
        """Waits for a condition."""

        def shown() -> str:
            events = "get events --sort-by=.lastTimestamp | tail -n 15"
            return self.kubectl("get pods -o wide", False) + self.kubectl(events, False)

        self.cluster.eventually(what, done, seconds, shown)

    def pods(self, name: str) -> list[dict[str, Any]]:
        """Returns the pods of a part that are not about to end."""
        found = self.objects(f"pods -l app.kubernetes.io/name=batchweave-{name}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def training(self) -> dict[str, Any] | None:
        """Returns the training pod, once its containers run."""
        for pod in self.pods("training"):
            if pod["status"]["phase"] == "Running" and self.ready(pod):
                return pod
        return None

    @staticmethod
    def ready(pod: dict[str, Any]) -> bool:
        """Returns whether a pod is ready."""
        conditions = pod["status"].get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    @staticmethod
    def container(pod: dict[str, Any], name: str) -> dict[str, Any]:
        """Returns the status of a container; a new pod has none yet."""
        statuses = pod["status"].get("initContainerStatuses", [])
        for one in [*statuses, *pod["status"].get("containerStatuses", [])]:
            if one["name"] == name:
                return dict(one)
        return {"restartCount": 0, "ready": False, "state": {}, "containerID": "none"}

    def send(self, pod: dict[str, Any], name: str, number: signal.Signals) -> None:
        """Sends a signal to the first process of a container, as this machine sees it."""
        identity = self.container(pod, name)["containerID"].removeprefix("containerd://")
        found = []
        for process in Path("/proc").iterdir():
            try:
                if process.name.isdigit() and identity in (process / "cgroup").read_text():
                    found.append(int(process.name))
            except OSError:
                continue
        if not found:
            raise StepError(f"no process of container {name}")
        os.kill(min(found), number)

    def lines(self) -> list[tuple[float, int, float]]:
        """Returns the trainer's last lines: time, step, and longest wait before it."""
        pod = self.training() or {}
        if not pod:
            return []
        text = self.kubectl(f"logs {pod['metadata']['name']} -c trainer --tail=2000", check=False)
        words = [line.split() for line in text.splitlines()]
        numbers = [one for one in words if len(one) == 3 and one[1].isdigit()]
        return [(float(at), int(step), float(wait)) for at, step, wait in numbers]

    def reads_on(self, since: float, lines: int = 2) -> float:
        """Waits until the rank has read after a time; returns its longest wait in seconds."""

        def later() -> list[tuple[float, int, float]]:
            return [one for one in self.lines() if one[0] > since]

        self.eventually("the rank reads on", lambda: len(later()) >= lines)
        return max(wait for _, _, wait in later())

    def begins_at(self, name: str) -> int:
        """Returns the step at which a pod's trainer began."""
        text = self.kubectl(f"logs {name} -c trainer")
        for line in text.splitlines():
            if line.startswith("begins at step "):
                return int(line.rsplit(" ", 1)[1])
        raise StepError(f"the trainer has not begun: {text[-500:]}")

    def quiet(self, seconds: float) -> None:
        """Lets time pass in which nothing is expected."""
        until = time.monotonic() + seconds
        self.cluster.eventually("time passes", lambda: time.monotonic() > until, seconds + 30)
