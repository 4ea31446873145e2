"""Helpers of the tests of absent features."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from site_of_daemons import BINARIES, Site


class Ran(NamedTuple):
    """What a program printed and returned."""

    code: int
    out: str
    err: str


def run(program: str, *arguments: str | Path, env: dict[str, str] | None = None) -> Ran:
    """Run a program to its end."""
    ended = subprocess.run(
        [str(BINARIES / program), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=env,
    )
    return Ran(ended.returncode, ended.stdout, ended.stderr)


def refused(ran: Ran, *parts: str) -> None:
    """Assert that a configuration was refused with these words."""
    assert ran.code == 64, ran
    for part in parts:
        assert part in ran.err, ran


class Made(NamedTuple):
    """A stream in a folder, made by a producer that has ended."""

    site: Site
    url: str

    def command(self, *arguments: str | Path) -> Ran:
        """Run a command of the stream."""
        return run("batchweave", *arguments, "--store", self.url)

    def files(self) -> dict[str, tuple[int, int]]:
        """Return the files of the stream, with size and time of change."""
        found = (path for path in (self.site.folder / "stream").rglob("*") if path.is_file())
        return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


def make(folder: Path) -> Made:
    """Make a stream with one program and one folder."""
    site = Site(folder)
    text = "".join(json.dumps({"text": f"word{n} " * 80}) + "\n" for n in range(60))
    (site.folder / "corpus.jsonl").write_text(text)
    config = site.producer_config().read_text().replace("epochs = 0", "epochs = 1")
    path = site.config("once", config.replace("ahead.max_steps = 200", ""))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    ended = run("batchweave-producer", "--config", path, env=clean)
    assert ended.code == 0, ended
    return Made(site, site.url)


def outside(page: str) -> list[str]:
    """Return the places from which a page in HTML loads something, but for its own daemon's."""
    found = re.findall(r"""(?:src|href)=["']?([^"' >]*)|url\(([^)]*)|(@import|<iframe)""", page)
    places = ["".join(place) for place in found]
    own = ("data:", "metrics", "status.json", "readyz", "stream.json", "#")
    return [place for place in places if not place.startswith(own)]
