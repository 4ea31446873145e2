"""Hosts with networks of their own: a cable pulled, a slow store, a narrow link; and at the end
every token at every rank exactly once.

BATCHWEAVE_PICTURES=FOLDER keeps `account.txt`, what an operator saw, and pictures of the status
page; with BATCHWEAVE_LONG each trouble lasts long enough for alerts, which a Prometheus server
raises. docs/operations.md shows such a run.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import time
import urllib.parse
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dashboard_svg import Series, draw, series
from hosts import ADMIN_PORT, NAMES, Training, forbidden
from site_of_daemons import ROOT, eventually

PICTURES = os.environ.get("BATCHWEAVE_PICTURES")
LONG = bool(os.environ.get("BATCHWEAVE_LONG"))
DAEMONS = NAMES[:4]
WATCHED = re.compile(r"^batchweave_consumer_(rank_wait_seconds_total|rank_step|ahead_steps)\{")


class Account:
    """A record of what an operator sees during the run."""

    def __init__(self, training: Training, folder: Path) -> None:
        self.training = training
        self.folder = folder
        self.text = ""
        self.read: dict[str, int] = {}
        self.began = time.time()
        self.moments: list[tuple[float, str]] = []

    def chapter(self, title: str) -> None:
        """Record an event."""
        self.moments.append((time.time(), str(len(self.moments))))
        print(f"{time.strftime('%X')} {title}: ranks at {self.training.steps(0)}, "
              f"{self.training.steps(1)}")  # fmt: skip
        self.text += f"\n=== {title}\n"

    def record_state(self) -> None:
        """Record each daemon's /readyz, waits, alerts, and new log lines."""
        for name in DAEMONS:
            line = self.training.page(name, "/readyz").strip()
            self.text += f"{name}: {line or 'does not answer'}\n"
        for name in ("trainer-0", "trainer-1"):
            metrics = self.training.page(name, "/metrics").splitlines()
            self.text += "".join(f"{name}: {one}\n" for one in metrics if WATCHED.match(one))
        for name in DAEMONS:
            log = self.training.log(name)
            self.text += log[self.read.get(name, 0) :]
            self.read[name] = len(log)
        if "prometheus" in self.training.processes:
            self.text += f"alerts: {', '.join(self.alerts()) or 'none'}\n"

    def ask(self, *words: str) -> None:
        """Record a command of the operator and its output."""
        self.text += f"$ batchweave {' '.join(words)}\n{self.training.batchweave(*words)}"

    def picture(self, name: str, title: str) -> None:
        """Save the status page of a daemon, if pictures are requested."""
        if not PICTURES or not shutil.which("chromium"):
            return
        url = f"http://{self.training.address(name)}:{ADMIN_PORT}/"
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1100,1250"]
        options += [f"--user-data-dir={self.folder / 'browser'}", "--virtual-time-budget=6000"]
        options += [f"--screenshot={Path(PICTURES) / title}.png"]
        self.training.run(name, "chromium", *options, url)

    def dashboard(self, title: str, *rows: str) -> None:
        """Draw rows of the dashboard over the whole run, with numbered chapters."""
        if not PICTURES or "prometheus" not in self.training.processes:
            return
        span = (self.began, time.time())

        def ask(expression: str) -> list[Series]:
            # Minutes of a long run are seconds of this one.
            asked = expression.replace("[5m]", "[20s]")
            words = {"query": asked, "start": span[0], "end": span[1], "step": 2}
            url = f"http://{self.training.address('store')}:9090/api/v1/query_range?"
            answer = self.training.run("store", "curl", "-s", url + urllib.parse.urlencode(words))
            return series(answer)

        drawn = draw(ask, span, self.moments[1:], only=rows, window="20s")
        for number in (0, 1):
            for job in ("producer", "trainer"):
                address = f"{self.training.address(f'{job}-{number}')}:{ADMIN_PORT}"
                drawn = drawn.replace(address, f"{job}-{number}")
        (Path(PICTURES) / f"{title}.svg").write_text(drawn)

    def watch(self) -> None:
        """Run a Prometheus server with the shipped rules and short intervals."""
        rules = ROOT / "deploy" / "prometheus"
        text = (rules / "prometheus.yml").read_text().replace("15s", "1s")
        for job, port in [("producer", 9464), ("trainer", 9465)]:
            hosts = [f'"{self.training.address(f"{job}-{n}")}:{ADMIN_PORT}"' for n in (0, 1)]
            text = re.sub(rf'"?127\.0\.0\.1:{port}"?', ", ".join(hosts), text)
        (self.folder / "prometheus.yml").write_text(text)
        recorded = (rules / "rules.yml").read_text().replace("[5m]", "[20s]")
        (self.folder / "rules.yml").write_text(recorded)
        alerts = re.sub(r"for: \d+[mh]", "for: 10s", (rules / "alerts.yml").read_text())
        (self.folder / "alerts.yml").write_text(alerts.replace("[5m]", "[1m]"))
        self.training.start(
            *("store", "prometheus", "prometheus"),
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'tsdb'}",
            f"--web.listen-address={self.training.address('store')}:9090",
        )

    def alerts(self) -> list[str]:
        """Return the firing alerts, with their hosts."""
        query = urllib.parse.quote('ALERTS{alertstate="firing"}')
        url = f"http://{self.training.address('store')}:9090/api/v1/query?query={query}"
        found = json.loads(self.training.run("store", "curl", "-s", url))["data"]["result"]
        hosts = {self.training.address(name): name for name in NAMES}
        named = [one["metric"] for one in found]
        return sorted({f"{m['alertname']} ({hosts[m['instance'].split(':')[0]]})" for m in named})


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    training = Training(tmp_path)
    try:
        yield training
    finally:
        training.end()


