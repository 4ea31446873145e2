"""The status page in a real browser: no errors, both colour schemes, a phone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from site_of_daemons import Site, get

# The folder in which pictures are kept.
PICTURES = os.environ.get("BATCHWEAVE_PICTURES")


def browser(folder: Path, *arguments: str) -> tuple[str, str]:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if not found:
        pytest.skip("NOT CHECKED: chromium is not installed (apt-get install chromium)")
    command = [
        found,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--v=0",
        f"--user-data-dir={folder / 'profile'}",
        "--virtual-time-budget=6000",
        *arguments,
    ]
    result = subprocess.run(command, text=True, capture_output=True, check=False, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout, result.stderr


@pytest.mark.parametrize("daemon", ["producer", "consumer"])
def test_the_page_shows_what_the_daemon_does(site: Site, daemon: str, tmp_path: Path) -> None:
    port = getattr(site, f"{daemon}_port")
    page, output = browser(tmp_path, "--dump-dom", f"http://127.0.0.1:{port}/")
    drawn = page.split("<script>")[0]
    console = [line for line in output.splitlines() if "CONSOLE" in line]
    assert not console, console
    assert f'<span id="program">batchweave-{daemon}</span>' in drawn
    assert re.search(r'class="state good"[^>]*>ready<', drawn), drawn
    assert drawn.count('role="img"') == 3, "three plots, each with words for screen readers"
    assert drawn.count("aria-label=") >= 4
    assert "does not answer" not in drawn


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_pictures_in_both_schemes(site: Site, scheme: str, width: int, tmp_path: Path) -> None:
    folder = Path(PICTURES) if PICTURES else tmp_path
    picture = folder / f"status-{scheme}-{width}.png"
    dark = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"]
    browser(
        tmp_path,
        *(dark if scheme == "dark" else ["--blink-settings=preferredColorScheme=1"]),
        f"--window-size={width},1300",
        f"--screenshot={picture}",
        f"http://127.0.0.1:{site.consumer_port}/",
    )
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 10_000


def test_bad_requests_harm_nobody(site: Site) -> None:
    for path in ("/nothing", "/metrics/x", "/%2e%2e/etc/passwd"):
        assert get(site.consumer_port, path)[0] == 404, path
    assert get(site.consumer_port, "/healthz")[0] == 200
