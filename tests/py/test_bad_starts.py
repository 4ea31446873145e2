"""A daemon names at its start what the machine lacks: credentials, the socket's folder,
memory; and an admin endpoint that others can reach says so. (The notify socket:
test_service_manager.py.)
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from site_of_daemons import BINARIES, ROOT, Site, eventually, free_port, get

CONFIG, STORE_UNAVAILABLE = 64, 69


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.end()


def test_missing_credentials_are_named_with_the_file_that_was_looked_for(tmp_path: Path) -> None:
    command = [str(BINARIES / "batchweave"), "dev-s3", "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        endpoint = json.loads(server.stdout.readline())["endpoint"]
        site = Site(tmp_path, "s3://batchweave/stream")
        clean = {name: value for name, value in os.environ.items() if name[:4] != "AWS_"}
        # As in the unit: the place of a copy of /etc/credstore/batchweave.aws.
        lost = str(tmp_path / "credentials" / "batchweave.aws")
        clean |= {"AWS_SHARED_CREDENTIALS_FILE": lost, "AWS_EC2_METADATA_DISABLED": "true"}
        clean |= {"AWS_ENDPOINT_URL": endpoint}
        for daemon, config in [
            ("batchweave-producer", site.producer_config()),
            ("batchweave-consumer", site.consumer_config()),
        ]:
            ended = subprocess.run(
                [str(BINARIES / daemon), "--config", str(config)],
                env=clean,
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            assert ended.returncode == STORE_UNAVAILABLE, ended.stderr
            assert "no credentials: set AWS_PROFILE" in ended.stderr
            assert lost in ended.stderr
        server.kill()


def test_a_folder_for_the_socket_that_is_not_ours_is_named(site: Site) -> None:
    folder = site.folder / "not-ours"
    folder.mkdir(mode=0o555)
    config = site.consumer_config().read_text().replace(str(site.socket), f"{folder}/c.sock")
    path = site.config("consumer", config)
    command = [str(BINARIES / "batchweave-consumer"), "--config", str(path)]
    if os.geteuid() == 0:
        # Root may write everywhere.
        for above in path.parents:
            if above.stat().st_uid == 0 and len(above.parts) > 2:
                above.chmod(above.stat().st_mode | 0o055)
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == CONFIG, ended.stderr
    assert f"socket {folder}/c.sock: its folder can't be used: Permission denied" in ended.stderr
    assert "give it to this user" in ended.stderr


def forbidden() -> bool:
    """Return true if this machine allows mounts for one process."""
    tried = ["unshare", "--mount", "mount", "--bind", "/tmp", "/sys/fs/cgroup"]
    return not shutil.which("unshare") or subprocess.run(tried, capture_output=True).returncode != 0


def test_an_arena_beyond_the_limit_of_the_unit_is_named(site: Site) -> None:
    """MemoryMax= is `memory.max` of the unit's cgroup; here a folder replaces the cgroup."""
    limits = site.folder / "cgroup"
    limits.mkdir()
    (limits / "memory.max").write_text(f"{6 << 20}\n")
    (limits / "memory.current").write_text("1000000\n")
    program = str(BINARIES / "batchweave-consumer")
    command = [program, "--config", str(site.consumer_config())]
    own = Path("/proc/self/cgroup").read_text()
    if forbidden() or "0::/" not in own:
        print("NOT CHECKED with a cgroup: no mounts here; crates/consumer has one in a folder")
        config = site.consumer_config().read_text().replace('"8MiB"', '"1048576GiB"')
        command[-1] = str(site.config("consumer", config))
        limit = "more than this machine's memory"
    else:
        mounted = f"mount --bind {limits} /sys/fs/cgroup && exec {' '.join(command)}"
        command = ["unshare", "--mount", "sh", "-c", mounted]
        limit = f"8388608 bytes are more than the cgroup's memory limit of {6 << 20}"
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == CONFIG, ended.stderr
    assert f"arena.bytes: {limit}" in ended.stderr, ended.stderr
    assert "lower it, or give the machine or container more memory" in ended.stderr


def test_an_admin_endpoint_that_is_open_to_the_network_says_so(site: Site) -> None:
    port = free_port()
    config = site.producer_config().read_text()
    whole = config.replace(f"127.0.0.1:{site.producer_port}", f"0.0.0.0:{port}")
    path = site.config("producer", whole)
    site.start("batchweave-producer", "--config", str(path))
    eventually("an answer", lambda: get(port, "/healthz")[0] == 200)
    assert "the admin endpoint has no authentication and is open" in site.log("batchweave-producer")
    # An endpoint that listens on this machine only logs no warning.
    site.start("batchweave-consumer", "--config", str(site.consumer_config()))
    eventually("an answer", lambda: get(site.consumer_port, "/healthz")[0] == 200)
    assert "open to the network" not in site.log("batchweave-consumer")
    for name in ("producer", "consumer"):
        shipped = (ROOT / "config" / f"{name}.toml").read_text().split("[admin]")[1]
        assert re.search(r'^listen = "(off|127\.0\.0\.1:\d+)"$', shipped, re.MULTILINE)
