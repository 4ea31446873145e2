"""The benchmark of images runs through real daemons, and measures what it says."""

from __future__ import annotations

import importlib.util
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import real_daemons
import webdataset  # type: ignore[import-untyped]
from PIL import Image

from batchweave.bench import images as bench

# The package leaves its files to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")


def lab(*more: str) -> subprocess.CompletedProcess[str]:
    command = [str(real_daemons.BINARIES / "batchweave-lab"), "bench", "images", *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@real_daemons.MARKS[0]
@real_daemons.MARKS[1]
def test_every_part_is_measured() -> None:
    # 64 images per batch: the last one is not full.
    done = lab("--python", sys.executable, "--images", "66", "--rounds", "1", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    rates = ("decoder", "live", "stored")
    for name in (*(f"{rate}_images_per_second" for rate in rates), "jpeg_bytes", "start_seconds"):
        assert found[name] > 0, name
    assert found["images"] == 66
    assert found["quarter_rss_bytes"] > 0 < found["end_rss_bytes"]
    assert found["ratio_of_cpu"] is not None
    if importlib.util.find_spec("torch") is None:
        assert found["missing"] == "torch"
        assert found["ratio_to_dataloader"] is None
        assert found["dataloader_images_per_second"] is None
    else:
        assert found["ratio_to_dataloader"] > 0
        assert found["missing"] is None


@real_daemons.MARKS[0]
@real_daemons.MARKS[1]
def test_a_python_without_the_package_is_an_error() -> None:
    done = lab("--python", "/bin/false", "--images", "1")
    assert done.returncode != 0
    assert "--python PROGRAM" in done.stderr


def test_shards_match_webdataset(tmp_path: Path) -> None:
    made = bench.make(tmp_path, 11)
    assert made["distinct"] == 11
    shards = sorted(str(path) for path in tmp_path.iterdir())
    assert len(shards) == 8
    samples = list(webdataset.WebDataset(shards, shardshuffle=False))
    assert [int(sample["cls"]) for sample in samples] == list(range(11))
    assert sum(len(sample["jpg"]) for sample in samples) == made["jpeg_bytes"]
    for sample in samples:
        assert Image.open(io.BytesIO(sample["jpg"])).size == (500, 375)
        assert 35_000 < len(sample["jpg"]) < 75_000
    assert bench.picture(3) == samples[3]["jpg"] != samples[4]["jpg"]


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "PIL" else name)
    assert bench.dataloader(tmp_path, 1, 1, 1) == {"missing": "PIL"}


def test_too_few_images_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["make", "/x", "--images", "0"])
    assert "at least 1 image" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        bench.main(["read", "/x", "--images", "1"])
    assert "read needs --out" in capsys.readouterr().err
