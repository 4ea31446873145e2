"""Several hosts on one machine: network namespaces with their own addresses, on one bridge.

The bridge has a namespace too, so nothing of the machine's own network is touched. Each host's
cable can be pulled and plugged in again, and its bandwidth cut.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from site_of_daemons import BINARIES, ROOT, eventually

STORE_PORT = 9000
ADMIN_PORT = 9464
URL = "s3://batchweave/stream"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "batchweave",
    "AWS_SECRET_ACCESS_KEY": "batchweave-dev-secret",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
# The fifth runs the store and the monitoring.
NAMES = ["producer-0", "producer-1", "trainer-0", "trainer-1", "store"]


def forbidden() -> str:
    """Return why network namespaces are unavailable here; empty where they are available."""
    if not shutil.which("ip") or not shutil.which("tc"):
        return "ip and tc are missing (apt-get install iproute2)"
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    if tried.returncode or os.geteuid():
        return "network namespaces need root, and a machine that allows them"
    return ""


class Hosts:
    """Five hosts in one network."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = f"bw{os.getpid()}"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.switch = f"{self.mark}-switch"
        self._ip("netns", "add", self.switch)
        self._on_switch("link", "add", "bridge0", "type", "bridge")
        self._on_switch("link", "set", "bridge0", "up")
        for name in NAMES:
            self._plug_in(name)

    def _ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True)

    def _on_switch(self, *words: str) -> None:
        self._ip("-n", self.switch, *words)

    def _plug_in(self, name: str) -> None:
        space = self.space(name)
        self._ip("netns", "add", space)
        self._on_switch(
            *("link", "add", name, "type", "veth"), *("peer", "name", "eth0", "netns", space)
        )
        self._on_switch("link", "set", name, "master", "bridge0", "up")
        self._ip("-n", space, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
        self._ip("-n", space, "link", "set", "lo", "up")
        self._ip("-n", space, "link", "set", "eth0", "up")

    def space(self, name: str) -> str:
        """Return the namespace of a host."""
        return f"{self.mark}-{name}"

    def address(self, name: str) -> str:
        """Return the address of a host."""
        return f"10.77.0.{NAMES.index(name) + 1}"

    def cable(self, name: str, state: str) -> None:
        """Disconnect a host with `down`, and connect it again with `up`."""
        self._on_switch("link", "set", name, state)

    def bandwidth(self, name: str, rate: str | None) -> None:
        """Limit the traffic to a host to `rate`, as `400kbit`; None lifts the limit."""
        words = ["tc", "-n", self.switch, "qdisc"]
        if rate:
            cut = ["tbf", "rate", rate, "burst", "4kb", "latency", "200ms"]
            command = [*words, "replace", "dev", name, "root", *cut]
        else:
            command = [*words, "del", "dev", name, "root"]
        subprocess.run(command, check=True, capture_output=True)

    def command(self, name: str, *words: str) -> list[str]:
        """Return a command line that runs on a host."""
        return ["ip", "netns", "exec", self.space(name), *words]

    def run(self, name: str, *words: str) -> str:
        """Return the output of a command on a host."""
        result = subprocess.run(
            self.command(name, *words),
            env=self.environment(),
            text=True,
            capture_output=True,
            check=False,
            timeout=120,
        )
        assert result.returncode == 0, f"{words}: {result.stdout}{result.stderr}"
        return result.stdout

    def environment(self) -> dict[str, str]:
        """Return the environment: credentials, the store's address, and no colours."""
        endpoint = f"http://{self.address('store')}:{STORE_PORT}"
        # The client of this checkout, not one that happens to be installed.
        python = f"{ROOT / 'python' / 'src'}:{os.environ.get('PYTHONPATH', '')}"
        own = {"AWS_ENDPOINT_URL": endpoint, "BATCHWEAVE_STORE": URL, "PYTHONPATH": python}
        attempt = {"BATCHWEAVE_ATTEMPT": "5" * 32}
        return {**os.environ, **CREDENTIALS, **own, **attempt, "NO_COLOR": "1"}

    def start(self, name: str, label: str, *words: str) -> subprocess.Popen[bytes]:
        """Start a program on a host; its output goes to LABEL.log."""
        with (self.folder / f"{label}.log").open("ab") as log:
            process = subprocess.Popen(
                self.command(name, *words), stdout=log, stderr=log, env=self.environment()
            )
        self.processes[label] = process
        return process

    def stop(self, label: str) -> int:
        """Stop a program as a service manager does, and return its exit code."""
        process = self.processes.pop(label)
        process.send_signal(signal.SIGTERM)
        return process.wait(timeout=60)

    def log(self, label: str) -> str:
        """Return the output of a program."""
        return (self.folder / f"{label}.log").read_text()

    def page(self, name: str, path: str) -> str:
        """Return a page of a host's daemon, requested on that host; empty without an answer."""
        url = f"http://{self.address(name)}:{ADMIN_PORT}{path}"
        command = self.command(name, "curl", "-s", "-m", "5", url)
        return subprocess.run(command, text=True, capture_output=True, check=False).stdout

    def end(self) -> None:
        """End all programs and remove the network."""
        for process in self.processes.values():
            process.kill()
            process.wait()
        for name in [*(self.space(name) for name in NAMES), self.switch]:
            subprocess.run(["ip", "netns", "delete", name], check=False)


class Training(Hosts):
    """A store, two producers, and two training hosts with a daemon and a rank each."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.documents = [f"document {n}: {f'word{n} ' * (20 + n % 60)}" for n in range(400)]
        text = "".join(json.dumps({"text": one}) + "\n" for one in self.documents)
        (folder / "corpus.jsonl").write_text(text)

    def store(self, *options: str) -> None:
        """Start the store, or restart it with other options; it keeps its objects."""
        if "store" in self.processes:
            self.stop("store")
        listen = f"--listen={self.address('store')}:{STORE_PORT}"
        words = ["dev-s3", listen, f"--dir={self.folder / 'objects'}", *options]
        self.start("store", "store", str(BINARIES / "batchweave"), *words)
        eventually("the store", lambda: "Stop it" in self.log("store"))

    def produce(self, number: int) -> None:
        """Start a producer: every second document, repeatedly, a little ahead of training."""
        name = f"producer-{number}"
        path = self.folder / f"{name}.toml"
        path.write_text(
            f"""
            store.url = "{URL}"
            stream = {{ slices = 2, rows_per_slice = 4, seq_len = 512, order = "arrival" }}
            producer = {{ name = "tokens-{number}", index = {number}, of = 2 }}
            source = {{ paths = ["{self.folder / "corpus.jsonl"}"], epochs = 0 }}
            tokenizer.kind = "bytes"
            packing.object_bytes = "256KiB"
            ahead = {{ max_steps = 200, when_no_job = "wait" }}
            admin.listen = "{self.address(name)}:{ADMIN_PORT}"
            """
        )
        self.start(name, name, str(BINARIES / "batchweave-producer"), "--config", str(path))

    def train(self, number: int) -> None:
        """Start the daemon of a training host and its rank."""
        name = f"trainer-{number}"
        path, socket = self.folder / f"{name}.toml", self.folder / f"{name}.sock"
        path.write_text(
            f"""
            store.url = "{URL}"
            job = {{ name = "training", open = true }}
            arena = {{ bytes = "16MiB", segment_bytes = "4MiB" }}
            prefetch = {{ bytes = "8MiB", steps = 100 }}
            socket.path = "{socket}"
            follow.idle = "200ms"
            admin.listen = "{self.address(name)}:{ADMIN_PORT}"
            """
        )
        self.start(name, name, str(BINARIES / "batchweave-consumer"), "--config", str(path))
        rank = [sys.executable, str(Path(__file__).with_name("rank.py")), str(socket), str(number)]
        self.start(name, f"rank-{number}", *rank, str(self.folder / f"rank-{number}.tokens"))

    def steps(self, number: int) -> int:
        """Return the number of steps that a rank has received."""
        path = self.folder / f"rank-{number}.tokens"
        return path.stat().st_size // RECORD if path.exists() else 0

    def received(self, number: int) -> list[tuple[int, bytes]]:
        """Return each step that a rank received, in the order of arrival, with its tokens."""
        data = (self.folder / f"rank-{number}.tokens").read_bytes()
        records = [data[at : at + RECORD] for at in range(0, len(data), RECORD)]
        return [(int.from_bytes(one[:8], "little"), one[8:]) for one in records]

    def batchweave(self, *words: str) -> str:
        """Return the output of the command line on the store's host."""
        return self.run("store", str(BINARIES / "batchweave"), *words)

    def status(self) -> Any:
        """Return `batchweave status --json`."""
        return json.loads(self.batchweave("status", "--json"))


# A step number and the tokens of a slice: 4 rows of 512, two bytes each.
RECORD = 8 + 4 * 512 * 2