# Seconds between two requests of a page, each by two processes on its host.
PAUSE = 0.5


def on(training: Training, more: int, what: str) -> None:
    """Wait until both ranks have received this many more steps."""
    goals = [training.steps(rank) + more for rank in (0, 1)]
    eventually(what, lambda: all(training.steps(rank) >= goals[rank] for rank in (0, 1)))


def waited(training: Training, number: int) -> dict[str, float]:
    """Return the seconds that a rank has waited, by cause."""
    page = training.page(f"trainer-{number}", "/metrics")
    found = re.findall(r'wait_seconds_total\{cause="(\w+)",.*\} (\S+)', page)
    return defaultdict(float, {cause: float(seconds) for cause, seconds in found})


def lasts(seconds: float, seen: Callable[[], bool], what: str) -> None:
    """Keep a failure until it is detected; in a long run, for this time."""
    began = time.monotonic()
    eventually(what, seen, pause=PAUSE)
    time.sleep(max(0.0, began + seconds - time.monotonic()) if LONG else 0.0)


def test_troubles_of_the_network_cost_time_and_no_token(training: Training, tmp_path: Path) -> None:
    if why := forbidden():
        warnings.warn(f"NOT CHECKED: several hosts: {why}", stacklevel=1)
        return
    account = Account(training, tmp_path)
    training.store()
    for number in (0, 1):
        training.produce(number)
        training.train(number)
    if LONG:
        account.watch()
    on(training, 100, "both ranks at work")
    account.chapter("all is well")
    account.record_state()

    training.cable("producer-0", "down")
    account.chapter("the cable of producer-0 is pulled: the other producer goes on alone")
    on(training, 250, "training without one producer")
    lasts(60, lambda: True, "")
    account.record_state()
    account.ask("status")
    training.cable("producer-0", "up")

    training.cable("trainer-0", "down")
    account.chapter("the cable of trainer-0 is pulled: its rank uses up what was read ahead")
    fails = "the store fails"
    lasts(60, lambda: fails in training.page("trainer-0", "/readyz"), "a daemon that says so")
    cause = "store_unavailable"
    for what, rank, why in [
        ("a wait that counts while it lasts", 0, cause),
        ("a rank that waits for producers", 1, "producing"),
    ]:
        eventually(what, lambda r=rank, w=why: waited(training, r)[w] > 1, pause=PAUSE)  # type: ignore[misc]
    account.record_state()
    account.ask("job", "show", "training")
    account.picture("trainer-0", "cable-pulled")
    account.dashboard("dashboard-answers", "Is training fed?", "Who waits")
    held = training.page("producer-1", "/readyz")
    assert "held back by job training" in held, held
    training.cable("trainer-0", "up")
    on(training, 100, "training after the cable is back")
    account.chapter("the cable is back")
    account.record_state()

    training.store("--latency=s3-standard", "--faults=slow=0.3", "--seed=1")
    account.chapter("the store is slow, and refuses three requests of ten")
    on(training, 200, "training with a slow store")
    lasts(30, lambda: True, "")
    account.record_state()
    training.store()

    training.bandwidth("trainer-1", "200kbit")
    account.chapter("the link of trainer-1 is cut to 200 kbit/s, half of what it needs")
    before = waited(training, 1)["fetching"]
    lasts(40, lambda: waited(training, 1)["fetching"] > before + 1, "a rank that waits")
    account.record_state()
    account.picture("trainer-1", "narrow-link")
    training.bandwidth("trainer-1", None)

    account.dashboard("dashboard-trends", "Trends: training")
    account.chapter("the end: producers are stopped, the stream is sealed")
    assert [training.stop(f"producer-{number}") for number in (0, 1)] == [0, 0]
    account.ask("seal", "--reason", "the end of the tour")
    ranks = [training.processes.pop(f"rank-{number}") for number in (0, 1)]
    assert [rank.wait(timeout=60) for rank in ranks] == [0, 0]
    assert [training.stop(f"trainer-{number}") for number in (0, 1)] == [0, 0]
    account.ask("verify", "--data")
    account.ask("verify", "--job", "training")
    if PICTURES:
        (Path(PICTURES) / "account.txt").write_text(account.text)
    whole_text(training)
    # A rank never held all of its credits here, whatever it waited for; a report may cross a
    # batch on the wire.
    full = re.findall(r'cause="held_frames".* (\S+)', account.text)
    assert all(float(seconds) < 1 for seconds in full), full


