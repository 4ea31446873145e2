"""The operator's pages: every error in troubleshooting.md, every key in configuration.md."""

from __future__ import annotations

import re

from site_of_daemons import ROOT

SOURCES = [
    "crates/producer/src/error.rs",
    "crates/producer/src/worker.rs",
    "crates/producer/src/transform/error.rs",
    "crates/producer/src/sources/error.rs",
    "crates/producer/src/cursor.rs",
    "crates/consumer/src/error.rs",
    "crates/log/src/error.rs",
    "crates/arena/src/error.rs",
    "crates/client/src/error.rs",
]


def errors(source: str) -> set[str]:
    """`Enum::Variant` of every variant with a message of its own."""
    text = (ROOT / source).read_text().split("#[cfg(test)]")[0]
    found = set()
    for enum, body in re.findall(r"pub(?:\(crate\))? enum (\w+) \{\n(.*?)\n\}", text, re.DOTALL):
        messages = re.findall(r"#\[error\((.*?)\)\]\s*(\w+)", body, re.DOTALL)
        found |= {f"{enum}::{name}" for said, name in messages if said != "transparent"}
    return found


def test_each_error_has_cause_and_remedy() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+::\w+)` \| (.*) \|$", page, re.MULTILINE))
    known = set().union(*(errors(source) for source in SOURCES))
    assert len(known) > 50
    assert known <= set(rows), f"not on the page: {sorted(known - set(rows))}"
    assert set(rows) <= known, f"no such error: {sorted(set(rows) - known)}"
    for name, row in rows.items():
        cells = row.split(" | ")
        assert len(cells) == 2, name
        assert all(len(cell) > 5 for cell in cells), name


def configured(name: str) -> list[str]:
    """Lines of the tables of configuration.md, made from the shipped file."""
    text = (ROOT / "config" / f"{name}.toml").read_text()
    table = ""
    words: list[str] = []
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("["):
            table, words = line.strip("[]"), []
        elif found := re.match(r"^(?:# )?(\w+) = (.*)$", line):
            reason = " ".join(words) or "As above."
            default = "" if line.startswith("#") else f"`{found[2]}`"
            key = f"`{table}.{found[1]}`"
            lines.append(f"| {key} | {default} | {reason.replace('|', chr(92) + '|')} |")
            words = []
        elif line.startswith("#"):
            words.append(line.removeprefix("#").strip())
        else:
            words = []
    return lines


def test_configuration_md_is_made_from_the_shipped_files() -> None:
    path = ROOT / "docs" / "configuration.md"
    page = path.read_text()
    for name in ("producer", "consumer"):
        begin, end = f"<!-- {name} -->\n", f"<!-- end {name} -->"
        head, rest = page.split(begin)
        _, tail = rest.split(end)
        table = "\n".join(["| key | default | meaning |", "|---|---|---|", *configured(name), ""])
        page = head + begin + table + end + tail
    assert path.read_text() == page, "docs/configuration.md lags behind config/*.toml"


def logged(source: str) -> set[str]:
    """Names of the fields of what a source logs at level info and above."""
    found: set[str] = set()
    for call in re.finditer(r"\b(?:error|warn|info)!\(", source):
        depth, at, quoted = 1, call.end(), False
        while depth:
            letter = source[at]
            quoted ^= letter == '"' and source[at - 1] != "\\"
            if not quoted:
                depth += (letter in "([{") - (letter in ")]}")
            at += 1
        # What stands before the message, without values.
        fields = re.split(r'"(?=[^"]*"\s*,?\s*$)', source[call.end() : at - 1])[0]
        fields = re.sub(r"\([^()]*\)", "", fields)
        found |= set(re.findall(r"(?:^|,)\s*[%?]?([a-z_]+)\s*(?=,|=|$)", fields))
    return found - {"target", "name"}


def test_the_fields_of_the_log_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "operations.md").read_text().split("## Logs")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*`) \|", page, re.MULTILINE)
    documented = set(re.findall(r"`(\w+)`", " ".join(rows)))
    used: set[str] = set()
    for crate in ("consumer", "producer", "log", "daemon", "store"):
        for path in (ROOT / "crates" / crate / "src").rglob("*.rs"):
            if "test" not in str(path.relative_to(ROOT)):
                used |= logged(path.read_text().split("#[cfg(test)]")[0])
    assert len(used) > 30
    assert used <= documented, f"not on the page: {sorted(used - documented)}"
    assert documented <= used, f"nothing logs: {sorted(documented - used)}"
