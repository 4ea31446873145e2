"""tools/run-steps and tools/run-tests: every step and program runs, and a failure is a failure."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "run-steps"

# A `make` whose targets are "test-bad", which fails, and others.
MAKE = """#!/bin/sh
echo "$2 was made"
[ "$2" != test-bad ]
"""


def run(folder: Path, *steps: str) -> subprocess.CompletedProcess[str]:
    make = folder / "make"
    make.write_text(MAKE)
    make.chmod(0o755)
    environment = {**os.environ, "MAKE": str(make)}
    command = [str(SCRIPT), "--name", "this", *steps]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_failure_stops_only_what_needs_it(tmp_path: Path) -> None:
    ended = run(tmp_path, "test-bad", "test-good", "test-late:test-good", "test-never:test-bad")
    assert ended.returncode == 1
    summary = ended.stdout.split("== summary\n")[1]
    assert "test-bad         FAILED, " in summary
    assert "test-good        passed, " in summary
    assert "test-late        passed, " in summary
    assert "test-never       not run: test-bad failed" in summary
    assert "make this: 2 of 4 steps failed" in summary
    for name in ("bad", "good", "late"):
        assert f"test-{name} was made" in ended.stdout
    assert "test-never was made" not in ended.stdout


def test_all_steps_pass(tmp_path: Path) -> None:
    ended = run(tmp_path, "test-good", "test-late:test-good")
    assert (ended.returncode, "make this: all passed in" in ended.stdout) == (0, True)


def test_a_step_that_grew_by_half_is_named() -> None:
    script = runpy.run_path(str(SCRIPT))
    seconds = {"long": 91.0, "usual": 89.0, "short": 15.0}
    steps = [script["Step"](name, [], processor=took) for name, took in seconds.items()]
    lines = script["grown"](steps, {"long": 60.0, "usual": 60.0, "short": 6.0})
    assert lines == ["  long took 91 s, usual are 60 s"]
    assert script["unknown"](steps, {"long": 60.0}) == ["usual", "short"]


def test_a_program_that_ends_without_a_result_has_failed(tmp_path: Path) -> None:
    folder = ROOT / "target" / "test-run-tests"
    folder.mkdir(parents=True, exist_ok=True)
    programs = []
    result = "test result: ok. 2 passed; 0 failed; 1 ignored"
    for name, text in {"early": "exit 0", "good": f"echo 'note: few'; echo '{result}'"}.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        programs.append({"name": f"fake {name}", "program": str(path), "folder": str(tmp_path)})
    (folder / "checks.json").write_text(json.dumps({"programs": programs, "warnings": []}))
    command = [str(ROOT / "tools" / "run-tests"), folder.name]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "fake early: FAILED with status 0" in ended.stdout
    assert "fake good: 2 passed, 1 ignored" in ended.stdout
    assert "    note: few" in ended.stdout
    assert ended.stdout.endswith("FAILED: fake early\n")
    only = subprocess.run([*command, "fake good"], capture_output=True, text=True, check=False)
    assert only.returncode == 0, only.stdout
    none = subprocess.run([*command, "nothing"], capture_output=True, text=True, check=False)
    assert (none.returncode, "no test program begins with" in none.stderr) == (2, True)


def test_a_warning_of_the_build_fails_its_step() -> None:
    folder = ROOT / "target" / "test-build-checks"
    folder.mkdir(parents=True, exist_ok=True)
    command = [str(ROOT / "tools" / "build-checks"), folder.name, "--warnings"]
    for warnings in ([], ["warning: unused variable\n"]):
        (folder / "checks.json").write_text(json.dumps({"programs": [], "warnings": warnings}))
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == len(warnings), ended.stdout
        assert "".join(warnings) in ended.stdout
