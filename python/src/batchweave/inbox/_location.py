"""From a location and a writer's name to the writer's folder in a store."""

from __future__ import annotations

import os
import re
import urllib.parse
from pathlib import Path
from typing import Any

from batchweave.inbox._clouds import azure_store, gcs_store
from batchweave.inbox._local import LocalFolder
from batchweave.inbox._objects import ObjectFolder, s3_store
from batchweave.inbox._remedies import AZURE, GCS, S3, Remedies
from batchweave.inbox._store import Store
from batchweave.inbox.errors import InboxArgumentError

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_EXAMPLES = "s3://bucket/inbox, gs://bucket/inbox, az://container/inbox or file:///data/inbox"
_REMEDIES: dict[str, Remedies] = {
    "s3": S3,
    "gs": GCS,
    "az": AZURE,
    "abfss": AZURE,
}


def check_name(name: str, of: str = "writer") -> None:
    """Raises an InboxArgumentError for a name that neither a producer nor a writer can have."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InboxArgumentError(
            f"{name!r} is not a valid {of}'s name: 1 to 63 of a-z, 0-9, '.', '_' and '-', "
            "beginning with a letter or digit"
        )


def folder_of(
    location: str | os.PathLike[str], writer: str, store: Any, bytes_max: int, **s3: str | None
) -> Store:
    """Returns the folder of a writer; `store` is an obstore store of the bucket, or None."""
    check_name(writer)
    if not isinstance(location, str | os.PathLike):
        raise InboxArgumentError(f"{location!r} is not the location of an inbox: {_EXAMPLES}")
    text = os.fspath(location)
    scheme, separator, rest = text.partition("://")
    if not separator or scheme == "file":
        return _local(text if not separator else rest, writer, text, store, s3)
    if (remedies := _REMEDIES.get(scheme)) is None:
        raise InboxArgumentError(f"{text!r} is not the location of an inbox: {_EXAMPLES}")
    bucket, _, path = rest.partition("/")
    segments = [segment for segment in path.split("/") if segment]
    if (
        not bucket
        or ("@" in bucket) != (scheme == "abfss")
        or "?" in rest
        or "#" in rest
        or {".", ".."} & set(segments)
    ):
        raise InboxArgumentError(f"{text!r} is not the location of an inbox: {_EXAMPLES}")
    if scheme != "s3":
        _refuse_s3(s3, text)
    if store is None:
        match scheme:
            case "s3":
                store = s3_store(bucket, bytes_max=bytes_max, **s3)
            case "gs":
                store = gcs_store(bucket, bytes_max=bytes_max)
            case _:
                store = azure_store(bucket, bytes_max=bytes_max)
    prefix = "/".join([*segments, writer]) + "/"
    return ObjectFolder(store, prefix, f"{scheme}://{bucket}/{prefix}", remedies)


def _local(path: str, writer: str, text: str, store: Any, s3: dict[str, str | None]) -> Store:
    _refuse_s3(s3, text)
    if store is not None:
        raise InboxArgumentError(f"store= beside the local folder {text!r}: give one of them")
    if text != path:
        path = urllib.parse.unquote(path)
        if not path.startswith("/"):
            raise InboxArgumentError(f"{text!r} is not a local folder: write file:///data/inbox")
    if not path:
        raise InboxArgumentError(f"the location of the inbox is empty: {_EXAMPLES}")
    return LocalFolder(Path(path).absolute() / writer)


def _refuse_s3(s3: dict[str, str | None], text: str) -> None:
    given = [name for name, value in s3.items() if value is not None]
    if given:
        raise InboxArgumentError(f"{given[0]}= is for s3:// only, and the inbox is {text!r}")
