"""Licence texts of all crates in the programs: `tools/release/licences.py FILE` writes them.

Fails for a crate whose licence is not in tools/release/allowed-licences.txt, and for one without a
text. Texts that crates are published without are in tools/release/texts: the first line of a file
there names its crates and the place from which the text was copied.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from shipped_crates import ROOT, Crate, fail, shipped, version

TEXTS = ROOT / "tools" / "release" / "texts"
ALLOWED = ROOT / "tools" / "release" / "allowed-licences.txt"
# Also COPYRIGHT, NOTICE and LICENSE-MIT, and those of a C library within a crate.
NAMES = re.compile(r"(?i)(un)?licen[cs]e|copying|copyright|notice")
NO_TEXTS = {".rs", ".c", ".h", ".cc", ".py", ".json", ".pl", ".sh", ".in"}
# Folders that are compiled into no program.
SKIPPED = {"tests", "test", "benches", "examples", "fuzz", "doc", "docs", "target"}
# The licence that zstd offers beside the one of zstd/LICENSE.
NOT_CHOSEN = {("zstd-sys", "zstd/COPYING")}
# The part of texts/ that belongs to no crate of the graph.
STANDARD_LIBRARY = "rust-std"


def allowed(expression: str, licences: set[str]) -> bool:
    """Return whether allowed licences meet an SPDX expression; `MIT/Apache-2.0` means OR."""
    words = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))

    def any_of() -> bool:
        met = all_of()
        while words[:1] == ["OR"]:
            del words[0]
            met = all_of() or met
        return met

    def all_of() -> bool:
        met = one()
        while words[:1] == ["AND"]:
            del words[0]
            met = one() and met
        return met

    def one() -> bool:
        if not words:
            return False
        first = words.pop(0)
        if first == "(":
            met = any_of()
            return bool(words) and words.pop(0) == ")" and met
        if words[:1] == ["WITH"]:
            del words[0]
            first = f"{first} WITH {words.pop(0) if words else ''}"
        return first in licences

    return any_of() and not words


def own_texts(crate: Crate) -> dict[str, str]:
    """Return the licence files of a crate: path below its folder, and text."""
    found: dict[str, str] = {}
    for path in sorted(crate.folder.rglob("*")):
        parts = path.relative_to(crate.folder).parts
        name = "/".join(parts)
        if SKIPPED & set(parts[:-1]) or not NAMES.match(path.name) or not path.is_file():
            continue
        if path.suffix.lower() not in NO_TEXTS and (crate.name, name) not in NOT_CHOSEN:
            found[name] = path.read_text(errors="replace").strip()
    return found


def added_texts() -> dict[str, str]:
    """Return the texts of tools/release/texts by crate."""
    found: dict[str, str] = {}
    for path in sorted(TEXTS.glob("*.txt")):
        first, _, text = path.read_text().partition("\n")
        names, _, origin = first.removeprefix("crates: ").partition("; from ")
        if not first.startswith("crates: ") or not origin:
            fail(f"{path}: expected a first line `crates: NAME ...; from PLACE`, found `{first}`")
        found |= {name: text.strip() for name in names.split()}
    return found


def collect(crates: list[Crate]) -> list[tuple[Crate, dict[str, str]]]:
    """Return the texts of each crate; fails with all crates that lack one."""
    found: list[tuple[Crate, dict[str, str]]] = []
    faults: list[str] = []
    licences = {line for line in ALLOWED.read_text().splitlines() if line and line[0] != "#"}
    added = added_texts()
    unused = set(added) - {STANDARD_LIBRARY}
    for crate in crates:
        if not allowed(crate.licence, licences):
            faults.append(f"{crate.key}: licence `{crate.licence}` is not in {ALLOWED.name}")
        texts = own_texts(crate)
        if crate.name in added:
            unused.discard(crate.name)
            texts["text of tools/release"] = added[crate.name]
        # A file below another folder is that of a part of the crate.
        elif all("/" in name for name in texts):
            faults.append(f"{crate.key}: no licence text in {crate.folder}, nor in {TEXTS}")
        found.append((crate, texts))
    faults += [f"{name}: is in {TEXTS}, and not in the programs" for name in sorted(unused)]
    if faults:
        fail("\n  ".join(["licences of crates in the programs:", *faults]))
    return found


def notice(found: list[tuple[Crate, dict[str, str]]]) -> str:
    """Return one text: the crates in a list, then each different text once with its crates."""
    own = (ROOT / "LICENSE").read_text().strip()
    lines = [
        f"The programs of BatchWeave {version()} contain the crates below, the standard library of",
        "Rust, and C code of some crates. The list names their licences; their texts follow.",
        "",
        *(f"{crate.name} {crate.version}: {crate.licence}" for crate, _ in found),
        "Rust's standard library: MIT OR Apache-2.0",
    ]
    by_text: dict[str, list[str]] = {}
    for crate, texts in found:
        for name, text in texts.items():
            by_text.setdefault(text, []).append(f"{crate.name} {crate.version} ({name})")
    by_text.setdefault(added_texts()[STANDARD_LIBRARY], []).append("Rust's standard library")
    by_text.setdefault(own, []).append("BatchWeave")
    for text, places in by_text.items():
        lines += ["", "-" * 80, *places, "-" * 80, text]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the file."""
    if len(sys.argv) != 2:
        sys.exit("usage: tools/release/licences.py FILE")
    found = collect([crate for crate in shipped().values() if not crate.own])
    Path(sys.argv[1]).write_text(notice(found))
    print(f"{sys.argv[1]}: {len(found)} crates, {sum(len(texts) for _, texts in found)} texts")


if __name__ == "__main__":
    main()
