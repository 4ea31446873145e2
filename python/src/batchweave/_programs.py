"""The programs of this project: where they are, and the answers of `batchweave VERB --json`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from batchweave.errors import NoProgramError, StreamNotOpenedError

FOLDER_VARIABLE = "BATCHWEAVE_BIN_DIR"
# The last lines of a program's messages that an error repeats, at most.
_LINES_MAX = 3
_LINE_CHARS_MAX = 500


def find(name: str) -> str:
    """Returns the path of a program.

    In the folder that BATCHWEAVE_BIN_DIR names; else beside this Python's scripts, where pip puts
    it, else on PATH.
    """
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder:
        places = [Path(folder)]
    else:
        places = [Path(sysconfig.get_path("scripts", scheme)) for scheme in _schemes()]
    for place in places:
        if os.access(place / name, os.X_OK):
            return str(place / name)
    found = None if folder else shutil.which(name)
    if found is not None:
        return found
    looked = ", ".join(dict.fromkeys(map(str, places))) + ("" if folder else ", nor on PATH")
    raise NoProgramError(
        f"the program {name} is not in {looked}: install the wheel that has the programs "
        "(`make wheel`, then pip install target/wheels/batchweave-*.whl), or name their folder in "
        f"PATH or {FOLDER_VARIABLE}"
    )


def _schemes() -> list[str]:
    # Of this environment, and of `pip install --user`.
    return [sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")]


def ask(
    url: str,
    words: list[str],
    seconds: float,
    environment: Mapping[str, str] | None = None,
    remedy: str = ", or give a longer timeout=",
) -> dict[str, Any]:
    """Returns the JSON that a verb of `batchweave` prints about the stream at `url`.

    `environment`: variables beside those of this process. `remedy`: the caller's own one for a
    program that has not ended in this time.
    """
    found: dict[str, Any] = json.loads(
        said(url, [*words, "--json"], seconds, environment, remedy, called=" ".join(words))
    )
    return found


def said(
    url: str,
    words: list[str],
    seconds: float,
    environment: Mapping[str, str] | None = None,
    remedy: str = ", or give a longer timeout=",
    *,
    called: str,
) -> bytes:
    """Returns the output of a verb of `batchweave`; `called`: its words in an error."""
    command = [find("batchweave"), *words, f"--store={url}"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
            env={**os.environ, **(environment or {})},
        )
    except subprocess.TimeoutExpired:
        raise StreamNotOpenedError(
            f"`batchweave {called}` on {url} has not ended in {seconds:g} s: check the "
            f"store with `batchweave doctor`{remedy}"
        ) from None
    except OSError as error:
        raise NoProgramError(
            f"cannot start {command[0]}: {error}; install the programs again, or name another "
            f"folder in {FOLDER_VARIABLE}"
        ) from None
    if done.returncode != 0:
        why = last_lines(done.stderr, "error: ")
        raise StreamNotOpenedError(why or f"`{' '.join(command)}` ended with {done.returncode}")
    return done.stdout


def last_lines(text: bytes, prefix: str) -> str:
    """Returns the last lines of a program's messages as one line; empty without any."""
    lines = [line.strip() for line in text.decode(errors="replace").splitlines()]
    lines = [line.removeprefix(prefix)[:_LINE_CHARS_MAX] for line in lines if line]
    return " | ".join(lines[-_LINES_MAX:])
