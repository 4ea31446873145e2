"""An HTTP proxy that records its requests: it forwards, opens tunnels, and has names of its own."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
from dataclasses import dataclass, field

HEAD_MAX = 64 << 10


@dataclass
class Request:
    """One request to the proxy."""

    method: str
    target: str
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def user(self) -> str:
        """The user of Proxy-Authorization; empty without one."""
        value = self.headers.get("proxy-authorization", "").removeprefix("Basic ")
        return base64.b64decode(value).decode().partition(":")[0]


class LoggingProxy:
    """A proxy on a free port; `names` are the addresses of names that only it knows."""

    def __init__(self, names: dict[str, tuple[str, int]]) -> None:
        self.names = names
        self.seen: list[Request] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, user: str = "") -> str:
        login = f"{user}:secret@" if user else ""
        return f"http://{login}127.0.0.1:{self.port}"

    def close(self) -> None:
        self._listener.close()

    def of(self, user: str) -> list[Request]:
        """Return the requests of a user so far."""
        return [one for one in list(self.seen) if one.user == user]

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            received = b""
            while b"\r\n\r\n" not in received and len(received) < HEAD_MAX:
                received += (more := client.recv(HEAD_MAX))
                if not more:
                    return
            head, body = received.split(b"\r\n\r\n", 1)
            first, *lines = head.decode("latin-1").split("\r\n")
            method, target, version = first.split(" ")
            fields = [line.split(": ", 1) for line in lines]
            headers = {name.lower(): value for name, value in fields}
            self.seen.append(Request(method, target, headers))
            host = target if method == "CONNECT" else target.split("/")[2]
            name, _, port = host.partition(":")
            with socket.create_connection(self.names.get(host, (name, int(port or 80)))) as server:
                if method == "CONNECT":
                    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                else:
                    path = "/" + target.split("/", 3)[3]
                    # One request per connection, so that each is seen.
                    own = ("connection", "proxy-authorization")
                    kept = [field for field in fields if field[0].lower() not in own]
                    kept.append(["Connection", "close"])
                    text = "".join(f"{name}: {value}\r\n" for name, value in kept)
                    server.sendall(f"{method} {path} {version}\r\n{text}\r\n".encode("latin-1"))
                server.sendall(body)
                back = threading.Thread(target=_pump, args=(server, client), daemon=True)
                back.start()
                _pump(client, server)
                back.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    # The other direction ends as well when the answer is complete.
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
