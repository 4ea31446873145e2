"""The operator's pages: error messages in troubleshooting.md, log fields in operations.md."""

from __future__ import annotations

import re
from pathlib import Path

from error_messages import first_words, has_a_remedy, messages, texts
from site_of_daemons import ROOT

SOURCES = [
    "crates/producer/src/error.rs",
    "crates/producer/src/worker.rs",
    "crates/producer/src/transform/error.rs",
    "crates/producer/src/sources/error.rs",
    "crates/producer/src/sources/input_error.rs",
    "crates/producer/src/cursor.rs",
    "crates/consumer/src/error.rs",
    "crates/log/src/error.rs",
    "crates/arena/src/error.rs",
    "crates/client/src/error.rs",
    "crates/cli/src/run/error.rs",
]


def test_each_error_message_has_a_remedy_or_a_row() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text().split("## By message")[1]
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.*) \|$", page, re.MULTILINE))
    known = {
        f"{source}: {name}": text
        for source in SOURCES
        for name, text in texts(ROOT / source).items()
        if first_words(text)
    }
    assert len(known) > 50
    silent = {name: first_words(text) for name, text in known.items() if not has_a_remedy(text)}
    missing = [f"`{words}` ({name})" for name, words in silent.items() if words not in rows]
    assert not missing, f"neither in the message nor on the page is a remedy: {missing}"
    unknown = set(rows) - {first_words(text) for text in known.values()}
    assert not unknown, f"no such message: {sorted(unknown)}"
    for words, row in rows.items():
        cells = row.split(" | ")
        assert len(cells) == 2, words
        assert all(len(cell) > 5 for cell in cells), words


def test_messages_are_found(tmp_path: Path) -> None:
    source = tmp_path / "error.rs"
    source.write_text(
        """pub enum Bad {
    #[error("no {what} at {root}: it is \\
             missing; make one")]
    Gone { what: String },
    #[error("{0}")]
    Other(String),
    #[error("{0}; start again")]
    Last(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}
"""
    )
    found = messages(source)
    assert found == {"Bad::Gone": "no ... at ...: it is missing", "Bad::Last": "start again"}


def logged(source: str) -> set[str]:
    """Return the names of the fields that a source logs at level info and above."""
    found: set[str] = set()
    for call in re.finditer(r"\b(?:error|warn|info)!\(", source):
        depth, at, quoted = 1, call.end(), False
        while depth:
            letter = source[at]
            quoted ^= letter == '"' and source[at - 1] != "\\"
            if not quoted:
                depth += (letter in "([{") - (letter in ")]}")
            at += 1
        # The part before the message, without values.
        fields = re.split(r'"(?=[^"]*"\s*,?\s*$)', source[call.end() : at - 1])[0]
        fields = re.sub(r"\([^()]*\)", "", fields)
        found |= set(re.findall(r"(?:^|,)\s*[%?]?([a-z_]+)\s*(?=,|=|$)", fields))
    return found - {"target", "name"}


def test_the_fields_of_the_log_match_the_page() -> None:
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
