"""The wheel with the programs: of the profile that the other tests use, installed where there is no
Rust, and used as its user does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from site_of_daemons import BINARIES, ROOT

# Commands of the system that the programs and their launchers start.
NEEDED = ["sh", "dirname", "readlink"]
# Programs that are not optimized are larger.
SIZE_MAX = 40_000_000 if BINARIES.name == "release" else 60_000_000
DEMO_SECONDS_MAX = 300


class Installed:
    """A fresh environment with the wheel, and a PATH without any other folder of programs."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        self.wheel = wheel
        self.bin = folder / "venv" / "bin"
        tools = folder / "tools"
        tools.mkdir()
        for name in NEEDED:
            found = shutil.which(name)
            assert found, name
            (tools / name).symlink_to(found)
        self.environment = {"PATH": f"{self.bin}:{tools}", "HOME": str(folder), "NO_COLOR": "1"}
        for name in ("cargo", "rustc", "cc"):
            assert shutil.which(name, path=self.environment["PATH"]) is None, name
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        pip = [str(self.bin / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        # The settings of the machine's package index stay.
        subprocess.run([*pip, str(wheel)], check=True, env={**os.environ, "PATH": f"{self.bin}"})

    def run(self, *command: str, seconds: float = 60) -> str:
        """Run a command of the environment and return its output."""
        ended = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        assert ended.returncode == 0, f"{command}: {ended.stdout}\n{ended.stderr}"
        return ended.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    command = [str(ROOT / "tools" / "wheel"), sys.executable, str(folder), BINARIES.name]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    return Installed(folder, wheel)


def test_the_wheel_is_small_and_says_what_it_runs_on(installed: Installed) -> None:
    name = installed.wheel.name
    assert name.startswith("batchweave-0.1.0-py3-none-manylinux_"), name
    size = installed.wheel.stat().st_size
    print(f"{name}: {size / 1e6:.1f} MB")
    assert size < SIZE_MAX


def test_every_program_is_a_command(installed: Installed) -> None:
    shown = installed.run("pip", "show", "--files", "batchweave")
    for line in ["Name: batchweave", "Version: 0.1.0", "Requires: numpy", "batchweave/py.typed"]:
        assert line in shown, shown
    for program in ["batchweave", "batchweave-producer", "batchweave-consumer", "batchweave-lab"]:
        assert f"bin/{program}\n" in shown, shown
        assert installed.run(program, "--version") == f"{program} 0.1.0\n"
        assert f"Usage: {program}" in installed.run(program, "--help")
    assert "Usage: batchweave demo" in installed.run("batchweave", "demo", "--help")
    assert installed.run("batchweave-all", "--version") == "batchweave 0.1.0\n"
    client = "import batchweave; print(batchweave.__version__)"
    assert installed.run("python", "-c", client) == "0.1.0\n"


def test_the_demo_runs_from_the_wheel(installed: Installed) -> None:
    # The ranks of the second run use the wheel's client. Whole runs are tests of the demo's own.
    for more in [["--steps", "80"], ["--ranks-in", "python", "--steps", "80"]]:
        began = time.monotonic()
        output = installed.run("batchweave", "demo", "--json", *more, seconds=DEMO_SECONDS_MAX)
        print(f"batchweave demo {' '.join(more)}: {time.monotonic() - began:.0f} s")
        summary = json.loads(output.splitlines()[-1])
        assert summary["mismatches"] == 0, summary
        assert summary["verify_job"] == "proved", summary


def test_conversations_are_rendered_by_the_same_file(installed: Installed) -> None:
    """The producer starts itself again to render templates, under its name."""
    messages = [{"role": "user", "content": "hello " * 40}]
    (installed.folder / "chat.jsonl").write_text(json.dumps({"messages": messages}) + "\n")
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"
    (installed.folder / "template.jinja").write_text(template)
    (installed.folder / "chat.toml").write_text(f"""
store.url = "file://{installed.folder}/chat"
stream = {{ slices = 1, rows_per_slice = 1, seq_len = 64, producers = ["chat"] }}
producer.name = "chat"
source.paths = ["chat.jsonl"]
packing = {{ mode = "chat", last_batch = "pad" }}
chat.template = "template.jinja"
""")
    installed.run("batchweave-producer", "--config", "chat.toml")
    status = ["batchweave", "--store", f"file://{installed.folder}/chat", "status", "--json"]
    assert json.loads(installed.run(*status))["head"]["steps"] == 1


def test_a_stream_opens_with_the_programs_beside_the_interpreter(installed: Installed) -> None:
    (installed.folder / "text.jsonl").write_text(json.dumps({"text": "hello " * 90}) + "\n")
    (installed.folder / "text.toml").write_text(f"""
store.url = "file://{installed.folder}/text"
stream = {{ slices = 1, rows_per_slice = 1, seq_len = 64, producers = ["text"] }}
producer.name = "text"
source.paths = ["text.jsonl"]
tokenizer.kind = "bytes"
""")
    installed.run("batchweave-producer", "--config", "text.toml")
    url = f"file://{installed.folder}/text"
    look = f"""
import os, batchweave
os.environ["PATH"] = {str(installed.folder / "tools")!r}
with batchweave.open({url!r}, memory="64MiB") as stream:
    print(len(stream), stream[-1].sources()[0].name, "hello" in stream[0]._repr_html_())
"""
    assert installed.run("python", "-c", look) == "8 text.jsonl:1 True\n"
