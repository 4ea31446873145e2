"""A program that ends in the middle has no traceback, and the daemon learns its position."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import eventually
from fake_daemon import FakeDaemon

SIX_LINES = """
import numpy
import batchweave
reader = batchweave.connect(job="j")
for batch in reader:
    inputs = batch.inputs
    break
"""
# Modules are emptied before what they refer to is dropped.
LATE = """
import builtins, json, sys
json.kept, sys.kept, builtins.kept = batch, next(reader), next(reader).slices[0]["tokens"]
"""
IN_CYCLES = """
class Model: pass
model = Model()
model.itself, model.batch, model.reader = model, next(reader), reader
del reader, batch
"""
IN_A_THREAD = """
import threading
held = threading.Event()
def train():
    batch = next(reader)
    held.set()
    threading.Event().wait()
threading.Thread(target=train, daemon=True).start()
assert held.wait(10)
"""
AFTER_AN_ERROR = "raise SystemExit(0)\n"


@pytest.mark.parametrize("slices", [1, 3])
@pytest.mark.parametrize("flags", [[], ["-X", "dev"], ["-W", "error"]])
@pytest.mark.parametrize("more", ["", LATE, IN_CYCLES, IN_A_THREAD, AFTER_AN_ERROR])
def test_the_interpreter_ends_in_silence_with_a_living_batch(
    path: Path, more: str, flags: list[str], slices: int
) -> None:
    with FakeDaemon(path, slices=slices) as daemon:
        found = subprocess.run(
            [sys.executable, *flags, "-c", SIX_LINES + more],
            env={**os.environ, "BATCHWEAVE_SOCKET": str(path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
        (peer,) = daemon.peers
        # The last position is on record, and it said goodbye.
        eventually(peer.gone.is_set)
        assert peer.bye.is_set()
        assert peer.received == {LATE: 3, IN_CYCLES: 2, IN_A_THREAD: 2}.get(more, 1)


def test_a_closed_reader_and_a_forked_child_end_alike(path: Path) -> None:
    program = f"""
{SIX_LINES}
import os
if os.fork() == 0:
    raise SystemExit(0)
os.wait()
reader.close()
"""
    with FakeDaemon(path) as daemon:
        found = subprocess.run(
            [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", program],
            env={**os.environ, "BATCHWEAVE_SOCKET": str(path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (found.returncode, found.stderr) == (0, "")
        eventually(daemon.peers[0].gone.is_set)
        assert daemon.peers[0].received == 1
