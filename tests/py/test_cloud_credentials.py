"""Credentials for gs:// and az://: a server with a certificate stands for the store and for the
servers of tokens, and keeps the headers that came.
"""

from __future__ import annotations

import base64
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
from site_of_daemons import BINARIES
from test_store_tls import certificates

NO_STREAM, WRONG, REFUSED = 73, 64, 69
GCS, AZURE = "gs://bucket/none", "abfss://box@acme.dfs.core.windows.net/none"
KEY = base64.b64encode(b"the secret of the account").decode()


class Cloud:
    """A store without objects, and the servers of tokens of both clouds, over TLS or plain."""

    def __init__(self, folder: Path | None) -> None:
        seen: list[tuple[str, dict[str, str]]] = []
        self.seen = seen
        # Answers show what came with the request.
        self.echoes = False
        cloud = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                seen.append((self.path, headers))
                self.rfile.read(int(headers.get("content-length", 0)))
                status = 404
                body: dict[str, Any] = {"error": {"message": "No such object", "errors": []}}
                if "token" in self.path:
                    status, body = 200, token(self.path)
                elif cloud.echoes:
                    status, body = 403, {"error": {"message": f"You sent {headers} {self.path}"}}
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815

            def log_message(self, *_: Any) -> None:
                """Log nothing, as the record is kept."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"{'http' if folder is None else 'https'}://127.0.0.1:{self.port}"
        if folder is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(folder / "server.pem", folder / "server.key")
            self.server.socket = context.wrap_socket(
                self.server.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def sent(self) -> list[str]:
        """Return the credentials of the requests to the store."""
        return [
            headers.get("authorization", "") for path, headers in self.seen if "token" not in path
        ]


def token(path: str) -> dict[str, str | int]:
    """Return an answer that each of the servers of tokens may give."""
    which = "machine" if "Metadata" in path or "resource=" in path else "workload"
    return {
        "access_token": f"token-of-the-{which}",
        "expires_in": 3600,
        "expires_on": "4102444800",
        "token_type": "Bearer",
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    certificates(folder)
    return folder


@pytest.fixture
def cloud(folder: Path) -> Iterator[Cloud]:
    cloud = Cloud(folder)
    yield cloud
    cloud.server.shutdown()


@pytest.fixture
def machine() -> Iterator[Cloud]:
    """A metadata service, which every cloud has over plain HTTP."""
    machine = Cloud(None)
    yield machine
    machine.server.shutdown()


def status(url: str, cloud: Cloud, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Ask for the status of a stream that is not there, with these variables alone."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "SSL_CERT_FILE": str(folder / "ca.pem"),
        **more,
    }
    command = [str(BINARIES / "batchweave"), "--store", url, "--endpoint", cloud.url, "status"]
    return subprocess.run(
        command, env=env, text=True, capture_output=True, check=False, timeout=120
    )


def reaches(done: subprocess.CompletedProcess[str], cloud: Cloud) -> set[str]:
    assert done.returncode == NO_STREAM, done
    sent = set(cloud.sent())
    assert sent, done
    return sent


def test_a_machine_of_google_has_a_token(cloud: Cloud, machine: Cloud, folder: Path) -> None:
    host = f"127.0.0.1:{machine.port}"
    done = status(GCS, cloud, folder, GCE_METADATA_HOST=host)
    assert reaches(done, cloud) == {"Bearer token-of-the-machine"}
    assert machine.seen[0][1]["metadata-flavor"] == "Google"


def test_a_service_account_signs_its_own_token(cloud: Cloud, folder: Path) -> None:
    key = subprocess.run(
        ["openssl", "genpkey", "-algorithm", "RSA"], check=True, capture_output=True, text=True
    ).stdout
    account = {
        "type": "service_account",
        "private_key": key,
        "private_key_id": "1",
        "client_email": "producer@project.iam.gserviceaccount.com",
    }
    file = folder / "account.json"
    file.write_text(json.dumps(account))
    done = status(GCS, cloud, folder, GOOGLE_APPLICATION_CREDENTIALS=str(file))
    # Requests that begin in different seconds have different tokens.
    for sent in reaches(done, cloud):
        claims = sent.removeprefix("Bearer ").split(".")[1]
        read = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        assert read["iss"] == account["client_email"]
        assert "cloud-platform" in read["scope"]


def test_federation_outside_of_google_is_refused(cloud: Cloud, folder: Path) -> None:
    file = folder / "external.json"
    file.write_text(json.dumps({"type": "external_account", "audience": "x"}))
    done = status(GCS, cloud, folder, GOOGLE_APPLICATION_CREDENTIALS=str(file))
    assert done.returncode == REFUSED, done
    assert "external_account" in done.stderr
    assert "service_account" in done.stderr
    assert cloud.seen == []


def test_without_credentials_the_ways_to_them_are_named(cloud: Cloud, folder: Path) -> None:
    done = status(
        GCS, cloud, folder, GCE_METADATA_HOST="127.0.0.1:9", GCE_METADATA_IP="127.0.0.1:9"
    )
    assert done.returncode != 0
    assert "GOOGLE_APPLICATION_CREDENTIALS" in done.stderr, done.stderr
    assert cloud.seen == []


def test_an_emulator_gets_no_credentials(machine: Cloud, folder: Path) -> None:
    done = status(GCS, machine, folder, GCE_METADATA_HOST=f"127.0.0.1:{machine.port}")
    assert reaches(done, machine) == {""}


def test_a_pod_of_azure_exchanges_its_token(cloud: Cloud, folder: Path) -> None:
    file = folder / "federated"
    file.write_text("token-of-the-pod")
    done = status(
        AZURE,
        cloud,
        folder,
        AZURE_FEDERATED_TOKEN_FILE=str(file),
        AZURE_CLIENT_ID="client",
        AZURE_TENANT_ID="tenant",
        AZURE_AUTHORITY_HOST=cloud.url,
    )
    assert reaches(done, cloud) == {"Bearer token-of-the-workload"}
    assert cloud.seen[0][0].startswith("/tenant/oauth2/")


def test_a_machine_of_azure_has_an_identity(cloud: Cloud, machine: Cloud, folder: Path) -> None:
    done = status(
        AZURE, cloud, folder, IDENTITY_ENDPOINT=f"{machine.url}/token", IDENTITY_HEADER="x"
    )
    assert reaches(done, cloud) == {"Bearer token-of-the-machine"}


@pytest.mark.parametrize(
    "variables",
    [
        {"AZURE_STORAGE_KEY": KEY},
        {"AZURE_STORAGE_CONNECTION_STRING": f"AccountName=acme;AccountKey={KEY}"},
    ],
)
def test_a_key_signs_each_request(cloud: Cloud, folder: Path, variables: dict[str, str]) -> None:
    done = status(AZURE, cloud, folder, **variables)
    assert done.returncode == NO_STREAM, done
    assert all(sent.startswith("SharedKey acme:") for sent in cloud.sent())
    assert len(cloud.sent()) > 0


def test_a_signature_is_in_the_url_and_in_no_message(cloud: Cloud, folder: Path) -> None:
    signature = "c2lnbmF0dXJlIG9mIHRoZSB0ZXN0"
    cloud.echoes = True
    done = status(AZURE, cloud, folder, AZURE_STORAGE_SAS_TOKEN=f"sv=2023-11-03&sig={signature}")
    assert done.returncode == REFUSED, done
    assert f"sig={signature}" in cloud.seen[0][0]
    assert signature not in done.stderr + done.stdout


def test_a_token_is_in_no_message(cloud: Cloud, machine: Cloud, folder: Path) -> None:
    cloud.echoes = True
    done = status(GCS, cloud, folder, GCE_METADATA_HOST=f"127.0.0.1:{machine.port}")
    assert done.returncode == REFUSED, done
    assert cloud.sent()[0] == "Bearer token-of-the-machine"
    assert "token-of-the-machine" not in done.stderr + done.stdout


def test_a_key_over_plain_http_is_refused(machine: Cloud, folder: Path) -> None:
    machine.url = "http://store.example:1"
    done = status(AZURE, machine, folder, AZURE_STORAGE_KEY=KEY)
    assert done.returncode == WRONG, done
    assert "use https://" in done.stderr


def test_az_without_an_account_says_where_to_name_it(cloud: Cloud, folder: Path) -> None:
    done = status("az://box/none", cloud, folder, AZURE_STORAGE_KEY=KEY)
    assert done.returncode == WRONG, done
    assert "AZURE_STORAGE_ACCOUNT" in done.stderr
    done = status(
        "az://box/none", cloud, folder, AZURE_STORAGE_KEY=KEY, AZURE_STORAGE_ACCOUNT="acme"
    )
    assert done.returncode == NO_STREAM, done
