"""examples/captions.py with real daemons: a model learns from images what their captions say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from examples_run import EXAMPLES, daemons_of
from real_daemons import MARKS

pytestmark = MARKS

LAST = re.compile(r"step (\d+): loss ([\d.]+), with wrong images ([\d.]+)\n\Z")


@pytest.mark.parametrize("form", ["tars", "parquet"])
def test_only_the_model_with_the_right_images_names_the_colours(tmp_path: Path, form: str) -> None:
    example = [sys.executable, str(EXAMPLES / "captions.py")]
    making = [*example, "make", str(tmp_path)]
    changes = {}
    if form == "parquet":
        making.append("--parquet")
        changes = {'from = "png"': 'from = "image.bytes"'}
    subprocess.run(making, check=True)
    with daemons_of("captions", tmp_path, changes=changes) as daemons:
        said = subprocess.run(
            [*example, "train", "--socket", str(tmp_path / "s")],
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=True,
        ).stdout.decode()
        assert daemons.wait(120) == 0, (tmp_path / "daemons.log").read_text()
    found = LAST.search(said)
    assert found, said
    steps, loss, wrong = int(found[1]), float(found[2]), float(found[3])
    assert steps > 100
    assert loss < 0.6 * wrong, said
