"""Writers of inboxes in Azure Blob Storage and Google Cloud Storage; `make clouds` runs this file
beside the emulators, of which a writer can only use that of Azure."""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest
from real_daemons import BINARIES

from batchweave import inbox
from batchweave.inbox import _clouds

ROWS = 40
CONFIG = """
store.url = "{place}/stream"
stream = {{ slices = 2, rows_per_slice = 2, seq_len = 32, producers = ["p0"] }}
producer.name = "p0"
source.inbox = true
source.follow_every = "50ms"
source.paths = ["{place}/inbox"]
inbox = {{ writers = ["w0", "w1"], delete = "committed" }}
tokenizer.kind = "bytes"
packing.last_batch = "pad"
commit.linger = "10ms"
"""


@pytest.fixture
def place() -> str:
    """A folder of its own in the emulator of Azure."""
    assert "AZURE_STORAGE_CONNECTION_STRING" in os.environ, "run this by `make clouds`"
    return f"az://batchweave/inbox-{uuid.uuid4()}"


def write(place: str, writer: str, first: int) -> None:
    """Puts rows from a number on, in a new session of the writer."""
    with inbox.open(f"{place}/inbox", writer) as opened:
        assert opened.state == (first - 1 if first else None)
        for number in range(first, first + ROWS):
            opened.put({"text": f"row {number} of {writer}"}, state=number)


def test_rows_of_two_sessions_are_in_the_stream_once(place: str, tmp_path: Path) -> None:
    for writer in ("w0", "w1"):
        write(place, writer, 0)
        write(place, writer, ROWS)
        inbox.open(f"{place}/inbox", writer).finish()
    config = tmp_path / "p0.toml"
    config.write_text(CONFIG.format(place=place))
    subprocess.run([BINARIES / "batchweave-producer", "--config", config], check=True)
    verify = [str(BINARIES / "batchweave"), "inbox", "verify", f"{place}/inbox"]
    done = subprocess.run(
        [*verify, "--store", f"{place}/stream"], capture_output=True, text=True, check=True
    )
    assert f"{4 * ROWS} rows" in done.stdout


def test_an_older_session_of_a_writer_is_ended(place: str) -> None:
    older = inbox.open(f"{place}/inbox", "w0")
    write(place, "w0", 0)
    older.put({"text": "late"})
    with pytest.raises(inbox.InboxError, match="another"):
        older.flush()


def test_a_missing_container_is_named() -> None:
    with pytest.raises(inbox.StoreRefusedError, match="create the container"):
        inbox.open("az://nobody/inbox", "w0")


def test_a_wrong_key_is_named(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = os.environ["AZURE_STORAGE_CONNECTION_STRING"]
    parts = [part for part in text.split(";") if not part.startswith("AccountKey=")]
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", ";".join([*parts, "AccountKey=YWJj"]))
    with pytest.raises(inbox.StoreRefusedError, match="check the account's key") as refused:
        inbox.open(f"{place}/inbox", "w0")
    assert "YWJj" not in str(refused.value)


def test_an_emulator_of_google_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:1")
    with pytest.raises(inbox.InboxArgumentError, match="STORAGE_EMULATOR_HOST is set"):
        inbox.open("gs://bucket/inbox", "w0")


@pytest.mark.parametrize(
    ("variables", "place", "config"),
    [
        (
            {"AZURE_STORAGE_ACCOUNT": "a", "AZURE_STORAGE_KEY": "k"},
            "c",
            {"account_name": "a", "account_key": "k"},
        ),
        (
            {"AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=2"},
            "c@b.dfs.core.windows.net",
            {
                "account_name": "b",
                "endpoint": "https://b.blob.core.windows.net",
                "sas_key": "sv=1&sig=2",
            },
        ),
        (
            {
                "AZURE_STORAGE_CONNECTION_STRING": "DefaultEndpointsProtocol=https;AccountName=a;"
                "AccountKey=a2V5PT0=;EndpointSuffix=core.chinacloudapi.cn"
            },
            "c",
            {
                "account_name": "a",
                "account_key": "a2V5PT0=",
                "endpoint": "https://a.blob.core.chinacloudapi.cn",
            },
        ),
    ],
)
def test_variables_name_the_account(
    variables: dict[str, str],
    place: str,
    config: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in list(os.environ):
        if name.startswith("AZURE_"):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found: list[dict[str, Any]] = []

    class Stores:
        """Stands for obstore, and keeps what it is given."""

        @staticmethod
        def AzureStore(container: str, *, config: dict[str, Any], **_: Any) -> None:  # noqa: N802
            found.append({"container": container, **config})

    monkeypatch.setattr(_clouds, "package", lambda _: Stores)
    _clouds.azure_store(place, bytes_max=1)
    assert found == [{"container": "c", **config}]
