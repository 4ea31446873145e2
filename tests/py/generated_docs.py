"""The generated parts of the documentation: `python tests/py/generated_docs.py` writes them.

The tables of docs/configuration.md come from config/*.toml and the producer's table of settings,
the synopses of docs/cli.md, docs/lab.md and docs/dev-s3.md from `batchweave VERB --help`.
"""

from __future__ import annotations

import re
import subprocess
import textwrap
from pathlib import Path

from site_of_daemons import BINARIES, ROOT

CONFIGURATION = ROOT / "docs" / "configuration.md"
COMMANDS = [ROOT / "docs" / name for name in ("cli.md", "lab.md", "dev-s3.md")]
SYNOPSIS = re.compile(r"(<!-- synopsis ([^>]*) -->\n).*?(<!-- end synopsis -->)", re.DOTALL)


def settings() -> dict[str, tuple[str, bool]]:
    """Of the producer's keys: the range, and whether they decide the batches' bytes."""
    command = [str(BINARIES / "batchweave-producer"), "--settings"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [line.split("\t") for line in told.splitlines()]
    return {key: (limits, kept == "kept") for key, limits, kept in rows}


def option_table(name: str) -> list[str]:
    """The rows of configuration.md for a daemon, from the comments of its shipped file."""
    facts = settings() if name == "producer" else {}
    table = ""
    words: list[str] = []
    lines: list[str] = []
    for line in (ROOT / "config" / f"{name}.toml").read_text().splitlines():
        if line.startswith(("[", "# [[")):
            table, words = line.strip("#[] "), []
        elif found := re.match(r"^(?:# )?(\w+) = (.*)$", line):
            reason = " ".join(words).replace("|", "\\|")
            limits, kept = facts.get(f"{table}.{found[1]}", ("", False))
            key = f"`{table}.{found[1]}`" + "†" * kept
            listed = table == "sources" and found[1] not in ("name", "paths", "shuffle")
            default = f"`{found[2]}`" if listed or not line.startswith("#") else ""
            default += f" ({limits})" * (limits not in ("", "not empty", "at least 1"))
            if not reason:  # A key without a comment shares that of the key above.
                keys, defaults, reason = lines.pop().removeprefix("| ").split(" | ", 2)
                lines.append(f"| {keys}, {key} | {defaults}, {default} | {reason}")
            else:
                lines.append(f"| {key} | {default} | {reason} |")
            words = []
        elif line.startswith("#"):
            words.append(line.strip("# "))
        else:
            words = []
    return lines


def configuration() -> str:
    """The text of configuration.md with current tables; a row of both is in the first one."""
    page = CONFIGURATION.read_text()
    shown: list[str] = []
    for name in ("producer", "consumer"):
        begin, end = f"<!-- {name} -->\n", f"<!-- end {name} -->"
        head, rest = page.split(begin)
        _, tail = rest.split(end)
        own = [row for row in option_table(name) if row not in shown]
        shown += own
        rows = ["| key | default | meaning |", "|---|---|---|", *own, ""]
        page = head + begin + "\n".join(rows) + end + tail
    return page


def synopsis(text: str) -> str:
    """The synopsis of a command from its help: the usage, with each option of its own."""
    usage = re.search(r"^Usage: (.*)$", text, re.MULTILINE)
    assert usage, text
    own = text[usage.end() :].split("\nGlobal options:")[0]
    option = r"^ {2,6}(?:-\w, )?(--[\w-]+)((?: \[?<[^>]+>(?:\.\.\.\])?)?)"
    found = re.findall(option, own, re.MULTILINE)
    options = [name + value for name, value in found if name not in ("--help", "--version")]
    required = usage[1].split()
    optional = [f"[{one}]" for one in options if one.split()[0] not in required]
    line = usage[1].replace(" [OPTIONS]", "").replace("batchweave-lab ", "batchweave ")
    # An option and its value stay on one line.
    whole = " ".join([line, *(one.replace(" ", "\0") for one in optional)])
    wrapped = textwrap.wrap(whole, 100, subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join(wrapped).replace("\0", " ")


def commands(path: Path) -> str:
    """The text of a page with current synopses."""

    def current(found: re.Match[str]) -> str:
        shown = []
        for verb in found[2].split(", "):
            command = [str(BINARIES / "batchweave"), *verb.split(), "--help"]
            text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            shown.append(synopsis(text))
        block = "\n".join(["```text", *shown, "```"])
        return f"{found[1]}{block}\n{found[3]}"

    return SYNOPSIS.sub(current, path.read_text())


if __name__ == "__main__":
    CONFIGURATION.write_text(configuration())
    for page in COMMANDS:
        page.write_text(commands(page))
