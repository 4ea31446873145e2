"""Fixtures that several tests share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from browser import Page
from site_of_daemons import Site, eventually

# A shell starts what runs in the background with interrupts ignored, and tests send them.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Files that take long and have few tests: begun last, they would run alone at the end.
LONG = ("run_beside", "hosts", "docs", "run", "paper", "wheel", "quickstart", "book")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long files first."""
    long = [f"test_{name}" for name in LONG]
    items.sort(key=lambda item: long.index(item.path.stem) if item.path.stem in long else len(long))


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
