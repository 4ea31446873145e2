"""Notifications of the daemons to a service manager, received by a test double."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from site_of_daemons import Site, eventually


class Manager:
    """The socket that NOTIFY_SOCKET names, at the service manager's end."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        self.socket.setblocking(False)
        self.received: list[str] = []

    def environment(self, watchdog_seconds: float = 2.0) -> dict[str, str]:
        return {
            "NOTIFY_SOCKET": str(self.path),
            "WATCHDOG_USEC": str(int(watchdog_seconds * 1_000_000)),
        }

    def listen(self) -> list[str]:
        """Return all lines until now."""
        while True:
            try:
                self.received += self.socket.recv(65536).decode().split("\n")
            except BlockingIOError:
                return self.received

    def has_received(self, line: str) -> bool:
        return line in self.listen()

    def fed(self) -> bool:
        """Return true if a watchdog message arrived since the last call."""
        before = len(self.received)
        return "WATCHDOG=1" in self.listen()[before:]


@pytest.fixture
def manager(tmp_path: Path) -> Manager:
    return Manager(tmp_path)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.end()


def test_a_consumer_is_ready_when_its_stream_is_there_and_not_before(
    site: Site, manager: Manager
) -> None:
    config = str(site.consumer_config())
    site.start("batchweave-consumer", "--config", config, env=manager.environment())
    eventually(
        "a status that says what is waited for",
        lambda: any("waiting for the stream" in line for line in manager.listen()),
    )
    time.sleep(1.5)
    assert not manager.has_received("READY=1"), manager.received
    site.start("batchweave-producer", "--config", str(site.producer_config()))
    eventually("READY", lambda: manager.has_received("READY=1"))
    assert manager.received.count("READY=1") == 1
    consumer = site.processes[0]
    consumer.send_signal(signal.SIGTERM)
    assert consumer.wait(timeout=30) == 0
    assert manager.has_received("STOPPING=1")


def test_a_failed_start_reports_its_reason_in_one_line(site: Site, manager: Manager) -> None:
    config = site.consumer_config("no_such_key = 1\nnor_this = 2")
    refused = site.start("batchweave-consumer", "--config", str(config), env=manager.environment())
    assert refused.wait(timeout=60) == 64
    status = [line for line in manager.listen() if line.startswith("STATUS=")][-1]
    assert status.startswith(f"STATUS={config} has 2 problems: "), manager.received
    assert "no_such_key" in status
    assert "nor_this" in status


def test_the_watchdog_is_lost_when_the_daemon_is_stuck(site: Site, manager: Manager) -> None:
    site.start("batchweave-producer", "--config", str(site.producer_config()))
    config = str(site.consumer_config())
    consumer = site.start("batchweave-consumer", "--config", config, env=manager.environment())
    eventually("READY", lambda: manager.has_received("READY=1"))
    eventually("a watchdog that is fed", manager.fed)
    consumer.send_signal(signal.SIGSTOP)
    time.sleep(0.5)
    manager.fed()
    # A whole period without a message: the manager would kill the daemon now.
    time.sleep(2.0)
    assert not manager.fed(), manager.received
    consumer.send_signal(signal.SIGCONT)
    eventually("a watchdog that is fed again", manager.fed)


def test_a_producer_tells_too_and_a_manager_that_is_not_there_is_named(
    site: Site, manager: Manager, tmp_path: Path
) -> None:
    config = str(site.producer_config())
    nobody = {"NOTIFY_SOCKET": str(tmp_path / "nobody")}
    refused = site.start("batchweave-producer", "--config", config, env=nobody)
    assert refused.wait(timeout=30) == 64
    assert "NOTIFY_SOCKET" in site.log("batchweave-producer")
    site.start("batchweave-producer", "--config", config, env=manager.environment())
    eventually("READY", lambda: manager.has_received("READY=1"))
    eventually("a watchdog that is fed", manager.fed)


def test_a_reload_changes_the_level_and_a_broken_file_changes_nothing(
    site: Site, manager: Manager
) -> None:
    config = site.producer_config()
    producer = site.start("batchweave-producer", "--config", str(config), env=manager.environment())
    eventually("READY", lambda: manager.has_received("READY=1"))

    def reload(text: str) -> None:
        config.write_text(text)
        manager.listen()
        manager.received.clear()
        os.kill(producer.pid, signal.SIGHUP)
        eventually("RELOADING, then READY", lambda: manager.has_received("READY=1"))
        assert manager.received.index("RELOADING=1") < manager.received.index("READY=1")

    whole = config.read_text()
    reload(whole + '\nlog.level = "debug"\nupload.concurrency = 3\n')
    received = site.log("batchweave-producer")
    assert "log.level is debug" in received
    assert "next restart: upload.concurrency" in received
    reload(whole + "\nno such line\n")
    received = site.log("batchweave-producer")
    assert "keeping the old configuration" in received
    assert producer.poll() is None


def test_json_logs_are_objects_with_the_same_fields(site: Site, manager: Manager) -> None:
    path = site.producer_config('log.format = "json"')
    site.start("batchweave-producer", "--config", str(path), env=manager.environment())
    eventually("READY", lambda: manager.has_received("READY=1"))
    lines = [json.loads(line) for line in site.log("batchweave-producer").splitlines()]
    assert len(lines) > 1
    for line in lines:
        assert {"timestamp", "level", "target", "message"} <= set(line), line
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z$", line["timestamp"])
    producing = next(line for line in lines if line["message"] == "producing")
    assert (producing["producer"], producing["term"]) == ("tokens-0", 1)
