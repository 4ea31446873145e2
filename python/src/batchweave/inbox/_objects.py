"""A writer's folder in an object store, through obstore."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from batchweave.inbox._core import Listing
from batchweave.inbox._remedies import NO_BUCKET, Remedies, Use
from batchweave.inbox._store import (
    ENDS,
    WINDOW,
    ExistsError,
    TransientError,
    file_name,
    number_of,
    package,
)
from batchweave.inbox.errors import StoreRefusedError

_TEXT_MAX = 600
_SLOWEST = 1 << 20
"""Bytes per second below which a PUT times out."""


def s3_store(
    bucket: str,
    *,
    endpoint: str | None,
    region: str | None,
    access_key: str | None,
    secret_key: str | None,
    session_token: str | None,
    bytes_max: int,
) -> Any:
    """Returns obstore's S3 store; arguments win over the AWS environment variables."""
    environment = os.environ.get
    endpoint = endpoint or environment("AWS_ENDPOINT_URL_S3") or environment("AWS_ENDPOINT_URL")
    given = {
        "endpoint": endpoint,
        "region": region or environment("AWS_REGION") or environment("AWS_DEFAULT_REGION"),
        "access_key_id": access_key,
        "secret_access_key": secret_key,
        "session_token": session_token,
    }
    config: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    config.setdefault("region", "us-east-1")
    if environment("BATCHWEAVE_PATH_STYLE") == "false":
        config["virtual_hosted_style_request"] = True
        if endpoint:
            # As object_store wants it: with the bucket.
            config["endpoint"] = str(endpoint).replace("://", f"://{bucket}.", 1)
    if bucket.endswith("--x-s3"):
        config["s3_express"] = True
    http = bool(endpoint) and str(endpoint).startswith("http://")
    return package("obstore.store").S3Store(
        bucket,
        config=config,
        client_options=client_options(bytes_max, allow_http=http),
        retry_config={"max_retries": 0},
    )


def client_options(bytes_max: int, *, allow_http: bool) -> dict[str, Any]:
    """Returns time-outs. Retries are the writer's: obstore's would hide lost answers of PUTs."""
    return {
        "allow_http": allow_http,
        "connect_timeout": timedelta(seconds=5),
        "timeout": timedelta(seconds=30 + bytes_max / _SLOWEST),
        # Stores close idle connections sooner than the client's default of 90 s.
        "pool_idle_timeout": timedelta(seconds=8),
    }


class ObjectFolder:
    """One writer's keys: those below `prefix`."""

    def __init__(self, store: Any, prefix: str, place: str, remedies: Remedies) -> None:
        self._obstore, self._store, self._remedies = package("obstore"), store, remedies
        self._errors = package("obstore.exceptions")
        self._prefix, self.place = prefix, place

    def create(self, name: str, data: bytes) -> None:
        """Puts an object that must not exist yet."""
        with self._explained(f"write {name}", "put"):
            try:
                self._obstore.put(
                    self._store, self._prefix + name, data, mode="create", use_multipart=False
                )
            except (self._errors.AlreadyExistsError, self._errors.PreconditionError):
                # A 412, or S3's 409 while another PUT is under way: reading the object tells.
                raise ExistsError(name) from None

    def delete(self, name: str) -> None:
        """Deletes an object."""
        with self._explained(f"delete {name}", "delete"), contextlib.suppress(FileNotFoundError):
            self._obstore.delete(self._store, self._prefix + name)

    def numbers(self, after: int | None) -> Listing:
        """Lists keys from a number on: one request, where few are newer."""
        if after is not None:
            return self._list(after)
        page = self._list(-1, whole=False)
        if len(page.numbers) < WINDOW:
            return page
        return self._list(max(-1, self._newest(page.numbers[-1]) - WINDOW))

    def tail(self, name: str, count: int) -> tuple[bytes, int] | None:
        """Reads the end of an object, in two requests: not every store has ranges from the end."""
        key = self._prefix + name
        with self._explained(f"read {name}", "get"):
            try:
                size = int(self._obstore.head(self._store, key)["size"])
                start = max(0, size - count)
                if start == size:
                    return b"", size
                data = self._obstore.get_range(self._store, key, start=start, end=size)
            except FileNotFoundError as reason:
                if any(code in str(reason) for code in NO_BUCKET):
                    raise
                return None
            return bytes(data), size

    def _newest(self, low: int) -> int:
        """Returns the newest number, at least `low`, in as many LISTs as it has bits, not pages.

        Whether there is a key above x is monotonic in x, whatever files are deleted.
        """
        step = WINDOW
        while (seen := self._one_above(low + step)) is not None:
            low, step = seen, step * 2
        high = low + step
        while low < high:
            middle = (low + high) // 2
            seen = self._one_above(middle)
            low, high = (low, middle) if seen is None else (seen, high)
        return low

    def _one_above(self, number: int) -> int | None:
        return max(self._list(number, whole=False).numbers, default=None)

    def _list(self, after: int, *, whole: bool = True) -> Listing:
        """Lists above a number; unless `whole`, the first page."""
        numbers, ended = [], False
        offset = self._prefix + (file_name(after) if after >= 0 else "")
        with self._explained("list the files", "list"):
            for page in self._obstore.list(
                self._store, self._prefix, offset=offset, chunk_size=WINDOW
            ):
                for found in page:
                    name = str(found["path"]).rpartition("/")[2]
                    number = number_of(name)
                    ended |= name in ENDS
                    if number is not None and number > after:
                        numbers.append(number)
                if not whole:
                    break
        return Listing(tuple(sorted(numbers)), ended)

    @contextmanager
    def _explained(self, what: str, use: Use) -> Iterator[None]:
        try:
            yield
        except ExistsError:
            raise
        except Exception as reason:
            if not isinstance(reason, OSError | ValueError | self._errors.BaseError):
                raise
            text = str(reason).partition("\n\n")[0][:_TEXT_MAX]
            remedy = self._remedies.remedy(str(reason), use)
            if remedy is None:
                raise TransientError(f"cannot {what} in {self.place}: {text}") from None
            raise StoreRefusedError(
                f"cannot {what} in {self.place}: {text}; {remedy}", key=what, remedy=remedy
            ) from None
