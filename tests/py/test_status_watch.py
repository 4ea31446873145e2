"""`batchweave status --watch`: one poll per second until the stream has ended."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from site_of_daemons import BINARIES


def test_each_look_is_a_line_and_the_last_is_the_end(tmp_path: Path) -> None:
    store = ["--store", f"file://{tmp_path}"]
    program = str(BINARIES / "batchweave")
    shape = ["--slices", "2", "--seq-len", "16", "--rows-per-slice", "1", "--tokenizer", "bytes"]
    made = [program, *store, "init", *shape, "--fingerprint", "0" * 64]
    subprocess.run(made, check=True, capture_output=True)
    watch = subprocess.Popen(
        [program, *store, "--json", "status", "--watch", "--every", "100ms"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watch.stdout
    try:
        for _ in range(3):
            assert json.loads(watch.stdout.readline())["end"] is None
        sealed = [program, *store, "seal", "--reason", "a test"]
        subprocess.run(sealed, check=True, capture_output=True)
        rest = [json.loads(line) for line in watch.stdout]
        assert watch.wait(timeout=30) == 0
        assert (rest[-1]["sealed"], rest[-1]["end"]) == (True, 0)
    finally:
        watch.kill()
        watch.wait()
    both = subprocess.run(
        [program, *store, "status", "--watch", "--at", "0"], capture_output=True, check=False
    )
    assert both.returncode == 64
