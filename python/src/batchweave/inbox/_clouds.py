"""Stores of Google Cloud Storage and Azure Blob, by the variables that the daemons read too."""

from __future__ import annotations

import os
from typing import Any

from batchweave.inbox._objects import client_options
from batchweave.inbox._store import package
from batchweave.inbox.errors import InboxArgumentError

_EMULATOR = "STORAGE_EMULATOR_HOST"
_CONNECTION = "AZURE_STORAGE_CONNECTION_STRING"
_PARTS = {
    "AccountName": "account_name",
    "AccountKey": "account_key",
    "BlobEndpoint": "endpoint",
    "SharedAccessSignature": "sas_key",
}
"""Parts of a connection string, as obstore calls them."""
_VARIABLES = {
    "AZURE_STORAGE_ACCOUNT": "account_name",
    "AZURE_STORAGE_KEY": "account_key",
    "AZURE_STORAGE_SAS_TOKEN": "sas_key",
}
"""Variables of Azure's tools that obstore does not read by itself."""


def gcs_store(bucket: str, *, bytes_max: int) -> Any:
    """Returns obstore's store of a bucket, which finds Google's default credentials."""
    if os.environ.get(_EMULATOR):
        raise InboxArgumentError(
            f"{_EMULATOR} is set, and writers cannot write to an emulator of Google Cloud "
            "Storage: unset it, or pass an obstore store as store="
        )
    return package("obstore.store").GCSStore(
        bucket,
        client_options=client_options(bytes_max, allow_http=False),
        retry_config={"max_retries": 0},
    )


def azure_store(place: str, *, bytes_max: int) -> Any:
    """Returns obstore's store of `container` or `container@account.dfs.core.windows.net`.

    A connection string wins over other variables, and a place with an account over both.
    """
    container, _, host = place.partition("@")
    text = os.environ.get(_CONNECTION)
    read = os.environ.get
    config = {key: value for name, key in _VARIABLES.items() if (value := read(name))}
    if text:
        config |= _of_connection(text)
    if host:
        config["account_name"] = host.partition(".")[0]
        config["endpoint"] = f"https://{host.replace('.dfs.', '.blob.', 1)}"
    # Without encryption to this machine only, which is an emulator: as the daemons.
    local = config.get("endpoint", "").startswith(("http://127.0.0.1", "http://localhost"))
    return package("obstore.store").AzureStore(
        container,
        config=config,
        client_options=client_options(bytes_max, allow_http=local),
        retry_config={"max_retries": 0},
    )


def _of_connection(text: str) -> dict[str, str]:
    parts = [part for part in text.split(";") if part]
    pairs = dict(part.partition("=")[::2] for part in parts)
    config = {key: pairs[name] for name, key in _PARTS.items() if pairs.get(name)}
    if "account_name" not in config:
        raise InboxArgumentError(f"{_CONNECTION} has no AccountName: copy it from Azure's portal")
    if "endpoint" not in config and (suffix := pairs.get("EndpointSuffix")):
        scheme = pairs.get("DefaultEndpointsProtocol", "https")
        config["endpoint"] = f"{scheme}://{config['account_name']}.blob.{suffix}"
    return config
