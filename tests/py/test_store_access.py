"""Ways to the store: rotated keys, credential_process, SSO, proxies, and virtual-hosted buckets."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hosts import CREDENTIALS
from logging_proxy import LoggingProxy
from site_of_daemons import BINARIES, Site, eventually
from test_store_tls import Proxy as TlsFront
from test_store_tls import certificates

SECRET = CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
WRONG, UNAVAILABLE, NO_STREAM = 64, 69, 73


class Store:
    """A dev-s3 in a folder, which can be started again with another access key."""

    def __init__(self, folder: Path, key: str = "batchweave", listen: str = "127.0.0.1:0") -> None:
        self.folder = folder
        self.start(key, listen)

    def start(self, key: str, listen: str) -> None:
        words = ["dev-s3", "--listen", listen, "--json", "--access-key", key]
        self.process = subprocess.Popen(
            [str(BINARIES / "batchweave"), *words, "--dir", str(self.folder / "objects")],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        self.endpoint: str = json.loads(self.process.stdout.readline())["endpoint"]
        self.port = int(self.endpoint.rsplit(":", 1)[1])

    def revoke_for(self, key: str) -> None:
        """Accept this key alone from now on."""
        self.stop()
        self.start(key, f"127.0.0.1:{self.port}")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    yield store
    store.stop()


def clean(**more: str) -> dict[str, str]:
    """Return the environment without that of AWS and of proxies."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("AWS_") and not name.lower().endswith("_proxy")
    }
    off = {"AWS_EC2_METADATA_DISABLED": "true", "AWS_REGION": "us-east-1"}
    files = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    return {**kept, **off, **files, **more}


