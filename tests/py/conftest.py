"""Fixtures that several tests share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from browser import Page
from site_of_daemons import Site, eventually

# A shell starts what runs in the background with interrupts ignored, and tests send them.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Start both daemons and a rank that reads."""
    site = Site(tmp_path_factory.mktemp("site"))
    try:
        site.run()
        eventually("batches at the rank", lambda: site.delivered > 100)
        yield site
    finally:
        site.end()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Start a browser."""
    page = Page(tmp_path_factory.mktemp("browser"))
    try:
        yield page
    finally:
        page.close()
