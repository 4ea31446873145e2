"""The training node in the machine: its users, files and units, and what is expected of them."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from machine import HOMES, Machine, StepError
from page import ROOT, Block, without_comment

# Parts of the checkout in the machine; the programs are built outside.
PARTS = ["Makefile", "config", "deploy", "docs", "tools"]
CHECKOUT = "/srv/engineer/batchweave"
CONSUMER = "batchweave-consumer"
# The machine has no bucket, so the page's one is in a server of its own. Its data survives a boot.
STORE = """[Unit]
Description=dev-s3, in place of a bucket
[Service]
ExecStart=/usr/local/lib/live/batchweave-lab dev-s3 --dir /srv/store --bucket my-bucket
[Install]
WantedBy=multi-user.target
"""
ENVIRONMENT = "AWS_ENDPOINT_URL=http://127.0.0.1:9000\nAWS_REGION=us-east-1\n"
KEYS = "[default]\naws_access_key_id = batchweave\naws_secret_access_key = batchweave-dev-secret\n"
# The editor of `sudoedit`: applies what the step has written.
EDITOR = '#!/bin/sh\nexec sed -E -i -f /srv/engineer/edit.sed "$1"\n'
DOCUMENTS = 4000


class Node:
    """The machine with users, a checkout, a store and documents."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.run = machine.run
        self.trainers: list[subprocess.Popen[str]] = []

    def furnish(self, binaries: Path, programs: list[str]) -> str:
        """Makes users, the checkout, documents and the store."""
        root = self.machine.root
        checkout = root / CHECKOUT.lstrip("/")
        unwanted = shutil.ignore_patterns("__pycache__", ".*")
        for part in PARTS:
            source, target = ROOT / part, checkout / part
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=unwanted)
            else:
                shutil.copy(source, target)
        built = checkout / "target" / "release"
        built.mkdir(parents=True)
        for program in programs:
            shutil.copy(binaries / program, built / program)
        # The store's program is not the one that is installed, upgraded and removed.
        shutil.copytree(
            ROOT / "python" / "src", root / "usr/local/lib/live/python", ignore=unwanted
        )
        shutil.copy(binaries / "batchweave-lab", root / "usr/local/lib/live/batchweave-lab")
        shutil.copy(Path(__file__).with_name("trainer.py"), root / "srv/trainer.py")
        write = self.machine.write
        write("/etc/hosts", "127.0.0.1 localhost live\n")
        write("/etc/systemd/system/live-store.service", STORE)
        write("/etc/sudoers.d/engineer", "engineer ALL=(ALL:ALL) NOPASSWD: ALL\n", 0o440)
        write("/usr/local/bin/edit", EDITOR, 0o755)
        words = "".join(f'{{"text": "{f"word{n} " * 60}"}}\n' for n in range(DOCUMENTS))
        write("/srv/corpus/documents.jsonl", words)
        write("/srv/engineer/.aws/credentials", KEYS, 0o600)
        for user in ("engineer", "trainer"):
            made = f"useradd --base-dir {HOMES} --create-home --shell /bin/bash {user}"
            self.run(f"{made}; chown -R {user}: {HOMES}/{user}")
        self.run("systemctl enable --now live-store")
        self.active("live-store")
        return f"dev-s3 has the page's bucket, {DOCUMENTS} documents"

    def follow(self, block: Block, edit: str = "", skip: tuple[str, ...] = ()) -> dict[str, str]:
        """Runs the commands of a block as its reader; returns their output."""
        self.machine.write("/srv/engineer/edit.sed", edit)
        output: dict[str, str] = {}
        for command in block.commands:
            title = without_comment(command)
            if title.startswith(skip) and skip:
                continue
            # `systemctl status` ends with 3 for a unit that does not run yet.
            looks = title.startswith("systemctl ")
            output[title] = self.run(command, user="engineer", folder=CHECKOUT, check=not looks)[1]
        return output

    def cli(self, command: str, check: bool = True) -> tuple[int, str]:
        """Runs `batchweave` as the engineer, with the page's stream."""
        variables = (
            ENVIRONMENT.replace("\n", " ") + "BATCHWEAVE_STORE=s3://my-bucket/my-stream NO_COLOR=1"
        )
        return self.run(f"env {variables} batchweave {command}", user="engineer", check=check)

    def property(self, unit: str, name: str) -> str:
        """Returns a property of a unit."""
        return self.run(f"systemctl show --value -p {name} {unit}")[1].strip()

    def eventually(self, what: str, done: Callable[[], bool], seconds: float = 240) -> None:
        """Waits for a condition."""
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                units = self.run("systemctl list-units --all --no-pager 'batchweave-*'")[1]
                log = self.run("journalctl -n 25 --no-pager -o cat")[1]
                raise StepError(f"not after {seconds:g} s: {what}\n{units}\n{log}")
            time.sleep(0.2)

    def active(self, unit: str) -> None:
        """Waits until a unit is ready."""
        self.eventually(f"{unit} is active", lambda: self.property(unit, "ActiveState") == "active")

    def stays_down(self, unit: str, status: int, text: str) -> str:
        """Checks that a unit has failed, is not restarted, and says why in one line; returns it."""
        self.eventually(
            f"{unit} has failed", lambda: self.property(unit, "ActiveState") == "failed", 60
        )
        before = self.property(unit, "NRestarts")
        time.sleep(6)
        found = [
            self.property(unit, name) for name in ("ActiveState", "ExecMainStatus", "NRestarts")
        ]
        if found != ["failed", str(status), before]:
            raise StepError(
                f"{unit} does not stay down: {' '.join(found)}, not failed {status} {before}"
            )
        shown = self.run(f"systemctl status --no-pager --full {unit}", check=False)[1]
        lines = [line for line in shown.splitlines() if text in line and "Status:" not in line]
        if len(lines) != 1:
            raise StepError(f"not one line with {text!r} in `systemctl status {unit}`:\n{shown}")
        return lines[0].split("]: ", 1)[-1]

    def begin_training(
        self, job: str, steps: int | None = None, socket: str = ""
    ) -> subprocess.Popen[str]:
        """Starts a rank as the user `trainer`, who has logged in now."""
        where = f"BATCHWEAVE_SOCKET={socket} " if socket else ""
        paths = f"PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/usr/local/lib/live/python {where}"
        text = f"{paths} python3 /srv/trainer.py {job} /srv/trainer/{job} {steps or ''}"
        trainer = subprocess.Popen(
            self.machine.command(text, "trainer", ""),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.trainers.append(trainer)
        return trainer

    def steps(self, job: str = "training") -> list[float]:
        """Returns the times at which a job's rank received its steps."""
        file = self.machine.root / f"srv/trainer/{job}/steps"
        if not file.exists():
            return []
        whole = file.read_text().rpartition("\n")[0]
        return [float(line.split()[1]) for line in whole.splitlines()]

    def reads_on(self, since: float, steps: int = 50) -> float:
        """Waits until the rank has read steps after a time; returns its longest wait in seconds."""
        trainer = self.trainers[0]
        self.eventually(
            "the rank reads on",
            lambda: trainer.poll() is not None or sum(at > since for at in self.steps()) >= steps,
        )
        if trainer.poll() is not None:
            assert trainer.stdout
            raise StepError(
                f"the rank ended with {trainer.returncode}: {trainer.stdout.read()[-1500:]}"
            )
        times = self.steps()
        return max(b - a for a, b in pairwise(times) if b > since)

    def ended(self, trainer: subprocess.Popen[str], seconds: float = 240) -> str:
        """Waits for the end of a rank; returns its last line."""
        try:
            output = trainer.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            raise StepError(f"the rank did not end within {seconds:g} s") from None
        if trainer.returncode != 0:
            raise StepError(f"the rank ended with {trainer.returncode}: {output[-1500:]}")
        return output.strip().splitlines()[-1]

    def end(self) -> None:
        """Ends the ranks."""
        for trainer in self.trainers:
            if trainer.poll() is None:
                trainer.kill()
                trainer.wait()