def only(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this the environment of the daemons of a site."""
    for name in list(os.environ):
        if name not in env:
            monkeypatch.delenv(name)
    for name, value in env.items():
        monkeypatch.setenv(name, value)


def status(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BINARIES / "batchweave", "--store", "s3://batchweave/none", "status"],
        env=env,
        text=True,
        capture_output=True,
        check=False,
        timeout=120,
    )


def reaches(env: dict[str, str]) -> None:
    """Check that the store answers, which has no stream."""
    answered = status(env)
    assert answered.returncode == NO_STREAM, answered.stderr
    assert "no stream" in answered.stderr


def alive(site: Site) -> bool:
    return all(process.poll() is None for process in site.processes)


def test_daemons_follow_keys_that_are_rotated_in_the_file(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"

    def write(key: str) -> None:
        new = tmp_path / "keys.new"
        new.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {SECRET}\n")
        new.replace(keys)

    write("batchweave")
    env = clean(AWS_SHARED_CREDENTIALS_FILE=str(keys), AWS_ENDPOINT_URL=store.endpoint)
    only(env, monkeypatch)
    site = Site(tmp_path, "s3://batchweave/stream")
    try:
        site.run()
        eventually("batches", lambda: site.delivered > 60, output=site.logs)
        for number, key in enumerate(["second", "third"]):
            write(key)
            store.revoke_for(key)
            before = site.delivered
            eventually(
                f"batches with the {key} key",
                lambda: not alive(site) or site.delivered > before + 300,  # noqa: B023
                output=site.logs,
            )
            assert alive(site), site.logs()
            for program in ("batchweave-producer", "batchweave-consumer"):
                changes = site.log(program).count("the store's credentials have changed")
                assert changes == number + 1, site.logs()
    finally:
        site.end()


def test_a_credential_process_is_run(store: Store, tmp_path: Path) -> None:
    answer = {"Version": 1, "AccessKeyId": "batchweave", "SecretAccessKey": SECRET}
    (tmp_path / "keys.json").write_text(json.dumps(answer))
    config = tmp_path / "config"
    config.write_text(f"[profile made]\ncredential_process = cat {tmp_path}/keys.json\n")
    env = clean(AWS_CONFIG_FILE=str(config), AWS_ENDPOINT_URL=store.endpoint)
    reaches({**env, "AWS_PROFILE": "made"})
    config.write_text("[profile made]\ncredential_process = false\n")
    failed = status({**env, "AWS_PROFILE": "made"})
    assert failed.returncode == UNAVAILABLE, failed.stderr
    assert "no credentials" in failed.stderr


@pytest.fixture
def portal() -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A stand-in for the portal of AWS SSO: its address, and the requests with their tokens."""
    seen: list[tuple[str, str | None]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers.get("x-amz-sso_bearer_token")))
            role = {
                "accessKeyId": "batchweave",
                "secretAccessKey": SECRET,
                "sessionToken": "session",
                "expiration": 4102444800000,
            }
            body = json.dumps({"roleCredentials": role}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Log nothing, as the record is kept."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", seen
    server.shutdown()


def test_a_profile_of_sso_takes_its_keys_from_the_portal(
    store: Store, tmp_path: Path, portal: tuple[str, list[tuple[str, str | None]]]
) -> None:
    address, seen = portal
    config = tmp_path / "config"
    config.write_text(
        "[profile corp]\nsso_session = corp\nsso_account_id = 123456789012\n"
        "sso_role_name = trainer\n\n[sso-session corp]\nsso_region = eu-west-1\n"
        "sso_start_url = https://corp.awsapps.example/start\n"
    )
    cache = tmp_path / ".aws" / "sso" / "cache"
    cache.mkdir(parents=True)
    login = {"accessToken": "of-the-login", "expiresAt": "2099-12-31T00:00:00Z"}
    name = hashlib.sha1(b"corp", usedforsecurity=False).hexdigest()
    (cache / f"{name}.json").write_text(json.dumps(login))
    env = clean(
        HOME=str(tmp_path),
        AWS_CONFIG_FILE=str(config),
        AWS_PROFILE="corp",
        AWS_ENDPOINT_URL_SSO=address,
        AWS_ENDPOINT_URL_S3=store.endpoint,
    )
    reaches(env)
    path, token = seen[0]
    assert path.startswith("/federation/credentials?"), seen
    assert "role_name=trainer" in path, seen
    assert "account_id=123456789012" in path, seen
    assert token == "of-the-login", seen


def train(site: Site, proxy: LoggingProxy, env: dict[str, str], extra: str = "") -> None:
    """Run both daemons by the proxy, each as a user of its own."""
    for role in ("producer", "consumer"):
        by = {name: proxy.url(role) for name in ("HTTP_PROXY", "HTTPS_PROXY")}
        config = getattr(site, f"{role}_config")(extra)
        site.start(f"batchweave-{role}", "--config", str(config), env={**env, **by})
    site.train()
    eventually("batches by the proxy", lambda: site.delivered > 60, output=site.logs)


def assert_both(proxy: LoggingProxy) -> None:
    """Check that the proxy has seen reads and writes of both daemons, and reads of ranges."""
    assert {"GET", "PUT"} <= {one.method for one in proxy.of("producer")}
    assert {"GET", "PUT"} <= {one.method for one in proxy.of("consumer")}
    direct = [one for one in proxy.of("consumer") if "range" in one.headers]
    assert any(one.headers["user-agent"].startswith("batchweave/") for one in direct), direct[:3]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    only(clean(**CREDENTIALS), monkeypatch)
    site = Site(tmp_path, "s3://batchweave/stream")
    yield site
    site.end()


def test_a_proxy_carries_all_requests_of_both_daemons(store: Store, site: Site) -> None:
    # Only the proxy knows the name, so nothing can go another way.
    proxy = LoggingProxy({"store.example:9000": ("127.0.0.1", store.port)})
    train(site, proxy, {"AWS_ENDPOINT_URL": "http://store.example:9000"})
    assert_both(proxy)
    assert alive(site), site.logs()
    assert "go through the SDK" not in site.logs()
    proxy.close()


def test_a_bucket_is_named_in_the_host_where_the_store_wants_it(store: Store, site: Site) -> None:
    host = f"batchweave.localhost:{store.port}"
    proxy = LoggingProxy({host: ("127.0.0.1", store.port)})
    endpoint = f"http://localhost:{store.port}"
    train(site, proxy, {"AWS_ENDPOINT_URL": endpoint}, "store.path_style = false\n")
    assert_both(proxy)
    for one in list(proxy.seen):
        assert one.headers["host"] == host, one
        assert one.target.startswith(f"http://{host}/"), one
        assert not one.target.startswith(f"http://{host}/batchweave/"), one
    proxy.close()
    env = clean(**CREDENTIALS, AWS_ENDPOINT_URL=store.endpoint)
    address = status({**env, "BATCHWEAVE_PATH_STYLE": "false"})
    assert address.returncode == WRONG, address.stderr
    assert "127.0.0.1 is an address" in address.stderr
    wrong = status({**env, "BATCHWEAVE_PATH_STYLE": "no"})
    assert "BATCHWEAVE_PATH_STYLE: invalid path style" in wrong.stderr


WRITER = """
import batchweave.inbox
with batchweave.inbox.open("s3://batchweave/inbox", "writer") as inbox:
    inbox.put({"text": "a"})
    inbox.flush()
"""


def test_writers_of_inboxes_go_the_same_way(store: Store) -> None:
    host = f"batchweave.localhost:{store.port}"
    proxy = LoggingProxy({host: ("127.0.0.1", store.port)})
    env = clean(
        **CREDENTIALS,
        AWS_ENDPOINT_URL=f"http://localhost:{store.port}",
        HTTP_PROXY=proxy.url("writer"),
        BATCHWEAVE_PATH_STYLE="false",
    )
    command = [sys.executable, "-c", WRITER]
    subprocess.run(command, env=env, check=True, timeout=120)
    puts = [one for one in proxy.of("writer") if one.method == "PUT"]
    assert puts
    for one in proxy.seen:
        assert one.target.startswith(f"http://{host}/"), one
    assert any(one.target.startswith(f"http://{host}/inbox/writer/") for one in puts), puts
    proxy.close()


def test_tls_goes_through_a_tunnel(store: Store, site: Site, tmp_path: Path) -> None:
    certificates(tmp_path)
    front = TlsFront(tmp_path, store.endpoint.removeprefix("http://"))
    proxy = LoggingProxy({"store.example:443": ("127.0.0.1", front.server.server_address[1])})
    trusted = {"SSL_CERT_FILE": str(tmp_path / "ca.pem")}
    train(site, proxy, {"AWS_ENDPOINT_URL": "https://store.example", **trusted})
    for role in ("producer", "consumer"):
        requests = proxy.of(role)
        assert requests, role
        assert {(one.method, one.target) for one in requests} == {("CONNECT", "store.example:443")}
    ranges = [headers for _, _, headers in front.seen if "range" in headers]
    assert any(one["user-agent"].startswith("batchweave/") for one in ranges)
    assert "go through the SDK" not in site.logs()
    front.server.shutdown()
    proxy.close()


def test_exceptions_from_the_proxy_are_reached_directly(tmp_path: Path) -> None:
    # 0.0.0.0 is this machine, but not by a name that is never sent to a proxy.
    store = Store(tmp_path, listen="0.0.0.0:0")
    endpoint = f"http://0.0.0.0:{store.port}"
    proxy = LoggingProxy({})
    env = clean(**CREDENTIALS, AWS_ENDPOINT_URL=endpoint, HTTP_PROXY=proxy.url())
    try:
        reaches(env)
        assert proxy.seen
        proxy.seen.clear()
        for exception in ({"NO_PROXY": "0.0.0.0"}, {"no_proxy": "0.0.0.0/8"}):
            reaches({**env, **exception})
        reaches({**env, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{store.port}"})
        assert not proxy.seen
        proxy.close()
        gone = status({**env, "HTTP_PROXY": "http://127.0.0.1:1"})
        assert gone.returncode == UNAVAILABLE, gone.stderr
        assert "through the proxy 127.0.0.1:1" in gone.stderr
        for wrong in ("socks5://127.0.0.1:1080", "http://"):
            refused = status({**env, "HTTP_PROXY": wrong})
            assert refused.returncode == WRONG, refused.stderr
            assert "invalid HTTP_PROXY: expected the URL of a proxy" in refused.stderr
    finally:
        store.stop()