def whole_text(training: Training) -> None:
    """Check that the received steps, by producer, are all documents, once and in order."""
    end = training.status()["end"]
    slices = [training.received(rank) for rank in (0, 1)]
    for got in slices:
        assert [step for step, _ in got] == list(range(end)), "each step once, in order"
    texts: dict[str, bytearray] = {"tokens-0": bytearray(), "tokens-1": bytearray()}
    for step, name in enumerate(owners(training)):
        texts[name] += slices[0][step][1] + slices[1][step][1]
    for number in (0, 1):
        got_text = texts[f"tokens-{number}"]
        assert len(got_text) > 100_000
        documents = (f"{one}".encode() for one in itertools.cycle(training.documents[number::2]))
        expected = bytearray()
        while len(expected) < len(got_text):
            # Tokens are bytes in 16 bits; 256 ends a document.
            expected += b"".join(bytes((byte, 0)) for byte in next(documents)) + b"\0\1"
        assert got_text == expected[: len(got_text)], f"the documents of tokens-{number}"


def owners(training: Training) -> list[str]:
    """Return the producer of each step, from the log."""
    found: list[str] = []
    for line in training.batchweave("log", "--json", "--from", "0").splitlines():
        for entry in json.loads(line)["entries"]:
            if entry["kind"] == "batch" and entry["verdict"] == "applies":
                found += [entry["entry"]["producer"]] * len(entry["entry"]["tgbs"])
    return found
