"""Container images from folders, as archives that `ctr images import` reads."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from dataclasses import dataclass
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass
class Image:
    """What an image is made from."""

    name: str
    folder: Path
    command: list[str]
    path: str = "/usr/local/bin:/usr/bin:/bin"
    user: str = "65532:65532"

    def archive(self, target: Path) -> Path:
        """Writes the archive: one layer, its configuration, and a manifest that names them."""
        layer = target.with_suffix(".layer")
        with tarfile.open(layer, "w") as tar:
            tar.add(self.folder, arcname=".")
        digest = hashlib.sha256()
        with layer.open("rb") as content:
            while part := content.read(1 << 20):
                digest.update(part)
        configuration = {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {
                "User": self.user,
                "Env": [f"PATH={self.path}"],
                "Entrypoint": self.command,
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest.hexdigest()}"]},
        }
        config = json.dumps(configuration).encode()
        name = hashlib.sha256(config).hexdigest() + ".json"
        manifest = [{"Config": name, "RepoTags": [self.name], "Layers": ["layer.tar"]}]
        with tarfile.open(target, "w") as tar:
            for file, data in ((name, config), ("manifest.json", json.dumps(manifest).encode())):
                entry = tarfile.TarInfo(file)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
            tar.add(layer, arcname="layer.tar")
        layer.unlink()
        return target
