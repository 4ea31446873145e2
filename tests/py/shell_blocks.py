"""Commands in the documentation, with the output that the page shows."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from site_of_daemons import ROOT


@dataclass
class Command:
    """One command of a transcript."""

    page: str
    line: int
    text: str
    output: list[str] = field(default_factory=list)

    @property
    def place(self) -> str:
        """Return its file and line."""
        return f"{self.page}:{self.line}: {self.text.splitlines()[0]}"

    def refused(self) -> bool:
        """Return true if the page shows that it fails."""
        return any(re.match(r"error: |\s*FAIL |not fit", line) for line in self.output)


def pages() -> list[Path]:
    """Return all pages of the documentation."""
    docs = sorted((ROOT / "docs").rglob("*.md"))
    named = ["README.md", "deploy/README.md", "python/README.md"]
    return [ROOT / name for name in named] + docs


def blocks(text: str) -> list[tuple[int, str, list[str]]]:
    """Return fenced and indented blocks: line, language (`""` for indented ones), lines."""
    found: list[tuple[int, str, list[str]]] = []
    language: str | None = None
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        fence = re.match(r"^```(\w*)", line)
        if fence:
            language = None if language is not None else fence[1]
            if language is not None:
                found.append((number + 1, language or "text", []))
        elif language is not None:
            found[-1][2].append(line)
            inside = False
        elif line.startswith("    "):
            if not inside:
                found.append((number, "", []))
            found[-1][2].append(line[4:])
            inside = True
        elif inside and not line:
            found[-1][2].append("")
        else:
            inside = False
    return found


def commands(path: Path) -> list[Command]:
    """Return the commands of transcripts (with a prompt) and of `sh` blocks (each line)."""
    page = str(path.relative_to(ROOT))
    found: list[Command] = []
    for first, language, lines in blocks(path.read_text()):
        if language not in ("", "console", "sh"):
            continue
        goes_on = False
        begun = len(found)
        for number, line in enumerate(lines, first):
            shown = line.removeprefix("$ ") if line.startswith("$ ") else None
            if language == "sh" and line and not goes_on:
                shown = line
            if goes_on:
                found[-1].text += "\n" + line
            elif shown is not None:
                found.append(Command(page, number, shown))
            elif len(found) > begun:
                found[-1].output.append(line)
            goes_on = (goes_on or shown is not None) and line.endswith("\\")
    return found


def words(line: str) -> set[str]:
    """Return the words of a line that do not change from run to run."""
    line = re.sub(r'"[^"]*"|\S*[/\\=]\S*', " ", line)
    return set(re.findall(r"\b[A-Za-z_-]{3,}\b", line)) - {"INFO", "WARN"}


def missing(expected: list[str], actual: str) -> list[str]:
    """Return documented lines without a similar line (most words equal) in the output."""
    there = [words(line) for line in actual.splitlines()]

    def seen(line: str) -> bool:
        wanted = words(line)
        return not wanted or any(len(wanted & one) >= 0.6 * len(wanted) for one in there)

    return [line for line in expected if line.strip() not in ("", "...") and not seen(line)]
