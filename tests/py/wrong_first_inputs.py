"""Reads wrong_first_inputs.txt: the wrong first inputs of a newcomer, each with its answer.

A case is a title and indented lines. Of a daemon: `key = value` and `without key` change a
configuration that works, and lines that begin with `|` are a whole one; `env` changes the
environment. A command line begins with `$`, a line of Python with `>`. Then the exit code and the
answer, and with `--check` the answer of that option, which is the same unless it is listed, and
always ends with 64.

In a text DIR is the folder of the test, HERE the working folder, SOCKET the socket of a consumer;
in an answer `*` stands for any text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

Values = dict[str, "str | None"]
TABLE = Path(__file__).with_suffix(".txt")


@dataclass
class Case:
    """A wrong input and its answer."""

    kind: str
    """`producer`, `consumer`, `command` or `python`."""
    name: str
    changes: Values = field(default_factory=dict)
    text: str = ""
    line: str = ""
    env: Values = field(default_factory=dict)
    exit: int = 0
    """0 where only --check finds it."""
    answer: str = ""
    check: str = ""

    def add(self, line: str) -> None:
        """Read a line below the title."""
        first, _, rest = line.partition(" ")
        if first == "|":
            self.text += f"{rest}\n"
        elif first in ("$", ">"):
            self.line = rest
        elif first == "env":
            self.env |= changed(rest, "=")
        elif first == "--check":
            self.check = rest
        elif first.isdigit():
            self.exit, self.answer = int(first), rest
        else:
            self.changes |= changed(line, " = ")


def changed(line: str, sign: str) -> Values:
    """Read a change of one key or variable."""
    if line.startswith("without "):
        return {line.removeprefix("without "): None}
    key, _, value = line.partition(sign)
    return {key: value}


def cases() -> list[Case]:
    """Return all cases."""
    found: list[Case] = []
    for line in TABLE.read_text().splitlines():
        if line.startswith(" "):
            found[-1].add(line.strip())
        elif line:
            kind, _, name = line.partition(": ")
            found.append(Case(kind, name))
    return found
