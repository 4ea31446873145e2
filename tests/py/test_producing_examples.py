"""The examples of the producer's pages are configurations that it accepts."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from shell_blocks import blocks
from site_of_daemons import BINARIES, ROOT

# Python 3.10 has no tomllib; there pytest brings the same.
TOML: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

EXAMPLES = [
    (page, line, "\n".join(lines))
    for page in ("producing.md", "choosing-order.md", "inbox.md")
    for line, kind, lines in blocks((ROOT / "docs" / page).read_text())
    if kind == "toml"
]
# The keys that an example leaves to its reader.
STORE = 'store.url = "s3://bucket/stream"'
NAME = 'producer.name = "tokens-0"'
PATHS = 'source.paths = ["corpus/*.jsonl"]'
CHAT = 'packing.mode = "chat"\nchat.template = "chat.jinja"'


def whole(example: str) -> str:
    """Return the example with the keys that every configuration has."""
    tables = TOML.loads(example)
    missing = {
        STORE: "store" not in tables,
        NAME: "producer" not in tables,
        PATHS: "sources" not in tables and "paths" not in tables.get("source", {}),
        # An addition to the example above it.
        CHAT: "chat" in tables and "packing" not in tables,
    }
    return "\n".join([*(key for key, lacks in missing.items() if lacks), example, ""])


def test_each_task_has_an_example() -> None:
    page = (ROOT / "docs" / "producing.md").read_text()
    tasks = ["Text", "Chat", "Images and arrays", "Token ids", "Several sources", "Lanes"]
    for task in [*tasks, "Input that grows", "Your own code"]:
        section = page.split(f"# {task}\n")[1].split("\n## ")[0]
        assert "```toml\n" in section, f"{task} has no example"


@pytest.mark.parametrize(
    ("page", "line", "example"), EXAMPLES, ids=[f"{page}:{line}" for page, line, _ in EXAMPLES]
)
def test_the_producer_accepts_the_example(
    page: str, line: int, example: str, tmp_path: Path
) -> None:
    config = tmp_path / "producer.toml"
    config.write_text(whole(example))
    command = [str(BINARIES / "batchweave-producer"), "--config", str(config), "--check=file"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, f"docs/{page}:{line}: {ended.stderr}\n{config.read_text()}"
