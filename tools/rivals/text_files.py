"""The input of the comparison over text: documents of the Python library, as JSON lines."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path
from typing import NamedTuple

ROWS, SEQ_LEN, END = 16, 2048, 100_257
"""Rows of a step, the tokens of a row beside the first one, and the end token of cl100k_base."""
_DOCUMENT_CHARS = 16_384
_FILE_BYTES = 8 << 20
_TOKEN_BYTES = 5
"""More than a token of such text has on average, so that the steps that are read exist."""


class Text(NamedTuple):
    """The files, the bytes of their documents, and the steps that these surely fill."""

    folder: Path
    bytes: int
    steps: int


def make(folder: Path, enough: int) -> Text:
    """Writes at least this many bytes of documents; the library is repeated where it is smaller."""
    folder.mkdir()
    total, files = 0, 0
    while total < enough:
        before = total
        for source in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
            if total >= enough:
                break
            text = source.read_text(encoding="utf-8", errors="ignore")
            documents = [
                text[at : at + _DOCUMENT_CHARS] for at in range(0, len(text), _DOCUMENT_CHARS)
            ]
            with (folder / f"part-{files:04}.jsonl").open("a", encoding="utf-8") as out:
                out.writelines(json.dumps({"text": document}) + "\n" for document in documents)
                if out.tell() > _FILE_BYTES:
                    files += 1
            total += sum(len(document.encode()) for document in documents)
        if total == before:
            raise FileNotFoundError(f"{sysconfig.get_paths()['stdlib']} has no Python files")
    return Text(folder, total, total // (_TOKEN_BYTES * ROWS * SEQ_LEN))
