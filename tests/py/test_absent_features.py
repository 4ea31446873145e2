"""Each sentence of the documents about an absent feature names a test that fails when the
feature comes: absent_features.toml. Sentences without another test have a probe in one of
the other files test_absent_*.py.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

from site_of_daemons import ROOT

# Python 3.10 has no tomllib; there pytest brings the same.
TOML: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
HERE = Path(__file__).parent
LIST = TOML.loads((HERE / "absent_features.toml").read_text())
PAGES = sorted(
    [
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / f"{at}README.md" for at in ("", "deploy/", "python/")),
    ]
)
# Words that speak of an absent feature; they are few, so that ordinary negations are none of them.
ABSENT = re.compile(
    r"not (yet )?(supported|implemented|modelled|compared|tested|signed|detected)\b"
    r"|(is|are) not (read|used|decoded|enforced|rotated|encrypted)\b"
    r"|\b(has|have) no (reader|support)\b|\b(no|without) authentication\b"
    r"|\bthere (is|are) no\b|\bdo(es)? not (support|work)\b|\bnone in\b|\bnot yet\b"
    r"|\bnot on PyPI|\bnot for production|\bneeds? only\b|\bonly decodes|\bhas not run\b"
    r"|\bno scripts\b|\bno signatures\b|\bare not signatures\b|\bnot exist yet\b|: no reader\b",
    re.IGNORECASE,
)


def running(page: Path | str) -> str:
    """Return the text of a page in one line, without its blocks of code."""
    text = (ROOT / page).read_text()
    return " ".join(re.sub(r"(?ms)^```.*?^```$", "", text).split())


def test_the_words_stand_on_their_pages() -> None:
    texts = {page: running(page) for page in {entry["page"] for entry in LIST["absent"]}}
    for entry in LIST["absent"]:
        assert entry.keys() == {"page", "words", "test"}, entry
        assert entry["words"] in texts[entry["page"]], entry
    for entry in LIST["ordinary"]:
        assert entry.keys() == {"page", "words", "reason"}, entry
        assert entry["words"] in running(entry["page"]), entry


def test_each_has_a_test_that_exists() -> None:
    sources: dict[str, str] = {}
    for entry in LIST["absent"]:
        path, _, name = entry["test"].partition("::")
        source = sources.setdefault(path, (ROOT / path).read_text())
        word = {".py": "def", ".rs": "fn"}[Path(path).suffix]
        assert re.search(rf"(?m)^ *(async )?{word} {re.escape(name)}\(", source), entry
    named = {entry["test"].partition("::")[2] for entry in LIST["absent"]}
    others = (path for path in HERE.glob("test_absent_*.py") if path != Path(__file__))
    probes = "".join(path.read_text() for path in others)
    unused = set(re.findall(r"(?m)^def (test_\w+)\(", probes)) - named
    assert not unused, "a probe for no sentence"


def test_no_such_sentence_is_missing_from_the_list() -> None:
    known = [*LIST["absent"], *LIST["ordinary"]]
    missing = []
    for page in PAGES:
        at = str(page.relative_to(ROOT))
        text = running(at)
        places = [
            (begin, begin + len(entry["words"]))
            for entry in known
            if entry["page"] == at
            for begin in (found.start() for found in re.finditer(re.escape(entry["words"]), text))
        ]
        for found in ABSENT.finditer(text):
            if not any(begin <= found.start() < end for begin, end in places):
                missing.append(f"{at}: ... {text[max(0, found.start() - 60) : found.end() + 40]}")
    assert not missing, "add them to tests/py/absent_features.toml:\n" + "\n".join(missing)
