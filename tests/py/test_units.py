"""The systemd units: what each needs, how each ends, and that deploy/README.md is followed by
`make live-systemd`, which boots them.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from site_of_daemons import BINARIES, ROOT

UNITS = ROOT / "deploy" / "systemd"
SERVICES = sorted(UNITS.glob("*.service"))
DAEMONS = [unit for unit in SERVICES if "Restart=" in unit.read_text()]


def settings(unit: Path, name: str) -> list[str]:
    """Return the values of a setting, in their order."""
    return re.findall(rf"(?m)^{name}=(.*)$", unit.read_text())


def exec_lines(unit: Path) -> list[tuple[str, list[str]]]:
    """Return the settings and command lines of everything that a unit runs."""
    found = re.findall(r"(?m)^(Exec\w+)=(.*)$", unit.read_text())
    return [(name, shlex.split(line)) for name, line in found]


def test_the_search_finds_units() -> None:
    names = {unit.name for unit in SERVICES}
    assert "batchweave-consumer.service" in names
    assert len(DAEMONS) == 4


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_a_wrong_configuration_ends_each_exec_line_with_64_and_64_is_final(
    unit: Path, tmp_path: Path
) -> None:
    """RestartPreventExitStatus holds for ExecStart alone: an ExecStartPre is run again for ever."""
    lines = exec_lines(unit)
    started = [words for name, words in lines if name == "ExecStart"]
    others = {name for name, _ in lines} - {"ExecStart", "ExecReload"}
    assert len(started) == 1
    assert not others, f"a failure of {others} is restarted for ever"
    program, *words = started[0]
    assert program.startswith("/usr/local/bin/")
    # As in a machine without the configuration, and without a store.
    words = [word.replace("/etc/batchweave", str(tmp_path)) for word in words if word[0] != "$"]
    variables = {key: value for key, value in os.environ.items() if key != "BATCHWEAVE_STORE"}
    ended = subprocess.run(
        [BINARIES / Path(program).name, *words],
        capture_output=True,
        text=True,
        check=False,
        env=variables,
        timeout=60,
    )
    assert ended.returncode == 64, ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr
    if unit in DAEMONS:
        assert "64" in settings(unit, "RestartPreventExitStatus")[0].split()
        assert settings(unit, "StartLimitIntervalSec") == ["0"], "other faults are restarted"


@pytest.mark.parametrize(("name", "daemon"), [("consumer", "consumer"), ("producer", "producer@")])
def test_units_stay_down_for_the_codes_of_the_page(name: str, daemon: str) -> None:
    rows = re.findall(
        r"(?m)^\| (\d+) \|[^|]+\| ([^|]+) \|$", (ROOT / "deploy/README.md").read_text()
    )
    assert len(rows) > 8
    both = {code for code, action in rows if action.startswith("stay down")}
    own = {code for code, action in rows if f"{name} stays down" in action and code != "0"}
    unit = UNITS / f"batchweave-{daemon}.service"
    stated = set(settings(unit, "RestartPreventExitStatus")[0].split())
    # A consumer is never fenced.
    assert stated == (both | own) - ({"75"} if name == "consumer" else set())


def test_each_file_of_a_unit_has_a_line_on_its_owner() -> None:
    """Configurations: for the group of the daemons. Environments and keys: systemd reads them."""
    lines = (UNITS / "batchweave.tmpfiles").read_text().splitlines()
    rules = [line.split() for line in lines if line[0] in "dz"]
    assert ["d", "/etc/batchweave", "2750", "root", "batchweave", "-"] in rules

    def rule(path: str) -> list[str]:
        found = [
            words[2:5] for words in rules if words[0] == "z" and fnmatch.fnmatch(path, words[1])
        ]
        assert len(found) == 1, f"{path}: {found}"
        return found[0]

    for unit in SERVICES:
        assert settings(unit, "User") == ["batchweave"]
        for _, words in exec_lines(unit):
            for path in (word for word in words if word.startswith("/etc/")):
                assert rule(path.replace("%i", "a")) == ["0640", "root", "batchweave"]
        for path in settings(unit, "EnvironmentFile"):
            assert rule(path.removeprefix("-").replace("%i", "a")) == ["0600", "root", "root"]
        keys = settings(unit, "LoadCredential")
        assert rule(f"/etc/credstore/{keys[0]}") == ["0600", "root", "root"]
        # The AWS library warns of a missing file three times.
        assert settings(unit, "SetCredential") == [f"{keys[0]}:#"]


def test_an_instance_differs_from_the_plain_unit_in_its_places_only() -> None:
    plain = (UNITS / "batchweave-consumer.service").read_text().splitlines()
    instance = (UNITS / "batchweave-consumer@.service").read_text().splitlines()

    def stated(lines: list[str]) -> list[str]:
        return [line for line in lines if line and line[0] != "#"]

    def told_apart(line: str) -> bool:
        return line.startswith(("Description=", "ExecStart=", "RuntimeDirectory"))

    assert len(stated(plain)) == len(stated(instance))
    for one, other in zip(stated(plain), stated(instance), strict=True):
        assert one == other or (told_apart(one) and told_apart(other)), f"{one} is not {other}"
    # Below /run/batchweave it would vanish when the plain unit stops.
    assert settings(UNITS / "batchweave-consumer@.service", "RuntimeDirectory") == ["batchweave-%i"]


def test_every_command_of_the_page_has_a_step_in_the_booted_machine() -> None:
    """Run without a machine: the blocks that the steps name are on the page, and are all."""
    code = """
import re, sys
from page import ROOT, Page
from story import MAIN, SECTIONS
page = Page(ROOT / "deploy/README.md", SECTIONS)
text = (ROOT / "tools/live/story.py").read_text()
for section, having in re.findall(r'page\\.block\\(\\s*(MAIN|"[^"]+"), "([^"]+)"', text):
    page.block(MAIN if section == "MAIN" else section.strip('"'), having)
sys.exit("; ".join(page.left()) or 0)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT / "tools" / "live",
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
