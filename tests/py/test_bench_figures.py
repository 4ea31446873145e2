"""`make bench` compares each figure with the committed one, and says which is worse by a tenth."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "bench"


def program(folder: Path, reports: dict[str, Any]) -> Path:
    """A program that prints the report of each verb."""
    path = folder / "batchweave"
    path.write_text(
        f"#!{sys.executable}\nimport json, sys\nprint(json.dumps({reports!r}[sys.argv[2]]))\n"
    )
    path.chmod(0o755)
    return path


def run(program: Path, figures: Path, *args: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(SCRIPT), str(program), "--figures", str(figures), *args]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_a_figure_that_is_a_tenth_worse_is_said(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    only = ("--only", "produce", "--only", "commit-growth")

    def reports(speed: float, requests: float) -> Path:
        growth = {"requests_ratio": requests, "bytes_ratio": 1.0}
        produce = {"ratio_to_tokenizer": speed, "ratio_with_server": 1.0}
        return program(tmp_path, {"produce": produce, "commit-growth": growth})

    assert run(reports(1.0, 1.0), figures, *only, "--record").returncode == 0
    stored = json.loads(figures.read_text())
    assert stored["cores"] == os.cpu_count()
    assert stored["figures"] == {
        "produce ratio_to_tokenizer": 1.0,
        "produce ratio_with_server": 1.0,
        "commit-growth requests_ratio": 1.0,
        "commit-growth bytes_ratio": 1.0,
    }
    same = run(reports(0.91, 1.1), figures, *only)
    assert (same.returncode, "worse by more than" in same.stdout) == (0, False), same.stdout
    slower = run(reports(0.89, 1.0), figures, *only)
    assert slower.returncode == 1
    assert slower.stdout.endswith("worse by more than a tenth: produce ratio_to_tokenizer\n")
    dearer = run(reports(1.0, 1.2), figures, *only)
    assert dearer.stdout.endswith("worse by more than a tenth: commit-growth requests_ratio\n")
    assert dearer.returncode == 1
    faster = run(reports(3.0, 0.5), figures, *only)
    assert faster.returncode == 0


def test_another_build_is_measured_in_turns(tmp_path: Path) -> None:
    """The median of three runs counts, and the order changes in the second."""
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        path = program(tmp_path / name, {})
        values = {"ours": [0.5, 0.1, 0.7], "theirs": [0.9, 0.6, 0.2]}[name]
        path.write_text(
            f"#!{sys.executable}\nimport json, pathlib\n"
            f"log = pathlib.Path({str(tmp_path / 'log')!r}).open('a+')\n"
            f"log.seek(0)\nown = log.read().split().count({name!r})\n"
            f"log.write({name + ' '!r})\nvalue = {values}[own]\n"
            "print(json.dumps({'ratio_to_tokenizer': value, 'ratio_with_server': 1.0}))\n"
        )
    ours, theirs = (tmp_path / name / "batchweave" for name in ("ours", "theirs"))
    figures = tmp_path / "figures.json"
    found = run(ours, figures, "--only", "produce", "--beside", str(theirs))
    assert (tmp_path / "log").read_text() == "ours theirs theirs ours ours theirs "
    lines = [line.split() for line in found.stdout.splitlines()]
    assert lines[1] == ["produce", "ratio_to_tokenizer", "0.6", "0.5", "0.83"]
    assert found.returncode == 1
    refused = run(ours, figures, "--record", "--beside", str(theirs))
    assert refused.returncode == 2
    assert "without --beside" in refused.stderr


def test_a_benchmark_that_fails_ends_the_run(tmp_path: Path) -> None:
    broken = program(tmp_path, {})
    ended = run(broken, tmp_path / "figures.json", "--only", "produce")
    assert ended.returncode == 1
    assert "bench produce --mib 128 --rounds 5 --json failed with exit code 1" in ended.stderr
    unknown = run(broken, tmp_path / "figures.json", "--only", "nothing")
    assert unknown.returncode == 2
    assert "--only nothing: one of pack, produce" in unknown.stderr


def test_each_figure_is_committed() -> None:
    bench = SimpleNamespace(**runpy.run_path(str(SCRIPT)))
    names = {f"{each.words[0]} {figure.name}" for each in bench.BENCHES for figure in each.figures}
    committed = json.loads(bench.FIGURES.read_text())["figures"]
    assert set(committed) == names
    assert all(value > 0 for value in committed.values())
