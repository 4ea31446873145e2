"""A headless Chromium, driven over its debugging pipe: any width, both colour schemes, pictures."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

# Of one command; a page that does not answer in this time is a failure.
SECONDS_MAX = 120.0


class Page:
    """One tab, with the messages of its console."""

    def __init__(self, folder: Path) -> None:
        found = shutil.which("chromium") or shutil.which("chromium-browser")
        if not found:
            pytest.skip("NOT CHECKED: chromium is not installed (apt-get install chromium)")
        self.console: list[str] = []
        self._last = 0
        # The documents that have loaded with all their pictures, by the browser's ids.
        self._loaded: set[str] = set()
        self._rest = b""
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()
        # The browser reads commands from descriptor 3 and answers on 4.
        swap = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        command = [found, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += ["--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}"]
        self._process = subprocess.Popen(
            ["bash", "-c", swap, "bash", str(to_browser), str(from_browser), *command],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._session = ""
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for part in ("Page", "Runtime", "Log"):
            self._ask(f"{part}.enable")
        self._ask("Page.setLifecycleEventsEnabled", enabled=True)

    def show(self, url: str, width: int, scheme: str, height: int = 900) -> None:
        """Load a page in a window of this width, with the colour scheme `light` or `dark`."""
        self.resize(width, height)
        wanted = [{"name": "prefers-color-scheme", "value": scheme}]
        self._ask("Emulation.setEmulatedMedia", features=wanted)
        document = self._ask("Page.navigate", url=url)
        assert "errorText" not in document, f"{url}: {document['errorText']}"
        deadline = time.monotonic() + SECONDS_MAX
        while document["loaderId"] not in self._loaded:
            self._receive(deadline)

    def resize(self, width: int, height: int = 900) -> None:
        """Change the window's size; below 500 pixels it is a phone's."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self._ask("Emulation.setDeviceMetricsOverride", **size)

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression of the page's script, after promises in it."""
        options = {"returnByValue": True, "awaitPromise": True}
        answer = self._ask("Runtime.evaluate", expression=script, **options)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def picture(self, path: Path, whole: bool = True) -> None:
        """Save a picture of the page, or of its visible part only."""
        answer = self._ask("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def close(self) -> None:
        """End the browser."""
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._last:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])

    def _receive(self, deadline: float) -> dict[str, Any]:
        """Return the next message, and note what it says of loads and of the console."""
        while b"\0" not in self._rest:
            left = deadline - time.monotonic()
            assert left > 0, "the browser does not answer"
            if select.select([self._from], [], [], min(left, 1.0))[0]:
                data = os.read(self._from, 1 << 20)
                assert data, "the browser ended"
                self._rest += data
        line, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        method, params = message.get("method"), message.get("params", {})
        if method == "Page.lifecycleEvent" and params["name"] == "load":
            self._loaded.add(params["loaderId"])
        elif method == "Runtime.exceptionThrown":
            self.console.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.console.append(str([one.get("value") for one in params["args"]]))
        elif method == "Log.entryAdded":
            self.console.append(str(params["entry"]["text"]))
        return message
