"""TLS to the store with a private authority, and encryption at rest requested by header: a proxy
with a certificate stands before dev-s3 and keeps the headers that came.
"""

from __future__ import annotations

import http.client
import http.server
import json
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hosts import CREDENTIALS
from site_of_daemons import BINARIES, Site, eventually

HOP = {"connection", "transfer-encoding", "keep-alive", "content-length"}


def certificates(folder: Path) -> None:
    """Write an authority `ca.pem`, and `server.pem` with its key, for two names of this machine."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    new = ["-newkey", "rsa:2048", "-nodes", "-days", "2"]
    openssl("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=private")
    openssl("req", *new[:3], "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=store")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:store.example\n")
    openssl(
        *("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
        *("-CAcreateserial", "-days", "2", "-extfile", "names", "-out", "server.pem"),
    )


class Proxy:
    """HTTPS in front of a plain server, with a record of the requests."""

    def __init__(self, folder: Path, upstream: str) -> None:
        seen: list[tuple[str, str, dict[str, str]]] = []
        self.seen = seen

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                seen.append((self.command, self.path, headers))
                body = self.rfile.read(int(headers.get("content-length", 0)))
                plain = http.client.HTTPConnection(upstream, timeout=30)
                sent = {name: value for name, value in headers.items() if name not in HOP}
                plain.request(self.command, self.path, body=body, headers=sent)
                answer = plain.getresponse()
                text = answer.read()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in HOP:
                        self.send_header(name, value)
                length = answer.getheader("content-length") if self.command == "HEAD" else None
                self.send_header("content-length", length or str(len(text)))
                self.end_headers()
                self.wfile.write(text)
                plain.close()

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward  # noqa: N815

            def log_message(self, *_: Any) -> None:
                """Log nothing, as the record is kept."""

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 128

        self.server = Server(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem", folder / "server.key")
        # A connection's thread does the handshake at its first read: otherwise one slow client
        # would hold up all others.
        self.server.socket = context.wrap_socket(
            self.server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.endpoint = f"https://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    certificates(folder)
    return folder


@pytest.fixture(scope="module")
def proxy(folder: Path) -> Iterator[Proxy]:
    words = ["dev-s3", "--listen", "127.0.0.1:0", "--json"]
    store = subprocess.Popen(
        [str(BINARIES / "batchweave"), *words], stdout=subprocess.PIPE, text=True
    )
    assert store.stdout
    endpoint = json.loads(store.stdout.readline())["endpoint"]
    proxy = Proxy(folder, endpoint.removeprefix("http://"))
    yield proxy
    proxy.server.shutdown()
    store.kill()
    store.wait()


def environment(proxy: Proxy, authorities: Path | None) -> dict[str, str]:
    trusted = {"SSL_CERT_FILE": str(authorities)} if authorities else {}
    return {**os.environ, **CREDENTIALS, "AWS_ENDPOINT_URL": proxy.endpoint, **trusted}


def status(proxy: Proxy, authorities: Path | None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BINARIES / "batchweave", "--store", "s3://batchweave/none", "status"],
        env=environment(proxy, authorities),
        text=True,
        capture_output=True,
        check=False,
        timeout=60,
    )


def test_an_unknown_authority_is_refused_by_name(proxy: Proxy, folder: Path) -> None:
    refused = status(proxy, None)
    assert refused.returncode == 69, refused.stderr
    assert "certificate" in refused.stderr, refused.stderr
    assert "SSL_CERT_FILE" in refused.stderr, refused.stderr
    known = status(proxy, folder / "ca.pem")
    assert known.returncode == 73, known.stderr
    assert "no stream" in known.stderr


def test_daemons_work_over_tls_and_ask_for_encryption(
    proxy: Proxy, folder: Path, tmp_path: Path
) -> None:
    site = Site(tmp_path, "s3://batchweave/stream")
    env = environment(proxy, folder / "ca.pem")
    asked = 'store.encryption = "aws:kms"\nstore.kms_key = "alias/batches"\n'
    try:
        # No job holds it back at first: more commits than the proxy lets a consumer read would
        # leave that one behind for ever.
        producer = str(site.producer_config(asked + 'commit.latency_target = "1s"\n'))
        site.start("batchweave-producer", "--config", producer, env=env)
        site.start("batchweave-consumer", "--config", str(site.consumer_config(asked)), env=env)
        site.train()
        eventually("batches over TLS", lambda: site.delivered > 60)
    finally:
        site.end()
    sealed = subprocess.run(
        [BINARIES / "batchweave", "--store", site.url, "seal", "--reason", "a test"],
        env={**env, "BATCHWEAVE_ENCRYPTION": "aws:kms", "BATCHWEAVE_KMS_KEY": "alias/batches"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert sealed.returncode == 0, sealed.stderr
    puts = [one for one in proxy.seen if one[0] == "PUT" and "/stream/" in one[1]]
    assert {"data", "log", "jobs"} <= {path.split("/")[3].split(".")[0] for _, path, _ in puts}
    for _, path, headers in puts:
        assert headers.get("x-amz-server-side-encryption") == "aws:kms", path
        assert headers.get("x-amz-server-side-encryption-aws-kms-key-id") == "alias/batches", path
