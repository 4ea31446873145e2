"""Remedies for refusals of object stores, in the words of each store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Use = Literal["put", "list", "get", "delete"]
"""A use of objects for which a store has a permission."""

NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
"""Codes of answers where the bucket does not exist; for an absent object they are others."""

_STATUS = re.compile(r"status code: (\d{3})")
_METADATA = "//169.254."
"""Where cloud machines give the credentials of their role; asked where there are no keys."""


@dataclass(frozen=True)
class Remedies:
    """What to do about refusals that no repetition mends, by the store's code or by status."""

    permissions: Mapping[Use, str]
    """The store's name of the permission for each use."""
    denied: str
    """What else to check after a 403."""
    no_role: str
    """What to do where a machine has neither keys nor a role."""
    by_code: Mapping[str, str]
    """By the code in the answer's body, for refusals whose status has a remedy, too."""
    by_status: Mapping[str, str]

    def remedy(self, text: str, use: Use) -> str | None:
        """Returns the remedy for a refusal; None for a failure that may pass."""
        status = _STATUS.search(text)
        if status is None or "<Code>RequestTimeout</Code>" in text:
            return None
        denied = f"allow {self.permissions[use]}, and check {self.denied}"
        by_status = {**_BY_STATUS, "403": denied, **self.by_status}
        if (remedy := by_status.get(status[1])) is None:
            return None
        if _METADATA in text:
            return self.no_role
        by_code = (said for code, said in self.by_code.items() if f"<Code>{code}</Code>" in text)
        return next(by_code, remedy)


_BY_STATUS = {
    "400": "check endpoint and bucket",
    "401": "check the credentials",
    "404": "create the bucket, or correct its name",
    "405": "check the endpoint",
    "501": "use a store with create-only PUT (If-None-Match: *)",
}

S3 = Remedies(
    permissions={
        "put": "s3:PutObject",
        "list": "s3:ListBucket",
        "get": "s3:GetObject",
        "delete": "s3:DeleteObject",
    },
    denied="the keys: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or access_key= and secret_key=",
    no_role="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: this machine has no role",
    by_code={
        "RequestTimeTooSkewed": "set this machine's clock (NTP)",
        "SignatureDoesNotMatch": "check the secret key",
        "InvalidAccessKeyId": "check the access key",
        "ExpiredToken": "renew the session token",
        "InvalidToken": "check the session token",
        "NoSuchBucket": "create the bucket, or correct its name",
    },
    by_status={
        "301": "set the bucket's region: AWS_REGION, or region=",
        "400": "check endpoint, region and bucket (S3 Express has no ordered LIST: pass store= "
        "with s3_express=True)",
    },
)

GCS = Remedies(
    permissions={
        "put": "storage.objects.create",
        "list": "storage.objects.list",
        "get": "storage.objects.get",
        "delete": "storage.objects.delete",
    },
    denied="the account of GOOGLE_APPLICATION_CREDENTIALS",
    no_role="set GOOGLE_APPLICATION_CREDENTIALS: this machine has no service account",
    by_code={"NoSuchBucket": "create the bucket, or correct its name"},
    by_status={},
)

_BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"

AZURE = Remedies(
    permissions={
        "put": f"{_BLOBS}/write",
        "list": f"{_BLOBS}/read",
        "get": f"{_BLOBS}/read",
        "delete": f"{_BLOBS}/delete",
    },
    denied="the account and its key, SAS or identity",
    no_role="set AZURE_STORAGE_CONNECTION_STRING or AZURE_STORAGE_KEY: this machine has no "
    "managed identity",
    by_code={
        "ContainerNotFound": "create the container, or correct its name",
        "AuthenticationFailed": "check the account's key or SAS, and this machine's clock",
        "AuthorizationFailure": "check the account's key or SAS, and that its network rules allow "
        "this machine",
    },
    by_status={"404": "create the container, or correct its name"},
)
