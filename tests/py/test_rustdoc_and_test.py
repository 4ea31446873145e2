"""The documentation of a crate is built and tested again when a part of it changes."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from site_of_daemons import ROOT

RUSTDOC = """#!/bin/sh
echo "$*" >>"$CALLS"
! [ -e broken ]
"""


class Crate:
    """A crate with one library, and a compiler that only notes its calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "src").mkdir()
        (folder / "src/lib.rs").write_text("//! ```\n//! assert!(true);\n//! ```\n")
        (folder / "liba.rlib").touch()
        (folder / "rustdoc").write_text(RUSTDOC)
        (folder / "rustdoc").chmod(0o755)
        # What is as old as a result could be newer.
        for path in (*folder.iterdir(), folder / "src/lib.rs"):
            os.utime(path, (1, 1))

    def run(self, *more: str) -> int:
        """Build and test; return the number of calls of the compiler, -1 where it failed."""
        calls = self.folder / "calls"
        calls.write_text("")
        env = {**os.environ, "CALLS": str(calls), "BATCHWEAVE_RUSTDOC": str(self.folder / "doc")}
        env["PATH"] = f"{self.folder}:{env['PATH']}"
        words = ["--test", "src/lib.rs", "--extern", "a=liba.rlib", "-L", "dependency=."]
        command = [str(ROOT / "tools/rustdoc-and-test"), *words, *more]
        done = subprocess.run(command, cwd=self.folder, env=env, check=False)
        return len(calls.read_text().splitlines()) if done.returncode == 0 else -1


@pytest.fixture
def crate(tmp_path: Path) -> Crate:
    return Crate(tmp_path)


def test_what_has_passed_is_done_once(crate: Crate) -> None:
    assert crate.run() == 2
    assert crate.run() == 0


@pytest.mark.parametrize("changed", ["src/lib.rs", "src/new.rs", "liba.rlib"])
def test_a_change_is_seen(crate: Crate, changed: str) -> None:
    assert crate.run() == 2
    time.sleep(0.02)
    (crate.folder / changed).touch()
    assert crate.run() == 2
    assert crate.run("--cfg", "other") == 2
    assert crate.run() == 0


def test_what_failed_is_done_again(crate: Crate) -> None:
    (crate.folder / "broken").touch()
    assert crate.run() == -1
    assert crate.run() == -1
    (crate.folder / "broken").unlink()
    assert crate.run() == 2
