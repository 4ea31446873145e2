"""The documentation as a book: every page is there, every link has a target, every page fits."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from browser import Page
from shell_blocks import pages
from site_of_daemons import ROOT

PICTURES = os.environ.get("BATCHWEAVE_PICTURES")


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


# How far the page, its body and its text are wider than they show; parts that stick out of the text
# and do not scroll by themselves; pictures that were not found.
MEASURED = """(() => {
    const main = document.querySelector("main"), right = main.getBoundingClientRect().right;
    const parts = [document.documentElement, document.body, main];
    const scrolls = part => part !== main &&
        (/auto|scroll/.test(getComputedStyle(part).overflowX) || scrolls(part.parentElement));
    const inside = [...main.querySelectorAll("table, img, svg, pre")];
    const ends = one => one.getBoundingClientRect().right;
    const out = inside.filter(one => ends(one) > right + 1 && !scrolls(one));
    const lost = [...main.querySelectorAll("img")].filter(one => one.naturalWidth === 0);
    return {
        wider: Math.max(...parts.map(part => part.scrollWidth - part.clientWidth)),
        out: out.map(one => one.outerHTML.slice(0, 80)),
        lost: lost.map(one => one.src),
    };
})()"""
FITS = {"wider": 0, "out": [], "lost": []}
# The narrow one first: a window that shrinks keeps mdBook's open table of contents beside the text.
WIDTHS = (390, 1280)
# Contrast of text to page, and brightness of the page from 0 to 1, as WCAG 2 defines them.
COLOURS = """(() => {
    const luminance = colour => {
        const parts = colour.match(/[\\d.]+/g).slice(0, 3).map(part => part / 255);
        const [r, g, b] = parts.map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const style = one => getComputedStyle(one);
    const clear = colour => /transparent|, 0\\)/.test(colour);
    const behind = one => one === document.documentElement || !clear(style(one).backgroundColor)
        ? luminance(style(one).backgroundColor) : behind(one.parentElement);
    const contrast = one => {
        const pair = [luminance(style(one).color), behind(one)];
        return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    };
    const texts = "p, p a, th, td, li, code, .hljs-comment, .hljs-string, .hljs-keyword";
    const found = [...document.querySelectorAll("main :is(" + texts + ")")].map(contrast);
    return {back: behind(document.documentElement), contrast: Math.min(...found)};
})()"""


def test_every_page_fits_its_window(built: Path, page: Page) -> None:
    """Wide tables and code scroll by themselves, the page does not; the console is silent."""
    wrong = []
    for file in sorted(built.rglob("*.html")):
        if file.name in ("toc.html", "404.html"):
            continue
        page.show(file.as_uri(), WIDTHS[0], "light")
        for width in WIDTHS:
            page.resize(width)
            found = page.evaluate(MEASURED)
            if found != FITS or page.console:
                wrong.append((file.name, width, found, list(page.console)))
            page.console.clear()
    assert not wrong, wrong


def test_what_does_not_fit_is_found(built: Path, page: Page) -> None:
    page.show((built / "docs" / "performance.html").as_uri(), WIDTHS[0], "light")
    assert page.evaluate(MEASURED) == FITS
    add = "document.querySelector('main').innerHTML +="
    page.evaluate(f"{add} '<p style=white-space:nowrap>' + 'wide '.repeat(300)")
    assert page.evaluate(MEASURED)["wider"] > 1000
    page.evaluate(
        "document.querySelector('main img').style.cssText = 'max-width: none; width: 3000px'"
    )
    page.evaluate(f"{add} '<img src=nowhere.png>'")
    found = page.evaluate(MEASURED)
    assert found["out"], found
    assert found["lost"], found
    page.console.clear()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "name", ["index", "docs/own-data", "docs/first-steps", "docs/python", "docs/performance"]
)
def test_pages_follow_the_colour_scheme(built: Path, page: Page, name: str, scheme: str) -> None:
    """With BATCHWEAVE_PICTURES pictures at both widths are kept."""
    page.show((built / f"{name}.html").as_uri(), WIDTHS[0], scheme)
    for width in WIDTHS:
        page.resize(width)
        found = page.evaluate(COLOURS)
        assert (found["back"] < 0.1) == (scheme == "dark"), found
        assert found["contrast"] >= 4.5, found
        if PICTURES:
            page.picture(Path(PICTURES) / f"book-{Path(name).name}-{width}-{scheme}.png")


def test_the_landing_page_begins_with_the_fast_road() -> None:
    first, *_ = re.findall(r"(?m)^- \[[^]]+\]\(([^)]+)\)", (ROOT / "docs/SUMMARY.md").read_text())
    assert first == "own-data.md"
    readme = (ROOT / "README.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", readme)
    assert links[0] == f"docs/{first}"
    assert {"docs/when-not.md", "docs/coming-from/kafka.md"} <= set(links)
    parts = re.findall(r"(?m)^# (.+)$", (ROOT / "docs/SUMMARY.md").read_text())[1:]
    assert parts == ["Begin", "Make and read batches", "Run it", "Look it up", "Know why it holds"]
