"""`batchweave ui` over real daemons, in a real browser: two widths, both colour schemes, and what fails."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Page
from site_of_daemons import BINARIES, Site, eventually, free_port

# The folder in which pictures are kept.
PICTURES = os.environ.get("BATCHWEAVE_PICTURES")


class Ui:
    """The page of a site's stream, with both daemons named and one that is not there."""

    def __init__(self, site: Site) -> None:
        ports = [site.producer_port, site.consumer_port, free_port()]
        named = [f"--daemon=127.0.0.1:{port}" for port in ports]
        command = [str(BINARIES / "batchweave"), "ui", "--store", site.url, "--every", "1s"]
        self.process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0", "--json", *named],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        self.url = str(json.loads(self.process.stdout.readline())["url"])

    def end(self) -> int:
        """End it as an operator does, and return its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=60)


@pytest.fixture(scope="module")
def ui(site: Site) -> Iterator[Ui]:
    """Start the page."""
    ui = Ui(site)
    try:
        yield ui
    finally:
        ui.process.kill()
        ui.process.wait()


def drawn(page: Page) -> str:
    """Return the text of the page."""
    return str(page.evaluate("document.querySelector('main').innerText"))


def test_it_shows_producers_jobs_and_daemons(ui: Ui, page: Page) -> None:
    page.console.clear()
    page.show(ui.url, 1280, "light")
    eventually("the named daemons", lambda: "ranks" in drawn(page).lower() and "tokens-0" in drawn(page))
    eventually("a rank", lambda: bool(page.evaluate("document.querySelector('#daemons table') != null")))
    text = drawn(page)
    assert not page.console
    for part in ("training@", "tokens-0", "does not answer", "of pass", "retained", "documents"):
        assert part in text, (part, text)
    assert "does not answer" in str(page.evaluate("document.querySelector('#state .bad').textContent"))
    first = str(page.evaluate("document.querySelector('#state p').textContent"))
    assert first in str(page.evaluate("document.title")), first
    # Held and down have their colours where they stand.
    down = "[...document.querySelectorAll('#daemons .bad')].map(e => e.textContent).join()"
    assert "does not answer" in str(page.evaluate(down))
    held = "document.querySelector('#producers .warn')?.textContent"
    eventually("the producer is held", lambda: page.evaluate(held) == "held")
    assert "held back by job training" in drawn(page)


def test_it_can_be_read_aloud(ui: Ui, page: Page) -> None:
    page.show(ui.url, 1280, "light")
    eventually("plots", lambda: page.evaluate("document.querySelectorAll('#plots svg').length") == 2)
    labels = "[...document.querySelectorAll('svg')].map(s => s.getAttribute('aria-label'))"
    rate, lead = page.evaluate(labels)
    assert re.match(r"Committed over the last minute: now .* tokens/s, at most .* tokens/s$", rate), rate
    assert re.match(r"Ahead of the slowest job .* steps, at most .* steps$", lead), lead
    assert page.evaluate("document.getElementById('state').getAttribute('role')") == "status"
    assert page.evaluate("[...document.querySelectorAll('table')].every(t => t.caption.textContent)")
    assert page.evaluate("[...document.querySelectorAll('tbody tr')].every(r => r.cells[0].scope === 'row')")
    # The keyboard can scroll a wide table, and stays there when the page is drawn again.
    step = "document.querySelector('#jobs tbody td:nth-child(4)').textContent"
    before = page.evaluate(step)
    page.evaluate("document.querySelector('#jobs .wide').focus()")
    eventually("progress of the job", lambda: page.evaluate(step) != before)
    assert page.evaluate("document.activeElement.closest('#jobs') !== null")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_any_window_in_both_schemes(ui: Ui, page: Page, width: int, scheme: str) -> None:
    """With BATCHWEAVE_PICTURES pictures are kept."""
    page.show(ui.url, width, scheme)
    eventually("daemons", lambda: page.evaluate("document.querySelectorAll('.daemon').length") == 3)
    wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wider) == 0
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = [int(part) for part in re.findall(r"\d+", colour)[:3]]
    assert (max(brightness) < 64) == (scheme == "dark"), colour
    if PICTURES:
        page.picture(Path(PICTURES) / f"stream-{scheme}-{width}.png")


def seen(page: Page) -> Any:
    """Return /stream.json as the page gets it."""
    return page.evaluate("fetch('stream.json').then(answer => answer.json())")


def test_a_daemon_that_ends_keeps_its_row_and_ctrl_c_ends_the_page(
    site: Site, ui: Ui, page: Page
) -> None:
    page.show(ui.url, 1280, "light")
    eventually("the producer", lambda: bool(seen(page)["producers"][0]["daemon_state"]))
    site.processes[0].kill()
    eventually("its row", lambda: bool(seen(page)["daemons"][0]["fault"]))
    producer = seen(page)["producers"][0]
    assert (producer["state"], producer["daemon_state"]) == ("open", None)
    assert ui.end() == 0
    eventually("the page says so", lambda: "does not answer" == page.evaluate("at('state').textContent"))
