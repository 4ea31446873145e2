"""Messages of the error enums in the Rust sources."""

from __future__ import annotations

import re
from pathlib import Path

# The first words that a row shows, at most.
WORDS = 9


def first_words(message: str) -> str:
    """The beginning of a message, its values as `...`; of a part that has words of its own."""
    for part in re.split(r"; |\\n|\. |`", re.sub(r"\{[^{}]*\}", "\0", message)):
        shown = " ".join(part.split()[:WORDS]).rstrip(":,; ")
        if re.search(r"[A-Za-z]{2}", shown):
            return shown.replace("\0", "...")
    return ""


def messages(path: Path) -> dict[str, str]:
    """First words by `Enum::Variant`, of all variants with a message of their own."""
    return {name: words for name, text in texts(path).items() if (words := first_words(text))}


def texts(path: Path) -> dict[str, str]:
    """Whole messages by `Enum::Variant`."""
    text = path.read_text().split("#[cfg(test)]")[0]
    found = {}
    for enum, body in re.findall(r"pub(?:\(\w+\))? enum (\w+) \{\n(.*?)\n\}", text, re.DOTALL):
        for attributes, name in re.findall(r"#\[error\((.*?)\)\]\s*(\w+)", body, re.DOTALL):
            literal = re.search(r'"((?:[^"\\]|\\.)*)"', attributes, re.DOTALL)
            if literal:
                whole = re.sub(r"\\\n\s*", "", literal[1]).replace('\\"', '"')
                found[f"{enum}::{name}"] = whole
    return found


def has_a_remedy(message: str) -> bool:
    """Whether a message ends in what to do, or in another message, which does."""
    return message.endswith("}") or bool(
        re.search(r"; |\\n[a-z]|\. [A-Z]|: (choose|reserve)\b|, or set ", message)
    )
