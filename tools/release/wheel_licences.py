"""Licence files in a built wheel: `tools/release/wheel_licences.py WHEEL FILE ...` adds them.

maturin takes files of the checkout only, and the texts of all crates are collected from elsewhere.
They are in the wheel where pip expects them: in licenses/ of its metadata, which name them.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from pathlib import Path

from shipped_crates import fail


def record(name: str, content: bytes) -> str:
    """Return the line of RECORD on a file."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}"


def with_licences(metadata: str, names: list[str]) -> str:
    """Return METADATA with a line for each file, before its description."""
    head, blank, description = metadata.partition("\n\n")
    known = set(head.splitlines())
    lines = [line for name in names if (line := f"License-File: {name}") not in known]
    return "\n".join([head, *lines]) + blank + description


def add(wheel: Path, files: list[Path]) -> None:
    """Rewrite the wheel."""
    with zipfile.ZipFile(wheel) as old:
        infos = old.infolist()
        folders = {info.filename.split("/")[0] for info in infos if "/METADATA" in info.filename}
        if len(folders) != 1:
            fail(f"{wheel}: expected one folder with METADATA, found {len(folders)}")
        folder = folders.pop()
        added = {f"{folder}/licenses/{file.name}": file.read_bytes() for file in files}
        entries = {info.filename: old.read(info) for info in infos}
    metadata = entries[f"{folder}/METADATA"].decode()
    entries[f"{folder}/METADATA"] = with_licences(metadata, [file.name for file in files]).encode()
    entries |= added
    listed = [record(name, text) for name, text in entries.items() if not name.endswith("/RECORD")]
    entries[f"{folder}/RECORD"] = "\n".join([*listed, f"{folder}/RECORD,,", ""]).encode()
    kept = {info.filename: info for info in infos}
    fresh = wheel.with_suffix(".new")
    with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new:
        # RECORD is last, as in every wheel.
        for name in sorted(entries, key=lambda name: name.endswith("/RECORD")):
            info = kept.get(name)
            if info is None:
                info = zipfile.ZipInfo(name, kept[f"{folder}/METADATA"].date_time)
                info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            new.writestr(info, entries[name], compresslevel=9)
    fresh.replace(wheel)
    print(f"{wheel}: with {', '.join(file.name for file in files)}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: tools/release/wheel_licences.py WHEEL FILE ...")
    add(Path(sys.argv[1]), [Path(file) for file in sys.argv[2:]])
