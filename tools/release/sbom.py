"""All parts of the programs: `tools/release/sbom.py FILE` writes CycloneDX 1.6 as JSON.

The same checkout gives the same bytes: the serial number is derived from the content, and the time
is that of SOURCE_DATE_EPOCH or of the commit.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from shipped_crates import ROOT, Crate, fail, shipped, version


def time() -> str:
    """Return the time of the release."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    if not seconds:
        command = ["git", "log", "-1", "--format=%ct"]
        seconds = subprocess.check_output(command, cwd=ROOT, text=True)
    return datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def component(crate: Crate) -> dict[str, Any]:
    """Return the record of a crate."""
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": f"pkg:cargo/{crate.key}",
        "name": crate.name,
        "version": crate.version,
        "purl": f"pkg:cargo/{crate.key}",
        "licenses": [{"expression": re.sub(r"\s*/\s*", " OR ", crate.licence)}],
    }
    if crate.description:
        found["description"] = crate.description
    if crate.checksum:
        found["hashes"] = [{"alg": "SHA-256", "content": crate.checksum}]
    if crate.repository.startswith("https://"):
        found["externalReferences"] = [{"type": "vcs", "url": crate.repository}]
    if crate.own:
        # They are in no registry.
        del found["purl"]
        found["bom-ref"] = f"batchweave/{crate.key}"
    return found


def python_parts() -> list[dict[str, Any]]:
    """Return what pip installs beside the wheel; the version is chosen at the installation."""
    listed = re.search(r"(?m)^dependencies = \[(.*)\]$", (ROOT / "pyproject.toml").read_text())
    needs = re.findall(r'"([^"]+)"', listed[1]) if listed else fail("pyproject.toml: unreadable")
    names = [re.split(r"[\s<>=!~;\[]", need)[0] for need in needs]
    return [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}",
            "name": name,
            "purl": f"pkg:pypi/{name}",
            "scope": "optional",
            "description": f"Needed by the Python client: {need}",
        }
        for name, need in zip(names, needs, strict=True)
    ]


def bom() -> dict[str, Any]:
    """Return the whole list."""
    crates = shipped()
    refs = {key: component(crate)["bom-ref"] for key, crate in crates.items()}
    python = python_parts()
    product = f"batchweave@{version()}"
    own = [refs[key] for key, crate in crates.items() if crate.own]
    dependencies = [
        {"ref": refs[key], "dependsOn": sorted(refs[need] for need in crate.needs)}
        for key, crate in crates.items()
    ]
    needs = sorted(own) + [part["bom-ref"] for part in python]
    content: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": time(),
            "component": {
                "type": "application",
                "bom-ref": product,
                "name": "batchweave",
                "version": version(),
                "licenses": [{"expression": "Apache-2.0"}],
            },
        },
        "components": [component(crate) for crate in crates.values()] + python,
        "dependencies": [{"ref": product, "dependsOn": needs}, *dependencies],
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return {**content, "serialNumber": f"urn:uuid:{number}"}


def main() -> None:
    """Write the file."""
    if len(sys.argv) != 2:
        sys.exit("usage: tools/release/sbom.py FILE")
    content = bom()
    Path(sys.argv[1]).write_text(json.dumps(content, indent=1) + "\n")
    print(f"{sys.argv[1]}: {len(content['components'])} parts")


if __name__ == "__main__":
    main()
