"""Puts an object into an S3 server, as `aws s3 cp` does: `bucket.py URL KEY SECRET <CONTENT`."""

from __future__ import annotations

import hashlib
import hmac
import sys
import time
import urllib.request
from urllib.parse import urlsplit

REGION = "us-east-1"


def signed(url: str, body: bytes, key: str, secret: str) -> urllib.request.Request:
    """Returns a PUT with a signature of version 4."""
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    place, digest = urlsplit(url), hashlib.sha256(body).hexdigest()
    headers = {"host": place.netloc, "x-amz-content-sha256": digest, "x-amz-date": now}
    names = ";".join(headers)
    lines = [f"{name}:{value}" for name, value in headers.items()]
    request = "\n".join(["PUT", place.path, "", *lines, "", names, digest])
    scope = f"{now[:8]}/{REGION}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    derived = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        derived = hmac.digest(derived, part.encode(), "sha256")
    signature = hmac.new(derived, text.encode(), "sha256").hexdigest()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return urllib.request.Request(url, body, headers, method="PUT")


if __name__ == "__main__":
    made = signed(sys.argv[1], sys.stdin.buffer.read(), sys.argv[2], sys.argv[3])
    with urllib.request.urlopen(made, timeout=60) as answer:
        print(answer.status)
