"""The steps, from the installation through faults, an upgrade and the proof to the removal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from machine import StepError
from node import CHECKOUT, CONSUMER, ENVIRONMENT, Node
from page import Page

SECTIONS = [
    "With systemd",
    "Several jobs on a node",
    "Upgrade and removal",
    "With Slurm",
    "Trainers and the socket",
]
MAIN = "With systemd"
PRODUCER = "batchweave-producer@tokens-0"
# A small stream: two slices of 2 rows of 256 tokens, from one file without an end.
PRODUCER_EDIT = """
s#^paths = .*#paths = ["/srv/corpus/*.jsonl"]#
s/^epochs = 1$/epochs = 0/
s/^kind = "embedded"/kind = "bytes"/
s/^slices = .*/slices = 2/
s/^rows_per_slice = .*/rows_per_slice = 2/
s/^seq_len = .*/seq_len = 256/
s/^object_bytes = .*/object_bytes = "64KiB"/
s/^max_steps = 0/max_steps = 1500/
"""
CONSUMER_EDIT = """
/^\\[job\\]/,/^\\[arena\\]/ s/^name = .*/name = "training"/
s/^open = false/open = true/
/^\\[arena\\]/,/^\\[socket\\]/ s/^bytes = .*/bytes = "128MiB"/
s/^segment_bytes = .*/segment_bytes = "16MiB"/
"""
EVAL_EDIT = """
s#^path = .*#path = "/run/batchweave-eval/consumer.sock"#
s/^listen = .*/listen = "127.0.0.1:9475"/
/^\\[job\\]/,/^\\[arena\\]/ s/^name = .*/name = "eval"/
s/^holds = true/holds = false/
s/^paces = true/paces = false/
"""
SLURM_EDIT = 's/^bytes = .*/bytes = "64MiB"/'
SLURM_JOB = "SLURM_JOB_ID=4711 SLURM_JOB_COMMENT=batchweave:corpus:pretrain"
SLURM_FOLDER = "/usr/local/share/batchweave/slurm"

# A step returns what it has seen, for the summary.
Step = Callable[[], str]


class Story:
    """All steps in their order, on one node."""

    def __init__(self, node: Node, page: Page) -> None:
        self.node = node
        self.page = page

    def steps(self) -> Iterator[tuple[str, Step]]:
        """Returns names and functions of the steps."""
        yield "install", self.install
        yield "credentials", self.credentials
        yield "consumer waits for its stream", self.consumer
        yield "producer starts, consumer is ready", self.producer
        yield "another user reads 1,000 steps", self.trainer
        yield "SIGKILL of the consumer", self.sigkill
        yield "SIGSTOP until the watchdog", self.sigstop
        yield "systemctl restart and reload", self.restart
        yield "wrong configuration stays down", self.wrong_configuration
        yield "configuration of root alone", self.unreadable
        yield "producer: SIGKILL, wrong file", self.producer_faults
        yield "a second job on the node", self.second_job
        yield "page of the stream", self.stream_page
        yield "Slurm's prolog and epilog", self.slurm
        yield "reclaim timer", self.reclaim
        yield "upgrade under a running rank", self.upgrade
        yield "proof", self.proof
        yield "second boot", self.second_boot
        yield "removal", self.removal

    def install(self) -> str:
        """Follows the first block up to the start, and checks who may read what."""
        block = self.page.block(MAIN, "make install")
        output = self.node.follow(
            block, CONSUMER_EDIT, skip=("make build", "sudo systemctl enable", "systemctl status")
        )
        self.expect_modes()
        checked = next(text for title, text in output.items() if "--check=file" in title)
        return checked.strip().splitlines()[-1]

    def expect_modes(self) -> None:
        """Checks that daemons read configurations, root alone keys, and others neither."""
        run = self.node.run
        run("runuser -u batchweave -- cat /etc/batchweave/consumer.toml")
        if run("runuser -u nobody -- cat /etc/batchweave/consumer.toml", check=False)[0] == 0:
            raise StepError("every user can read /etc/batchweave/consumer.toml")
        modes = run(
            "stat -c '%a %U:%G %n' /etc/batchweave /etc/batchweave/* /etc/credstore/*", check=False
        )[1]
        for line in modes.splitlines():
            if not line.startswith(
                ("2750 root:batchweave", "640 root:batchweave", "600 root:", "stat:")
            ):
                raise StepError(f"wrong mode: {line}")

    def credentials(self) -> str:
        """Gives the daemons keys and the endpoint."""
        self.node.follow(self.page.block(MAIN, "/etc/credstore"))
        tee = f"printf '{ENVIRONMENT}' | sudo tee /etc/batchweave/environment"
        self.node.run(tee, user="engineer")
        self.node.run("sudo systemd-tmpfiles --create batchweave.conf", user="engineer")
        self.expect_modes()
        return "keys and environment for root alone"

    def consumer(self) -> str:
        """Starts the consumer, whose stream is not there yet."""
        block = self.page.block(MAIN, "make install")
        begin = next(n for n, one in enumerate(block.commands) if "enable --now" in one)
        for command in block.commands[begin:]:
            self.node.run(command, user="engineer", folder=CHECKOUT, check="status" not in command)
        waits = "waiting for the stream"
        self.node.eventually(
            "a status", lambda: waits in self.node.property(CONSUMER, "StatusText"), 60
        )
        log = self.node.run(f"journalctl -u {CONSUMER} -o cat")[1]
        if odd := [line for line in log.splitlines() if " WARN " in line and waits not in line]:
            raise StepError(f"warnings at a first start: {odd}")
        return self.node.property(CONSUMER, "StatusText")

    def producer(self) -> str:
        """Follows the producer's block."""
        self.node.follow(self.page.block(MAIN, "producer-tokens-0"), PRODUCER_EDIT)
        self.node.active(PRODUCER)
        self.node.active(CONSUMER)
        return self.node.property(PRODUCER, "StatusText")

    def trainer(self) -> str:
        """Lets another user in by the page's commands; its rank reads until the proof."""
        self.node.follow(self.page.block("Trainers and the socket", "usermod"))
        self.node.active(CONSUMER)
        began = time.time()
        self.node.begin_training("training")
        self.node.reads_on(0, 1000)
        return f"1,000 steps in {time.time() - began:.1f} s"

    def fault(self, cause: str) -> str:
        """Causes a fault; waits until another consumer is ready and the rank reads on."""
        node = self.node
        before, since = node.property(CONSUMER, "MainPID"), time.time()
        node.run(cause)
        node.eventually(
            "another process", lambda: node.property(CONSUMER, "MainPID") not in (before, "0")
        )
        node.active(CONSUMER)
        node.reads_on(time.time())
        return f"the rank waited {node.reads_on(since):.1f} s"

    def sigkill(self) -> str:
        """Kills the consumer."""
        return self.fault(f"systemctl kill -s KILL {CONSUMER}")

    def sigstop(self) -> str:
        """Freezes the consumer."""
        text = self.fault(f"systemctl kill -s STOP {CONSUMER}")
        log = self.node.run(f"journalctl -u {CONSUMER} -o cat")[1]
        if "Watchdog timeout" not in log:
            raise StepError(f"no watchdog in the journal:\n{log[-1500:]}")
        return text

    def restart(self) -> str:
        """Restarts it as an administrator does, and applies another log level."""
        text = self.fault(f"systemctl restart {CONSUMER}")
        edit = "sudo sed -i 's/^level = .*/level = \"debug\"/' /etc/batchweave/consumer.toml"
        self.node.run(f"{edit} && sudo systemctl reload {CONSUMER}", user="engineer")
        log = f"journalctl -u {CONSUMER} -o cat"
        self.node.eventually(
            "a new level", lambda: "log.level is debug" in self.node.run(log)[1], 60
        )
        self.node.run(edit.replace("debug", "info"), user="engineer")
        self.node.run(f"sudo systemctl reload {CONSUMER}", user="engineer")
        return text

    def wrong_configuration(self) -> str:
        """Restarts with an unknown key, then without."""
        since = time.time()
        self.node.run("sed -i 's/^segment_bytes/segment_bites/' /etc/batchweave/consumer.toml")
        if self.node.run(f"systemctl restart {CONSUMER}", check=False)[0] == 0:
            raise StepError("`systemctl restart` succeeds with a wrong configuration")
        line = self.node.stays_down(CONSUMER, 64, "segment_bites")
        self.node.run("sed -i 's/^segment_bites/segment_bytes/' /etc/batchweave/consumer.toml")
        self.node.run(f"systemctl restart {CONSUMER}")
        self.node.reads_on(since)
        return line

    def unreadable(self) -> str:
        """Takes the file from the daemon; the page's command gives it back."""
        self.node.run("chown root:root /etc/batchweave/consumer.toml")
        self.node.run(f"systemctl restart {CONSUMER}", check=False)
        line = self.node.stays_down(CONSUMER, 64, "cannot read it")
        since = time.time()
        self.node.run("sudo systemd-tmpfiles --create batchweave.conf", user="engineer")
        self.node.run(f"systemctl restart {CONSUMER}")
        self.node.reads_on(since)
        return line

    def producer_faults(self) -> str:
        """Kills the producer; then gives it a wrong file."""
        node, file = self.node, "/etc/batchweave/producer-tokens-0.toml"
        node.run(f"systemctl kill -s KILL {PRODUCER}")
        node.eventually("a restart", lambda: node.property(PRODUCER, "NRestarts") == "1")
        node.active(PRODUCER)
        node.run(
            f"sed -i 's/^seq_len/seq_length/' {file}; systemctl restart {PRODUCER}", check=False
        )
        line = node.stays_down(PRODUCER, 64, "seq_length")
        node.run(f"sed -i 's/^seq_length/seq_len/' {file}; systemctl restart {PRODUCER}")
        node.reads_on(time.time())
        return line

    def second_job(self) -> str:
        """Starts an instance from a mere copy, which must disturb nobody, then as the page says."""
        node, block = self.node, self.page.block("Several jobs on a node", "consumer-eval")
        unit, since = f"{CONSUMER}@eval", time.time()
        node.follow(block)
        line = node.stays_down(unit, 64, "batchweave-consumer: ")
        node.reads_on(since)
        node.run("rm /etc/batchweave/consumer-eval.toml")
        node.follow(block, EVAL_EDIT)
        node.run("sudo systemctl restart --no-block batchweave-consumer@eval", user="engineer")
        node.active(unit)
        reader = node.begin_training("eval", 200, "/run/batchweave-eval/consumer.sock")
        return f"{node.ended(reader)}; a mere copy: {line}"

    def stream_page(self) -> str:
        """Starts the page of the stream, and reads it."""
        node = self.node
        node.follow(self.page.block(MAIN, "ui-main.env"))
        options = "BATCHWEAVE_UI_OPTIONS=--daemon 127.0.0.1:9465 --every 1s"
        node.run(
            f"echo '{options}' >>/etc/batchweave/ui-main.env; systemctl restart batchweave-ui@main"
        )
        read = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9466/stream.json').read().decode())"
        ask = f'python3 -c "{read}"'
        node.eventually(
            "the daemon on the page", lambda: "9465" in node.run(ask, check=False)[1], 60
        )
        return "http://127.0.0.1:9466/ shows the consumer"

    def slurm(self) -> str:
        """Runs a job between prolog and epilog."""
        node = self.node
        node.follow(self.page.block("With Slurm", "slurm-corpus"), SLURM_EDIT)
        uid = node.run("id -u trainer")[1].strip()
        node.run(f"env -i {SLURM_JOB} SLURM_JOB_UID={uid} {SLURM_FOLDER}/prolog")
        reader = node.begin_training("pretrain", 200, "/run/batchweave-slurm-4711/consumer.sock")
        text = node.ended(reader)
        node.run(f"env -i {SLURM_JOB} SLURM_JOB_UID={uid} {SLURM_FOLDER}/epilog")
        left = "ls -d /run/batchweave-slurm-4711 /etc/batchweave/consumer-slurm-4711.toml"
        if (
            "4711"
            in node.run(
                f"{left} 2>/dev/null; systemctl list-units --all --no-legend '*4711*'", check=False
            )[1]
        ):
            raise StepError("the epilog left something behind")
        node.cli("job close pretrain --force --reason 'the job of Slurm has ended'")
        return f"{text}; nothing left after the epilog"

    def reclaim(self) -> str:
        """Starts the timer; shortens it to see a pass."""
        node, timer = self.node, "batchweave-reclaim@main.timer"
        shown = node.follow(self.page.block(MAIN, "reclaim-main.env"))
        if not any(timer in text for title, text in shown.items() if "list-timers" in title):
            raise StepError(f"no {timer} in list-timers: {shown}")
        soon = "[Timer]\nOnBootSec=\nOnBootSec=1s\nRandomizedDelaySec=0\n"
        node.machine.write(f"/etc/systemd/system/{timer}.d/soon.conf", soon)
        node.run(f"systemctl daemon-reload; systemctl restart {timer}")
        service = "batchweave-reclaim@main.service"
        log = f"journalctl -u {service} -o cat"
        node.eventually(
            "a pass",
            lambda: "Deactivated successfully" in node.run(log)[1] or "Failed" in node.run(log)[1],
            120,
        )
        text = node.run(log)[1]
        if "Failed" in text:
            raise StepError(f"the pass failed:\n{text}")
        node.run(f"rm -r /etc/systemd/system/{timer}.d; systemctl daemon-reload")
        return node.run(f"{log} -t batchweave")[1].strip().splitlines()[-1]

    def upgrade(self) -> str:
        """Installs again over the running daemons, and restarts them."""
        node, since = self.node, time.time()
        before = node.run("md5sum /etc/batchweave/*")[1]
        node.follow(self.page.block("Upgrade and removal", "try-restart"), skip=("make build",))
        self.expect_modes()
        if node.run("md5sum /etc/batchweave/*")[1] != before:
            raise StepError("an upgrade changed a configuration")
        for unit in (CONSUMER, PRODUCER, f"{CONSUMER}@eval", "batchweave-ui@main"):
            node.active(unit)
        node.reads_on(time.time())
        return f"the rank waited {node.reads_on(since):.1f} s"

    def proof(self) -> str:
        """Ends the stream; the rank reads to its end."""
        node = self.node
        node.run(f"systemctl stop {PRODUCER}")
        node.cli("seal --reason 'the end of the trial'")
        node.run("touch /srv/trainer/training/hurry")
        last = node.ended(node.trainers[0])
        node.eventually(
            "proved", lambda: node.cli("verify --job training", check=False)[0] == 0, 60
        )
        proved = [
            line for line in node.cli("verify --job training")[1].splitlines() if "proved" in line
        ]
        print(f"verify --job: {proved[0] if proved else '?'}", flush=True)
        if not proved or not proved[0].startswith("proved"):
            raise StepError(node.cli("verify --job training")[1])
        return last

    def second_boot(self) -> str:
        """Boots again: what was enabled runs."""
        node = self.node
        node.machine.halt()
        text = node.machine.boot()
        for unit in (
            CONSUMER,
            f"{CONSUMER}@eval",
            "batchweave-reclaim@main.timer",
            "batchweave-ui@main",
        ):
            node.active(unit)
        self.expect_modes()
        return text

    def removal(self) -> str:
        """Follows the block on removal; nothing may be left."""
        node = self.node
        node.follow(self.page.block("Upgrade and removal", "make uninstall"))
        ours = " -o ".join(
            f"-path {folder}" for folder in ("/proc", "/srv", "/usr/local/lib/live", "/var/log")
        )
        find = f"find / -xdev \\( {ours} \\) -prune -o -iname '*batchweave*' -print"
        left = node.run(f"{find}; getent passwd batchweave", check=False)[1]
        units = node.run("systemctl list-units --all --no-legend --no-pager 'batchweave-*'")[1]
        if left.strip() or units.strip():
            raise StepError(f"left behind: {left} {units}")
        return "no file, unit or user is left"
