"""The container image as an OCI archive, which `docker load`, `podman load` and skopeo read.

`tools/release/oci_archive.py build ROOT ARCHITECTURE FILE` packs a folder of tools/image-root;
variables, user and command are those of deploy/Dockerfile. `tools/release/oci_archive.py join FILE
ARCHIVE ...` makes one image of several architectures from an archive of each. The same files make
the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import sys
import tarfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from shipped_crates import ROOT, fail, version

MEDIA = "application/vnd.oci.image"
LAYOUT = {"imageLayoutVersion": "1.0.0"}


def epoch() -> int:
    """Return the time of all files; without SOURCE_DATE_EPOCH that is 1970."""
    return int(os.environ.get("SOURCE_DATE_EPOCH", "0"))


def settings() -> dict[str, Any]:
    """Return the configuration of the last stage of deploy/Dockerfile."""
    text = (ROOT / "deploy" / "Dockerfile").read_text().split("FROM scratch", 1)[1]
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"(?m)^([A-Z]+) (.*)$", text):
        found.setdefault(name, []).append(value)
    if unknown := set(found) - {"COPY", "ENV", "USER", "CMD"}:
        fail(f"deploy/Dockerfile: the archive cannot express {', '.join(sorted(unknown))}")
    return {"Env": found["ENV"], "User": found["USER"][0], "Cmd": json.loads(found["CMD"][0])}


def layer(root: Path) -> bytes:
    """Return the files of a folder as a tar archive, in order, all owned by root."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            entry = tar.gettarinfo(str(path), arcname=str(path.relative_to(root)))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = epoch()
            # A file with several names is a file each time.
            if entry.isreg() or entry.islnk():
                entry.type, entry.size = tarfile.REGTYPE, path.stat().st_size
                with path.open("rb") as content:
                    tar.addfile(entry, content)
            else:
                tar.addfile(entry)
    return archive.getvalue()


class Layout:
    """An OCI layout in memory: objects by digest."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def add(self, kind: str, content: bytes) -> dict[str, Any]:
        """Keep an object and return the descriptor that refers to it."""
        digest = hashlib.sha256(content).hexdigest()
        self.objects[digest] = content
        return {"mediaType": f"{MEDIA}.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    def add_json(self, kind: str, content: dict[str, Any]) -> dict[str, Any]:
        """Keep a JSON object."""
        return self.add(kind, json.dumps(content, sort_keys=True).encode())

    def write(self, file: Path, manifests: list[dict[str, Any]]) -> None:
        """Write the archive, whose only image has these manifests."""
        files = {f"blobs/sha256/{digest}": content for digest, content in self.objects.items()}
        index = {"schemaVersion": 2, "mediaType": f"{MEDIA}.index.v1+json", "manifests": manifests}
        files["index.json"] = json.dumps(index, sort_keys=True).encode()
        files["oci-layout"] = json.dumps(LAYOUT).encode()
        with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as tar:
            for name in sorted(files):
                entry = tarfile.TarInfo(name)
                entry.size, entry.mtime, entry.mode = len(files[name]), epoch(), 0o644
                tar.addfile(entry, io.BytesIO(files[name]))

    def read(self, file: Path) -> list[dict[str, Any]]:
        """Take all objects of an archive, whose digests must be right; return its manifests."""
        with tarfile.open(file) as tar:
            content = {m.name: tar.extractfile(m) for m in tar.getmembers() if m.isreg()}
            files = {name: stream.read() for name, stream in content.items() if stream}
        for name, data in files.items():
            if name.startswith("blobs/sha256/"):
                digest = hashlib.sha256(data).hexdigest()
                if name != f"blobs/sha256/{digest}":
                    fail(f"{file}: {name} has the digest {digest}: the archive is damaged")
                self.objects[digest] = data
        if "index.json" not in files:
            fail(f"{file}: has no index.json: it is not an OCI archive")
        found: list[dict[str, Any]] = json.loads(files["index.json"])["manifests"]
        return found


def names() -> dict[str, str]:
    """Return the annotations with the name under which an engine loads the image."""
    tag = f"batchweave:{version()}"
    return {
        "io.containerd.image.name": f"docker.io/library/{tag}",
        "org.opencontainers.image.ref.name": version(),
    }


def build(root: Path, architecture: str, file: Path) -> None:
    """Write the archive of one architecture."""
    layout, files = Layout(), layer(root)
    created = datetime.fromtimestamp(epoch(), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    config = {
        "architecture": architecture,
        "os": "linux",
        "created": created,
        "config": settings(),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(files).hexdigest()}"]},
        "history": [{"created": created, "created_by": "tools/image-root"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{MEDIA}.manifest.v1+json",
        "config": layout.add_json("config.v1+json", config),
        "layers": [layout.add("layer.v1.tar+gzip", gzip.compress(files, 6, mtime=0))],
    }
    shown = layout.add_json("manifest.v1+json", manifest)
    shown |= {"platform": {"architecture": architecture, "os": "linux"}}
    layout.write(file, [shown | {"annotations": names()}])
    print(f"{file}: linux/{architecture}, {file.stat().st_size // 1_000_000} MB")


def join(file: Path, archives: list[Path]) -> None:
    """Write an archive with one index over the manifests of all."""
    layout = Layout()
    manifests = [manifest for archive in archives for manifest in layout.read(archive)]
    platforms = [manifest["platform"]["architecture"] for manifest in manifests]
    if len(set(platforms)) != len(platforms):
        fail(f"two archives are for the same architecture: {', '.join(platforms)}")
    for manifest in manifests:
        manifest.pop("annotations", None)
    index = {"schemaVersion": 2, "mediaType": f"{MEDIA}.index.v1+json", "manifests": manifests}
    shown = layout.add_json("index.v1+json", index)
    layout.write(file, [shown | {"annotations": names()}])
    print(f"{file}: {', '.join(f'linux/{platform}' for platform in platforms)}")


def main(words: list[str]) -> None:
    """Run the command."""
    match words:
        case ["build", root, ("amd64" | "arm64") as architecture, file]:
            build(Path(root), architecture, Path(file))
        case ["join", file, *archives] if archives:
            join(Path(file), [Path(archive) for archive in archives])
        case _:
            sys.exit("usage: oci_archive.py build ROOT amd64|arm64 FILE; or: join FILE ARCHIVE ...")


if __name__ == "__main__":
    main(sys.argv[1:])
