"""examples/captions.py with real daemons: a model learns from images what their captions say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from real_daemons import BINARIES, MARKS

pytestmark = MARKS

EXAMPLES = Path(__file__).parents[1] / "examples"
LAST = re.compile(r"step (\d+): loss ([\d.]+), with wrong images ([\d.]+)\n\Z")


@pytest.mark.parametrize("form", ["tars", "parquet"])
def test_only_the_model_with_the_right_images_names_the_colours(tmp_path: Path, form: str) -> None:
    text = (EXAMPLES / "captions.toml").read_text()
    text = text.replace("/tmp/batchweave-captions", str(tmp_path))
    example = [sys.executable, str(EXAMPLES / "captions.py")]
    making = [*example, "make", str(tmp_path)]
    if form == "parquet":
        making.append("--parquet")
        text = text.replace('from = "png"', 'from = "image.bytes"')
    config, socket = tmp_path / "captions.toml", tmp_path / "s"
    config.write_text(f'socket.path = "{socket}"\n{text}')
    subprocess.run(making, check=True)
    with (tmp_path / "daemons.log").open("wb") as log:
        daemons = subprocess.Popen(
            [str(BINARIES / "batchweave"), "run", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "BATCHWEAVE_BIN_DIR": str(BINARIES)},
        )
    try:
        said = subprocess.run(
            [*example, "train", "--socket", str(socket)],
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=True,
        ).stdout.decode()
        assert daemons.wait(120) == 0, (tmp_path / "daemons.log").read_text()
    finally:
        daemons.kill()
        daemons.wait()
    found = LAST.search(said)
    assert found, said
    steps, loss, wrong = int(found[1]), float(found[2]), float(found[3])
    assert steps > 100
    assert loss < 0.6 * wrong, said
