"""`make release` without a build: parts, licences, image, wheel, checksums, and the workflows.

tools/check-deb and tools/check-wheel try the packages themselves.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

from site_of_daemons import ROOT

RELEASE = ROOT / "tools" / "release"


def tool(name: str, *words: str | Path, code: int = 0) -> str:
    """Run a program of tools/release or tools, and return its output."""
    path = RELEASE / name if name.endswith(".py") else ROOT / "tools" / name
    command = [sys.executable, path] if name.endswith(".py") else [path]
    ended = subprocess.run(
        [*command, *words],
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code, f"{name}: {ended.stdout}{ended.stderr}"
    return ended.stdout + ended.stderr


def evaluate(code: str) -> subprocess.CompletedProcess[str]:
    """Run code that imports the modules of tools/release."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=RELEASE, capture_output=True, text=True, check=False)


def test_the_parts_are_complete_and_refer_to_each_other(tmp_path: Path) -> None:
    file = tmp_path / "parts.json"
    tool("sbom.py", file)
    first = file.read_bytes()
    tool("sbom.py", file)
    assert file.read_bytes() == first, "the same checkout gives other bytes"
    bom: dict[str, Any] = json.loads(first)
    assert (bom["bomFormat"], bom["specVersion"], bom["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bom["serialNumber"])
    product = bom["metadata"]["component"]
    assert (product["name"], product["version"]) == ("batchweave", "0.1.0")
    refs = [part["bom-ref"] for part in bom["components"]]
    assert len(refs) == len(set(refs)) > 300
    assert "pkg:pypi/numpy" in refs
    known = {*refs, product["bom-ref"]}
    for entry in bom["dependencies"]:
        assert {entry["ref"], *entry["dependsOn"]} <= known, entry
    crates = [part for part in bom["components"] if part.get("purl", "").startswith("pkg:cargo/")]
    for part in crates:
        assert part["licenses"][0]["expression"], part
        assert re.fullmatch("[0-9a-f]{64}", part["hashes"][0]["content"]), part
    # What only tests need is in no program.
    assert {"tokio", "zstd-sys"} <= {part["name"] for part in crates}
    assert not {"proptest", "libfuzzer-sys"} & {part["name"] for part in crates}


def test_each_crate_has_its_licence_text(tmp_path: Path) -> None:
    file = tmp_path / "licences.txt"
    tool("licences.py", file)
    text = file.read_text()
    for name in ["tokio ", "flatbuffers ", "Rust's standard library", "pcre2-sys "]:
        assert f"\n{name}" in text, name
    assert "University of Cambridge" in text
    assert "GNU GENERAL PUBLIC LICENSE" not in text


def test_a_crate_without_a_text_or_with_another_licence_is_refused(tmp_path: Path) -> None:
    # The workspace's own crates have no files of their own.
    ended = evaluate(f"""
import pathlib
from licences import collect
from shipped_crates import Crate
def crate(name, licence):
    folder = pathlib.Path({str(tmp_path)!r}) / name
    folder.mkdir()
    return Crate(name, "1.0.0", licence, "", "", folder, own=False)
bare, strict = crate("bare", "MIT"), crate("strict", "GPL-3.0")
(strict.folder / "LICENSE").write_text("a text")
collect([bare, strict])
""")
    assert ended.returncode == 1
    assert "bare@1.0.0: no licence text in" in ended.stderr
    assert "strict@1.0.0: licence `GPL-3.0` is not in allowed-licences.txt" in ended.stderr
    assert "tiktoken-rs: is in" in ended.stderr, "a text without its crate is stale"


def test_expressions_of_licences_are_understood() -> None:
    ended = evaluate("""
from licences import allowed
for text in ["MIT", "X OR MIT", "MIT/X", "(MIT OR X) AND ISC", "MIT WITH X OR ISC"]:
    assert allowed(text, {"MIT", "ISC"}), text
for text in ["", "X", "MIT AND X", "MIT WITH X", "MIT ISC", "(MIT", "(MIT OR ISC) AND X"]:
    assert not allowed(text, {"MIT", "ISC"}), text
""")
    assert ended.returncode == 0, ended.stderr


def image(folder: Path, architecture: str, content: str) -> Path:
    """Pack a small image."""
    root = folder / architecture
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "tool").write_text(content)
    (root / "bin" / "tool").chmod(0o755)
    file = folder / f"batchweave-0.1.0-image-{architecture}.tar"
    tool("oci_archive.py", "build", root, architecture, file)
    return file


def blob(tar: tarfile.TarFile, digest: str) -> bytes:
    """Return an object, whose digest must be right."""
    stream = tar.extractfile(f"blobs/sha256/{digest.removeprefix('sha256:')}")
    assert stream
    content = stream.read()
    assert hashlib.sha256(content).hexdigest() == digest.removeprefix("sha256:")
    return content


def manifests(file: Path) -> list[dict[str, Any]]:
    """Return the entries of an archive's index."""
    with tarfile.open(file) as tar:
        stream = tar.extractfile("index.json")
        assert stream
        found: list[dict[str, Any]] = json.loads(stream.read())["manifests"]
        return found


def test_an_image_has_the_settings_of_the_dockerfile(tmp_path: Path) -> None:
    file = image(tmp_path, "amd64", "a")
    (entry,) = manifests(file)
    assert entry["annotations"]["io.containerd.image.name"] == "docker.io/library/batchweave:0.1.0"
    with tarfile.open(file) as tar:
        manifest = json.loads(blob(tar, entry["digest"]))
        config = json.loads(blob(tar, manifest["config"]["digest"]))
        (layer,) = manifest["layers"]
        (tmp_path / "layer").write_bytes(blob(tar, layer["digest"]))
    assert (config["architecture"], config["os"]) == ("amd64", "linux")
    lines = (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
    assert f"USER {config['config']['User']}" in lines
    assert f"ENV {config['config']['Env'][0]}" in lines
    assert f"CMD {json.dumps(config['config']['Cmd'])}" in lines
    with tarfile.open(tmp_path / "layer") as tar:
        member = tar.getmember("bin/tool")
        assert (member.mode, member.uid, member.mtime) == (0o755, 0, 1700000000)


def test_releases_of_two_architectures_are_joined(tmp_path: Path) -> None:
    folders = []
    for architecture in ("amd64", "arm64"):
        dist = tmp_path / f"dist-{architecture}"
        dist.mkdir()
        archive = image(tmp_path, architecture, architecture)
        archive.rename(dist / archive.name)
        (dist / f"batchweave_0.1.0_{architecture}.deb").write_text(architecture)
        (dist / "LICENSE").write_text("the same")
        tool("checksums", dist)
        folders.append(dist)
    joined = tmp_path / "joined"
    tool("join-releases", joined, *folders)
    names = sorted(path.name for path in joined.iterdir())
    packages = ["batchweave_0.1.0_amd64.deb", "batchweave_0.1.0_arm64.deb"]
    image_name = "batchweave-0.1.0-image.tar"
    assert names == sorted(["LICENSE", "SHA256SUMS", image_name, *packages])
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=joined, check=True)
    (entry,) = manifests(joined / image_name)
    with tarfile.open(joined / image_name) as tar:
        platforms = json.loads(blob(tar, entry["digest"]))["manifests"]
        assert [each["platform"]["architecture"] for each in platforms] == ["amd64", "arm64"]
        for each in platforms:
            blob(tar, each["digest"])
    # One of them is from another commit; one is damaged.
    (folders[1] / "LICENSE").write_text("another")
    tool("checksums", folders[1])
    assert "differs from that of another" in tool("join-releases", joined, *folders, code=1)
    (folders[1] / "LICENSE").write_text("the same, damaged")
    assert "LICENSE: FAILED" in tool("join-releases", joined, *folders, code=1)


def test_a_wheel_gets_licences_that_its_metadata_name(tmp_path: Path) -> None:
    wheel, notice = tmp_path / "batchweave-0.1.0-py3-none-any.whl", tmp_path / "NOTICES.txt"
    notice.write_text("notices\n")
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("batchweave/__init__.py", "")
        program = zipfile.ZipInfo("batchweave-0.1.0.data/scripts/tool")
        program.external_attr = 0o755 << 16
        made.writestr(program, "#!/bin/sh\n")
        head = "Metadata-Version: 2.4\nName: batchweave\nLicense-File: LICENSE\n\nThe text.\n"
        made.writestr("batchweave-0.1.0.dist-info/METADATA", head)
        made.writestr("batchweave-0.1.0.dist-info/RECORD", "")
    for _ in range(2):
        tool("wheel_licences.py", wheel, ROOT / "LICENSE", notice)
        with zipfile.ZipFile(wheel) as made:
            content = {name: made.read(name) for name in made.namelist()}
            mode = made.getinfo("batchweave-0.1.0.data/scripts/tool").external_attr >> 16
        assert mode & 0o777 == 0o755
        metadata = content["batchweave-0.1.0.dist-info/METADATA"].decode()
        assert metadata.count("License-File: LICENSE\n") == 1
        assert metadata.endswith("License-File: NOTICES.txt\n\nThe text.\n")
        assert content["batchweave-0.1.0.dist-info/licenses/NOTICES.txt"] == b"notices\n"
        record = content.pop("batchweave-0.1.0.dist-info/RECORD").decode().splitlines()
        assert record.pop() == "batchweave-0.1.0.dist-info/RECORD,,"
        for line, (name, data) in zip(record, content.items(), strict=True):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            assert line == f"{name},sha256={digest},{len(data)}"


def test_workflows_run_commands_of_this_checkout_on_both_architectures() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for name in ("checks", "release"):
        text = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text()
        assert "ubuntu-24.04\n" in text or "[ubuntu-24.04, " in text
        assert "ubuntu-24.04-arm" in text
        targets = re.findall(r"(?m)- run: make (\S+)$", text)
        assert targets, name
        for target in targets:
            assert re.search(rf"(?m)^{target}:", makefile), f"the Makefile lacks {target}"
        for script in re.findall(r"(?m)- run: (tools/\S+)", text):
            assert os.access(ROOT / script, os.X_OK), script
    assert "make test" in (ROOT / ".github/workflows/checks.yml").read_text()
