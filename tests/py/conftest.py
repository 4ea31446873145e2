"""Fixtures that several tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from site_of_daemons import Site, eventually


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
