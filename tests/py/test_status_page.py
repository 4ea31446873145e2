"""The status page in a real browser: no errors, both colour schemes, a phone."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from browser import Page
from site_of_daemons import Site, eventually, get

# The folder in which pictures are kept.
PICTURES = os.environ.get("BATCHWEAVE_PICTURES")


@pytest.mark.parametrize("daemon", ["producer", "consumer"])
def test_the_page_shows_what_the_daemon_does(site: Site, page: Page, daemon: str) -> None:
    page.console.clear()
    page.show(f"http://127.0.0.1:{getattr(site, f'{daemon}_port')}/", 1280, "light")

    def drawn() -> str:
        return str(page.evaluate("document.querySelector('main').outerHTML"))

    eventually("three plots", lambda: drawn().count('role="img"') == 3)
    text = drawn()
    assert not page.console
    assert f'<span id="program">batchweave-{daemon}</span>' in text
    title = str(page.evaluate("document.title"))
    assert title.removeprefix("(held) ").startswith(f"{daemon} "), title
    assert " · " in title, title
    assert re.search(r'class="state (good"[^>]*>ready|warn"[^>]*>held)<', text), text
    assert text.count("aria-label=") >= 4, "each plot has words for screen readers"
    assert "does not answer" not in text
    assert "batchweave_" not in re.sub(r'title="[^"]*"', "", text), "words instead of metric names"
    ranks = bool(page.evaluate("!document.getElementById('ranks').hidden"))
    assert ranks == (daemon == "consumer")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("daemon", ["producer", "consumer"])
def test_it_fits_any_window_in_both_schemes(
    site: Site, page: Page, daemon: str, width: int, scheme: str
) -> None:
    """With BATCHWEAVE_PICTURES pictures are kept."""
    page.show(f"http://127.0.0.1:{getattr(site, f'{daemon}_port')}/", width, scheme)
    eventually("plots", lambda: bool(page.evaluate("document.querySelector('#plots svg') != null")))
    wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wider) == 0
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = [int(part) for part in re.findall(r"\d+", colour)[:3]]
    assert (max(brightness) < 64) == (scheme == "dark"), colour
    if PICTURES:
        page.picture(Path(PICTURES) / f"status-{daemon}-{scheme}-{width}.png")


def test_the_producer_s_page_has_a_sample_of_the_data(site: Site, page: Page) -> None:
    def sample() -> dict[str, str] | None:
        found: dict[str, str] | None = json.loads(get(site.producer_port, "/status.json")[1]).get(
            "sample"
        )
        return found

    eventually("a sample", lambda: sample() is not None)
    shown = sample()
    assert shown is not None
    corpus = site.folder / "corpus.jsonl"
    name, _, line = shown["source"].rpartition(":")
    assert name == str(corpus)
    texts = [json.loads(document)["text"] for document in corpus.read_text().splitlines()]
    # A row may begin within a document.
    text = shown["text"].removesuffix(" ...").removesuffix("<|endoftext|>")
    here = "<|endoftext|>".join([*texts, *texts][int(line) - 1 :][:3])
    assert len(text) > 60, shown
    assert text in here, shown
    page.show(f"http://127.0.0.1:{site.producer_port}/", 1280, "light")
    drawn = "document.getElementById('sample-text').textContent"
    eventually("the sample on the page", lambda: len(str(page.evaluate(drawn))) > 60)
    # A row may also end within a word, and begin with the space before one.
    words = r" ?(word\d+ ?|\w+ |<\|endoftext\|>|\.\.\.)+\w*"
    assert re.fullmatch(words, str(page.evaluate(drawn)))
    assert "sample" not in json.loads(get(site.consumer_port, "/status.json")[1])


def test_bad_requests_harm_no_other_client(site: Site) -> None:
    for path in ("/nothing", "/metrics/x", "/%2e%2e/etc/passwd"):
        assert get(site.consumer_port, path)[0] == 404, path
    assert get(site.consumer_port, "/healthz")[0] == 200
