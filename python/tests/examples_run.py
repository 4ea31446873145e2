"""Runs the daemons of an example, by its file, in a folder of the test."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from real_daemons import BINARIES

EXAMPLES = Path(__file__).parents[1] / "examples"


@contextlib.contextmanager
def daemons_of(
    name: str, folder: Path, *more: str, changes: Mapping[str, str] = MappingProxyType({})
) -> Iterator[subprocess.Popen[bytes]]:
    """`batchweave run NAME.toml`, with the stream in `folder` and the socket in its file `s`."""
    text = (EXAMPLES / f"{name}.toml").read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    place = f"/tmp/batchweave-{name.replace('_', '-')}"
    assert place in text
    config = folder / f"{name}.toml"
    config.write_text(f'socket.path = "{folder}/s"\n' + text.replace(place, str(folder)))
    with (folder / "daemons.log").open("wb") as log:
        process = subprocess.Popen(
            [str(BINARIES / "batchweave"), "run", str(config), *more],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "BATCHWEAVE_BIN_DIR": str(BINARIES)},
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(300)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
