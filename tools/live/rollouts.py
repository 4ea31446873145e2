"""The steps in the cluster, from the overlay through faults and rollouts to the proof."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cluster import Cluster
from machine import StepError
from page import Block, Page, without_comment
from workload import Workload

MAIN = "With Kubernetes"
CHANGES = "Changes, and the way back"
END = "The end of a run"
SECTIONS = [MAIN, CHANGES, END]
DOCUMENTS = 4000
# A small stream of documents that repeat: two slices of 2 rows of 256 tokens.
STREAM = """[stream]
slices = 2
rows_per_slice = 2
seq_len = 256

[tokenizer]
kind = "bytes"

[packing]
object_bytes = "64KiB"

[ahead]
max_steps = 1500

[admin]
"""
PATHS = 'paths = ["s3://batchweave/corpus/*.jsonl"]\n'
PRODUCER = "overlays/dev/producer.toml"
APPLY = "kubectl apply -k deploy/kubernetes/overlays/dev"
# The longest wait that a frozen sidecar may cost: 30 s, its grace, and a start on a slow machine.
FROZEN_SECONDS = 70.0

Step = Callable[[], str]


class Rollouts:
    """All steps in their order."""

    def __init__(self, cluster: Cluster, work: Workload, page: Page) -> None:
        self.cluster = cluster
        self.work = work
        self.page = page

    def steps(self) -> Iterator[tuple[str, Step]]:
        """Returns names and functions of the steps."""
        yield "all overlays pass the API server", self.all_overlays
        yield "apply the overlay dev", self.apply
        yield "documents, producers, training", self.begin
        yield "SIGKILL of the sidecar", self.sigkill
        yield "SIGSTOP until the liveness probe", self.sigstop
        yield "producers roll to another configuration", self.roll
        yield "wrong configuration, and the way back", self.wrong_configuration
        yield "image that is nowhere, and the way back", self.wrong_image
        yield "another training Job", self.replace
        yield "drain of the training's node", self.drain
        yield "reclamation by the CronJob", self.reclaim
        yield "end of the run, and proof", self.proof

    def reader(self, block: Block, having: str) -> str:
        """Returns the one command of a block with a text."""
        (found,) = [one for one in block.commands if having in one]
        return without_comment(found)

    def all_overlays(self) -> str:
        """Asks the API server about each overlay, with the definitions of the other controllers."""
        work, found = self.work, []
        for file in self.cluster.programs.definitions():
            self.cluster.inside(f"kubectl create -f {file}")
        spaces = ("batchweave", "batchweave-second")
        for name in spaces:
            self.cluster.inside(f"kubectl create namespace {name}")
        for folder in sorted((work.checkout / "deploy/kubernetes/overlays").iterdir()):
            ask = f"kubectl create --validate=strict --dry-run=server -k {folder}"
            code, text = self.cluster.result(ask, check=False)
            wrong = [line for line in text.splitlines() if "Error" in line or "rror:" in line]
            # The namespace of the overlay is there, since objects need one.
            wrong = [line for line in wrong if "namespaces" not in line or "exists" not in line]
            if wrong or "created" not in text:
                raise StepError(f"{folder.name}: exit code {code}: {text[-1500:]}")
            found.append(folder.name)
        for name in spaces:
            self.cluster.inside(f"kubectl delete namespace {name}")
        return ", ".join(found)

    def apply(self) -> str:
        """Applies the overlay as the page says; the store is on the first node."""
        work, repeat = self.work, PATHS + "epochs = 0\n"
        work.edit(PRODUCER, ("[admin]\n", STREAM), (PATHS, repeat))
        self.cluster.inside("kubectl cordon node-2")
        block = self.page.block(MAIN, APPLY)
        output = work.follow(block, skip=("make image", "kubectl -n batchweave get", "aws"))
        self.cluster.inside("kubectl uncordon node-2 && kubectl cordon node-1")
        self.cluster.inside(APPLY.replace("apply", "diff"), folder=str(work.checkout))
        return f"{len(output[APPLY].splitlines())} objects, as the manifests have them"

    def begin(self) -> str:
        """Puts documents into the store through a forwarded port; the rank reads."""
        work, block = self.work, self.page.block(MAIN, "port-forward")
        forward = self.reader(block, "port-forward").removesuffix("&")
        self.cluster.start("port-forward", forward.removeprefix("kubectl "), "kubectl")
        words = "".join(f'{{"text": "{f"word{n} " * 60}"}}\n' for n in range(DOCUMENTS))
        file = self.cluster.write("documents.jsonl", words)
        url = "http://127.0.0.1:9000/batchweave/corpus/documents.jsonl"
        tool = Path(__file__).with_name("bucket.py")
        put = f"python3 {tool} {url} batchweave batchweave-dev-secret <{file}"
        self.work.eventually("a put", lambda: self.cluster.result(put, check=False)[0] == 0, 60)
        self.cluster.end("port-forward")
        began = time.time()
        output = work.follow(block, skip=("kubectl -n batchweave port-forward", "aws"))
        work.eventually("the training pod is ready", lambda: work.training() is not None)
        self.cluster.inside("kubectl uncordon node-1")
        work.reads_on(began, 10)
        status = next(
            text for title, text in output.items() if "status" in title and "exec" in title
        )
        return status.strip().splitlines()[0]

    def fault(self, number: signal.Signals) -> str:
        """Sends a signal to the sidecar; waits until another runs, and the rank reads on."""
        work, pod = self.work, self.pod()
        before, since = work.container(pod, "consumer")["restartCount"], time.time()
        work.send(pod, "consumer", number)

        def again() -> bool:
            now = work.container(self.pod(ready=False), "consumer")
            return bool(now["restartCount"] > before and now["ready"])

        work.eventually("another sidecar", again)
        work.reads_on(time.time())
        seconds = work.reads_on(since)
        if self.pod()["metadata"]["name"] != pod["metadata"]["name"]:
            raise StepError("the fault of the sidecar ended the pod")
        if seconds > FROZEN_SECONDS:
            raise StepError(
                f"the rank waited {seconds:.1f} s, at most {FROZEN_SECONDS:g} are expected"
            )
        return f"the rank waited {seconds:.1f} s"

    def pod(self, ready: bool = True) -> dict[str, Any]:
        """Returns the training pod."""
        if not ready:
            return self.work.pods("training")[0]
        self.work.eventually("a training pod", lambda: self.work.training() is not None)
        return self.work.training() or {}

    def sigkill(self) -> str:
        """Kills the sidecar."""
        return self.fault(signal.SIGKILL)

    def sigstop(self) -> str:
        """Freezes the sidecar."""
        return self.fault(signal.SIGSTOP)

    def changed(self, since: float) -> str:
        """Waits until the producers have rolled; returns the longest wait of the rank."""
        self.work.kubectl("rollout status statefulset/tokens --timeout=240s")
        self.work.reads_on(time.time())
        return f"the rank waited {self.work.reads_on(since):.1f} s"

    def roll(self) -> str:
        """Changes the producers' configuration and applies it."""
        since, work = time.time(), self.work
        names = [pod["metadata"]["uid"] for pod in work.pods("producer")]
        work.edit(PRODUCER, ("max_steps = 1500", "max_steps = 2000"))
        work.follow(self.page.block(CHANGES, "rollout status"))
        text = self.changed(since)
        if kept := {pod["metadata"]["uid"] for pod in work.pods("producer")} & set(names):
            raise StepError(f"{len(kept)} producers kept the former configuration")
        return text

    def undo(self, since: float) -> str:
        """Takes a rollout back by the page's commands; all producers must be ready."""
        self.work.follow(self.page.block(CHANGES, "rollout undo"))
        return self.changed(since)

    def wrong_configuration(self) -> str:
        """Applies an unknown key: one producer ends with 64, the others continue."""
        since, work = time.time(), self.work
        work.edit(PRODUCER, ("max_steps = 2000", "max_stepps = 2000"))
        self.cluster.inside(APPLY, folder=str(work.checkout))

        def code() -> int | None:
            for pod in work.pods("producer"):
                state = work.container(pod, "configure")
                for one in (state["state"], state.get("lastState", {})):
                    if "terminated" in one and one["terminated"]["exitCode"] != 0:
                        return int(one["terminated"]["exitCode"])
            return None

        work.eventually("a producer that ends", lambda: code() is not None)
        if code() != 64:
            raise StepError(f"a wrong configuration ends with {code()}, not 64")
        if len([pod for pod in work.pods("producer") if work.ready(pod)]) != 1:
            raise StepError("a wrong configuration stops more than one producer")
        work.edit(PRODUCER, ("max_stepps = 2000", "max_steps = 2000"))
        return f"exit code 64, one producer continued; {self.undo(since)}"

    def wrong_image(self) -> str:
        """Sets an image that no node has."""
        since, work = time.time(), self.work
        work.kubectl("set image statefulset/tokens producer=batchweave:0.9.9")

        def waits() -> bool:
            states = [work.container(one, "producer")["state"] for one in work.pods("producer")]
            reasons = [state.get("waiting", {}).get("reason", "") for state in states]
            return any("ImagePull" in reason for reason in reasons)

        work.eventually("a producer without its image", waits)
        return self.undo(since)

    def replace(self) -> str:
        """Changes the consumer's configuration, which needs another Job."""
        work, before = self.work, self.pod()["metadata"]["name"]
        work.edit("overlays/dev/consumer.toml", ('format = "json"', 'format = "text"'))
        work.follow(self.page.block(CHANGES, "delete job"))
        work.eventually("another pod", lambda: self.pod()["metadata"]["name"] != before)
        work.reads_on(time.time())
        begins = work.begins_at(self.pod()["metadata"]["name"])
        if begins == 0:
            raise StepError("the training begins again at step 0")
        return f"begins at step {begins}"

    def drain(self) -> str:
        """Drains the node of the training pod, which begins elsewhere at its checkpoint."""
        work, pod, since = self.work, self.pod(), time.time()
        node, name = pod["spec"]["nodeName"], pod["metadata"]["name"]
        command = self.reader(self.page.block(CHANGES, "kubectl drain"), "kubectl drain")
        before = work.lines()[-1][1]
        output = self.cluster.inside(command.replace("NODE", node), seconds=300)
        work.eventually("another pod", lambda: self.pod()["metadata"]["name"] != name)
        begins = work.begins_at(self.pod()["metadata"]["name"])
        if begins == 0 or self.pod()["spec"]["nodeName"] == node:
            raise StepError(f"the training begins again at step {begins} on the drained node")
        work.reads_on(time.time())
        self.cluster.inside(f"kubectl uncordon {node}")
        held = "; a budget delayed an eviction" if "disruption budget" in output else ""
        seconds = time.time() - since
        return f"step {before} on {node}, step {begins} on the other after {seconds:.0f} s{held}"

    def reclaim(self) -> str:
        """Starts a pass of the CronJob."""
        self.work.kubectl("create job reclaim-now --from=cronjob/reclaim")
        self.work.kubectl("wait --for=condition=complete --timeout=120s job/reclaim-now")
        return self.work.kubectl("logs job/reclaim-now").strip().splitlines()[-1]

    def proof(self) -> str:
        """Ends the stream; the Job completes, and the deliveries are proved."""
        output = self.work.follow(self.page.block(END, "verify"))
        text = "\n".join(output.values())
        proved = [line for line in text.splitlines() if line.startswith("proved")]
        if not proved:
            raise StepError(f"not proved: {text[-2000:]}")
        print(f"verify --job: {proved[0]}", flush=True)
        name = self.work.objects("pods -l batch.kubernetes.io/job-name=training")[-1]["metadata"][
            "name"
        ]
        return self.work.kubectl(f"logs {name} -c trainer --tail=1").strip()
