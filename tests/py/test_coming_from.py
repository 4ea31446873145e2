"""The examples of docs/coming-from/ run as they are written; docs/paper.md names files and tests
that exist.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from shell_blocks import Command, blocks, commands
from site_of_daemons import BINARIES, ROOT, eventually, free_port
from stand_ins import write_missing
from test_docs import Terminal, check, environment

SHARED = ROOT / "docs" / "coming-from" / "README.md"
PAGES = sorted(page for page in SHARED.parent.glob("*.md") if page != SHARED)
# The first line of a block that is a file names it, in a comment.
NAME = re.compile(r"(?:#|\{#-) (\S+\.(?:toml|py|jinja))(?: -#\})?$")


def named_files(page: Path) -> dict[str, str]:
    """Return the files that a page shows, by name."""
    found = {}
    for line, language, lines in blocks(page.read_text()):
        if language in ("toml", "python", "jinja"):
            name = NAME.match(lines[0])
            assert name, f"{page.name}:{line}: the first line does not name the file"
            found[name[1]] = "\n".join(lines) + "\n"
    return found


class Example:
    """The example of one page, in a folder of its own."""

    def __init__(self, page: Path, terminal: Terminal) -> None:
        self.page, self.terminal = page, terminal
        environment(terminal.folder)
        (terminal.folder / "venv" / "bin" / "python").rename(terminal.folder / "python3")
        terminal.environment["PATH"] = f"{terminal.folder}:{BINARIES}:/usr/bin:/bin"
        for name, text in (named_files(SHARED) | named_files(page)).items():
            listen = f'admin.listen = "127.0.0.1:{free_port()}"\n'
            text = re.sub(r"(?m)^(store\.url = .*\n)", rf"\1{listen}", text)
            (terminal.folder / name).write_text(self.here(text))
        write_missing(terminal.folder)
        (terminal.folder / "docs").symlink_to(ROOT / "docs")

    def here(self, text: str) -> str:
        """Replace the page's places by ones that no other program uses."""
        return text.replace("/tmp/batchweave-new", str(self.terminal.folder / "new"))

    def begin(self, command: Command, what: str) -> None:
        """Start a daemon in its own terminal, and wait for its words."""
        self.terminal.begin(command.text.split()[0], self.here(command.text))
        name = command.text.split()[0]
        eventually(what, lambda: what in self.terminal.output(name))

    def run(self, command: Command) -> None:
        text = self.here(command.text)
        follows = "follow = true" in (self.terminal.folder / "producer.toml").read_text()
        if text.startswith("batchweave-producer") and follows:
            self.begin(command, "producing")
            # The page seals the stream when all of the topic is in it.
            last = commands(self.page)[-1].text.split()[-1]
            show = f"batchweave show {last} --store file://{self.terminal.folder}/new"
            eventually(f"step {last}", lambda: self.terminal.run(show)[0] == 0)
            check(command, self.terminal.output("batchweave-producer"))
            return
        code, output = self.terminal.run(text)
        assert code == 0, f"{command.place}: {code}: {output}"
        check(command, output)
        if text.startswith("python3 read.py"):
            # Its first lines are those of the page, to the number.
            wanted = [line for line in command.output if line != "..."]
            assert output.splitlines()[: len(wanted)] == wanted, command.place


def test_the_index_and_the_summary_list_each_page() -> None:
    index = set(re.findall(r"(?m)^- \[[^]]+\]\(([\w-]+\.md)\)", SHARED.read_text()))
    assert index == {page.name for page in PAGES}
    summary = (ROOT / "docs" / "SUMMARY.md").read_text()
    listed = set(re.findall(r"\(coming-from/([\w-]+\.md)\)", summary))
    assert listed == index | {SHARED.name}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_an_example_runs_as_it_is_written(page: Path, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    try:
        example = Example(page, terminal)
        assert "python3 read.py" in commands(page)[-1].text, "its batches are read at the end"
        for command in commands(page):
            example.run(command)
    finally:
        terminal.end()


def test_what_the_page_of_the_paper_names_exists() -> None:
    page = (ROOT / "docs" / "paper.md").read_text()
    claims = re.findall(r"(?m)^\| (\d+) \|", page)
    items = re.findall(r"(?m)^(\d+)\. (.+)$", page)
    assert claims == [number for number, _ in items] == [str(n) for n in range(1, 12)]
    sources = [p for top in ("crates", "tests", "python") for p in (ROOT / top).rglob("*.[rp][sy]")]
    tests = set(re.findall(r"(?:fn|def) (\w+)\(", "\n".join(p.read_text() for p in sources)))
    named = [name for _, item in items for name in re.findall(r"`([^`]+)`", item)]
    files = [name for name in named if "/" in name]
    shown = [name for name in named if "/" not in name]
    assert len(files) > 15
    assert len(shown) > 15
    assert [name for name in files if not (ROOT / name).exists()] == []
    assert [name for name in shown if name not in tests] == []
