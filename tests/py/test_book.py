"""The documentation as a book: it contains every page, and every link has a target."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from shell_blocks import pages
from site_of_daemons import ROOT
from test_status_page import browser


def book(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "book"), *words]
    return subprocess.run(command, text=True, capture_output=True, check=False)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("book") / "html"
    made = book(str(folder))
    assert made.returncode == 0, made.stdout + made.stderr
    assert " 0 Errors" in made.stdout, made.stdout
    return folder


def test_every_page_is_in_the_book_under_its_own_title(built: Path) -> None:
    summary = (ROOT / "docs" / "SUMMARY.md").read_text()
    entries = re.findall(r"\[([^]]+)\]\(([^)]+)\)", summary)
    listed = {(ROOT / "docs" / target).resolve() for _, target in entries}
    wanted = {page for page in pages() if page.name != "SUMMARY.md"} | {ROOT / "CHANGELOG.md"}
    assert wanted == listed, wanted ^ listed
    assert len(entries) == len(listed), "a page that is there twice"
    for page in wanted:
        html = built / page.relative_to(ROOT).with_suffix(".html")
        assert html.stat().st_size > 1000, html
    assert (built / "index.html").exists()
    # The figures of pages are included.
    assert list((built / "docs" / "images").glob("*.png"))


@pytest.mark.parametrize("link", ["nowhere.html", "metrics.html#no-such-heading"])
def test_a_link_that_leads_nowhere_is_found(built: Path, link: str) -> None:
    page = built / "docs" / "operations.html"
    whole = page.read_text()
    page.write_text(whole.replace("</main>", f'<a href="{link}">x</a></main>', 1))
    try:
        checked = book("--check", str(built))
    finally:
        page.write_text(whole)
    assert checked.returncode != 0, checked.stdout
    assert link.split("#")[0] in checked.stderr, checked.stderr


@pytest.mark.parametrize(
    "page", ["README", "docs/paper", "docs/when-not", "docs/coming-from/kafka"]
)
@pytest.mark.parametrize("width", [1200, 500])
def test_a_page_fits_its_window(built: Path, page: str, width: int, tmp_path: Path) -> None:
    """Wide tables and code scroll by themselves, the page does not; the console is silent."""
    shown = built / f"{page}.html"
    measured = shown.with_name("measured.html")
    script = """
        const parts = [document.documentElement, ...document.querySelectorAll(".content, main")];
        const wider = parts.map((part) => part.scrollWidth - part.clientWidth);
        document.body.dataset.wide = Math.max(...wider);
    """
    measured.write_text(
        shown.read_text().replace(
            "</body>", f'<script>addEventListener("load", () => {{ {script} }})</script></body>'
        )
    )
    try:
        window = f"--window-size={width},1100"
        drawn, output = browser(tmp_path, window, "--dump-dom", measured.as_uri())
    finally:
        measured.unlink()
    console = [line for line in output.splitlines() if "CONSOLE" in line]
    assert not console, console
    wide = re.search(r'data-wide="(-?\d+)"', drawn)
    assert wide, drawn[-500:]
    assert int(wide[1]) <= 0


def test_the_landing_page_begins_with_the_fast_road() -> None:
    first, *_ = re.findall(r"(?m)^- \[[^]]+\]\(([^)]+)\)", (ROOT / "docs/SUMMARY.md").read_text())
    assert first == "own-data.md"
    readme = (ROOT / "README.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", readme)
    assert links[0] == f"docs/{first}"
    assert {"docs/when-not.md", "docs/coming-from/kafka.md"} <= set(links)
    parts = re.findall(r"(?m)^# (.+)$", (ROOT / "docs/SUMMARY.md").read_text())[1:]
    assert parts == ["Begin", "Make and read batches", "Run it", "Look it up", "Know why it holds"]
