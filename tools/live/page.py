"""The shell commands of a page, by section, so that what is run is what the page says."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Block:
    """One `sh` block: its section, its commands, and whether it has been run."""

    section: str
    line: int
    commands: list[str] = field(default_factory=list)
    done: bool = False


def blocks(path: Path) -> list[Block]:
    """Returns the `sh` blocks of a page."""
    found: list[Block] = []
    section, inside, language = "", False, ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if fence := re.match(r"^```(\w*)", line):
            inside, language = not inside, fence[1] if not inside else ""
            if inside and language == "sh":
                found.append(Block(section, number + 1))
        elif inside and language == "sh":
            if found[-1].commands and found[-1].commands[-1].endswith("\\"):
                found[-1].commands[-1] += "\n" + line
            elif line.strip():
                found[-1].commands.append(line)
        elif not inside and (heading := re.match(r"^#+ (.+)$", line)):
            section = heading[1]
    return found


def without_comment(command: str) -> str:
    """Returns a command as a title: without the page's remark."""
    return re.split(r"\s+# ", command)[0].strip()


class Page:
    """The blocks of some sections of a page, to be run one by one."""

    def __init__(self, path: Path, sections: list[str]) -> None:
        self.name = str(path.relative_to(ROOT))
        self.blocks = [block for block in blocks(path) if block.section in sections]
        missing = set(sections) - {block.section for block in self.blocks}
        if missing:
            raise ValueError(f"{self.name}: no commands in {', '.join(sorted(missing))}")

    def block(self, section: str, having: str) -> Block:
        """Returns the block of a section that has a command with this text, and marks it as run."""
        for block in self.blocks:
            if block.section == section and any(having in one for one in block.commands):
                block.done = True
                return block
        raise ValueError(f"{self.name}: no command with {having!r} in {section!r}")

    def left(self) -> list[str]:
        """Returns the blocks that nobody has run."""
        return [
            f"{self.name}:{block.line}: {without_comment(block.commands[0])}"
            for block in self.blocks
            if not block.done
        ]
