"""The crates that the shipped programs contain, with the folders of their sources."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = [
    "batchweave-all",
    "batchweave-cli",
    "batchweave-consumer",
    "batchweave-lab",
    "batchweave-producer",
]
PLATFORMS = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"]


@dataclass
class Crate:
    """A package of the dependency graph."""

    name: str
    version: str
    licence: str
    description: str
    repository: str
    folder: Path
    own: bool
    # SHA-256 of the archive in the registry; empty for the workspace's own crates.
    checksum: str = ""
    needs: set[str] = field(default_factory=set)

    @property
    def key(self) -> str:
        """Return name and version."""
        return f"{self.name}@{self.version}"


def fail(message: str) -> NoReturn:
    """End the program with a message."""
    sys.exit(f"{Path(sys.argv[0]).name}: {message}")


def version() -> str:
    """Return the version of the workspace."""
    # The first such line is that of [workspace.package].
    found = re.search(r'(?m)^version = "(.+)"$', (ROOT / "Cargo.toml").read_text())
    return found[1] if found else fail("Cargo.toml: no version found")


def metadata(platform: str) -> dict[str, Any]:
    """Return what cargo resolves for a platform, without a network."""
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--offline"]
    done = subprocess.run(
        [*command, "--filter-platform", platform],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        fail(
            f"cargo metadata failed for {platform}: {done.stderr.strip().splitlines()[-1]}; "
            "fetch the sources first with `cargo fetch --locked`"
        )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def shipped() -> dict[str, Crate]:
    """Return the crates by key: what the programs need on any platform, without tests' needs."""
    lock = re.findall(
        r'(?m)^name = "(.+)"\nversion = "(.+)"\nsource = ".+"\nchecksum = "(.+)"$',
        (ROOT / "Cargo.lock").read_text(),
    )
    checksums = {f"{name}@{version}": checksum for name, version, checksum in lock}
    crates: dict[str, Crate] = {}
    for platform in PLATFORMS:
        graph = metadata(platform)
        packages = {package["id"]: package for package in graph["packages"]}
        nodes = {node["id"]: node for node in graph["resolve"]["nodes"]}
        waiting = [id for id, package in packages.items() if package["name"] in PROGRAMS]
        seen = set(waiting)
        while waiting:
            id = waiting.pop()
            crate = from_package(packages[id], checksums)
            crate = crates.setdefault(crate.key, crate)
            for need in nodes[id]["deps"]:
                # A kind is null, "dev" or "build".
                if not any(kind["kind"] is None for kind in need["dep_kinds"]):
                    continue
                package = packages[need["pkg"]]
                crate.needs.add(f"{package['name']}@{package['version']}")
                if need["pkg"] not in seen:
                    seen.add(need["pkg"])
                    waiting.append(need["pkg"])
    return dict(sorted(crates.items()))


def from_package(package: dict[str, Any], checksums: dict[str, str]) -> Crate:
    """Return a crate from cargo's record."""
    key = f"{package['name']}@{package['version']}"
    return Crate(
        name=package["name"],
        version=package["version"],
        licence=package["license"] or "",
        description=" ".join((package["description"] or "").split()),
        repository=package["repository"] or "",
        folder=Path(package["manifest_path"]).parent,
        own=package["source"] is None,
        checksum=checksums.get(key, ""),
    )
