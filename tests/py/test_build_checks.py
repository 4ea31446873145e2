"""tools/build-checks: clippy's warnings in libraries, programs and tests are found by one build."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORKSPACE = """[workspace]
resolver = "3"
members = ["one"]
[profile.checks]
inherits = "release"
opt-level = 0
"""
CRATE = """[package]
name = "one"
version = "0.1.0"
edition = "2024"
[lints.clippy]
len_zero = "warn"
[[bin]]
name = "one"
test = false
"""
# Each name says where the length is compared with zero, which clippy alone warns of.
SOURCES = {
    "src/lib.rs": """pub fn library(a: &str) -> bool { a.len() == 0 }
#[cfg(test)]
mod tests { #[test] fn t() { let in_unit = ""; assert!(in_unit.len() == 0); } }
""",
    "src/main.rs": 'fn main() { let in_program = ""; assert!(in_program.len() == 0); }',
    "tests/it.rs": '#[test] fn t() { let in_tests = ""; assert!(in_tests.len() == 0); }',
}


def build(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    left_out = ("RUSTC_WORKSPACE_WRAPPER", "CARGO_TARGET_DIR")
    environment = {name: text for name, text in os.environ.items() if name not in left_out}
    command = [str(folder / "tools" / "build-checks"), "checks", *more]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_warnings_are_found_everywhere_and_end_no_build(tmp_path: Path) -> None:
    for name, text in {"Cargo.toml": WORKSPACE, "one/Cargo.toml": CRATE}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for name, text in SOURCES.items():
        (tmp_path / "one" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "one" / name).write_text(text)
    (tmp_path / "tools").mkdir()
    for tool in ("build-checks", "lint-rustc"):
        shutil.copy(ROOT / "tools" / tool, tmp_path / "tools")
    shutil.copy(ROOT / "rust-toolchain.toml", tmp_path)
    made = subprocess.run(["cargo", "generate-lockfile", "--offline"], cwd=tmp_path, check=False)
    assert made.returncode == 0
    # The second build compiles nothing and finds the same.
    for _ in range(2):
        built = build(tmp_path)
        assert built.returncode == 0, built.stderr
        assert "2 test programs, 4 warnings" in built.stdout
        shown = build(tmp_path, "--warnings")
        assert shown.returncode == 1
        for word in ("a.len() == 0", "in_unit", "in_program", "in_tests"):
            assert word in shown.stdout, shown.stdout
    found = json.loads((tmp_path / "target" / "checks" / "checks.json").read_text())
    assert {one["name"] for one in found["programs"]} == {"one lib", "one it"}
    (tmp_path / "one" / "src" / "lib.rs").write_text("pub fn library() -> u8 { true }")
    broken = build(tmp_path)
    assert (broken.returncode != 0, "mismatched types" in broken.stdout) == (True, True)
    assert build(tmp_path, "--warnings").returncode != 0
