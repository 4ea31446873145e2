"""A name server for pods, in place of CoreDNS: `names.py ADDRESS TOKEN`.

Answers NAME.NAMESPACE.svc.cluster.local with a Service's address, and for a headless one those of
its pods, HOSTNAME.NAME.NAMESPACE.svc.cluster.local with one pod's. The API server is asked.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import sys
import urllib.error
import urllib.request
from typing import Any

API = "https://127.0.0.1:6443"
SUFFIX = ["svc", "cluster", "local"]
ADDRESS_RECORD, NO_ERROR, NO_NAME = 1, 0, 3


def get(path: str, token: str) -> Any:
    """Returns an object of the API server, or None."""
    request = urllib.request.Request(API + path, headers={"Authorization": f"Bearer {token}"})
    # The server's certificate is its own, made at its start.
    context = ssl._create_unverified_context()
    try:
        with urllib.request.urlopen(request, timeout=5, context=context) as answer:
            return json.load(answer)
    except (OSError, urllib.error.URLError):
        return None


def addresses(labels: list[str], token: str) -> list[str] | None:
    """Returns the addresses of a name, or None if there is no such name."""
    if labels[-3:] != SUFFIX or len(labels) not in (5, 6):
        return None
    name, namespace = labels[-5], labels[-4]
    service = get(f"/api/v1/namespaces/{namespace}/services/{name}", token)
    if not service:
        return None
    if len(labels) == 5 and service["spec"].get("clusterIP") not in (None, "None"):
        return [service["spec"]["clusterIP"]]
    selector = f"?labelSelector=kubernetes.io/service-name%3D{name}"
    slices = get(
        f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices{selector}", token
    )
    found = [one for part in (slices or {}).get("items", []) for one in part.get("endpoints") or []]
    if len(labels) == 6:
        found = [one for one in found if one.get("hostname") == labels[0]]
    return [address for one in found for address in one["addresses"]] or None


def answer(query: bytes, token: str) -> bytes:
    """Returns the answer to a query of one question."""
    labels, at = [], 12
    while size := query[at]:
        labels.append(query[at + 1 : at + 1 + size].decode("ascii", "replace").lower())
        at += 1 + size
    kind = struct.unpack_from("!H", query, at + 1)[0]
    found = addresses(labels, token)
    records = found if found and kind == ADDRESS_RECORD else []
    code = NO_NAME if found is None else NO_ERROR
    head = query[:2] + struct.pack("!HHHHH", 0x8580 | code, 1, len(records), 0, 0)
    # Each record points to the question's name, and holds for a second.
    texts = [struct.pack("!HHHIH", 0xC00C, 1, 1, 1, 4) + socket.inet_aton(one) for one in records]
    return head + query[12 : at + 5] + b"".join(texts)


def main(address: str, token: str) -> None:
    """Answers one query after the other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, 53))
        while True:
            query, peer = server.recvfrom(4096)
            try:
                server.sendto(answer(query, token), peer)
            except (IndexError, struct.error) as why:
                print(f"not a query: {why}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
