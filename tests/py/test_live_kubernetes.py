"""`make live-kubernetes` without a cluster: what it follows, and where it says it can't run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from site_of_daemons import ROOT

LIVE = ROOT / "tools" / "live"
PROGRAMS = ["batchweave", "batchweave-lab", "batchweave-producer", "batchweave-consumer"]


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=LIVE,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_command_of_the_page_has_a_step() -> None:
    code = r"""
import re, sys
from page import ROOT, Page
from rollouts import APPLY, CHANGES, END, MAIN, SECTIONS
page = Page(ROOT / "deploy/README.md", SECTIONS)
text = (ROOT / "tools/live/rollouts.py").read_text()
names = {"MAIN": MAIN, "CHANGES": CHANGES, "END": END}
for section, having in re.findall(r'page\.block\((\w+), (APPLY|"[^"]+")\)', text):
    page.block(names[section], APPLY if having == "APPLY" else having.strip('"'))
sys.exit("; ".join(page.left()) or 0)
"""
    ran = python(code)
    assert ran.returncode == 0, ran.stderr


def test_another_user_than_root_is_told(tmp_path: Path) -> None:
    """The tool is copied: the checkout may be in a folder that nobody else may enter."""
    tmp_path.chmod(0o755)
    for part in ("tools/live", "deploy"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in PROGRAMS:
        (tmp_path / name).touch()
    temporary = Path(tempfile.gettempdir())
    for folder in tmp_path.parents:
        if folder != temporary and folder.is_relative_to(temporary) and folder.stat().st_uid == 0:
            folder.chmod(0o755)
    other = ["setpriv", "--reuid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    ran = subprocess.run(
        [*other, "/usr/bin/python3", str(tmp_path / "tools/live/kubernetes.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert ran.returncode == 2, ran.stderr
    assert "live-kubernetes cannot run here: a cluster needs root" in ran.stderr


def test_missing_programs_are_told(tmp_path: Path) -> None:
    ran = python(
        f"import sys; from pathlib import Path; from kubernetes import main; "
        f"sys.exit(main(Path({str(tmp_path)!r})))"
    )
    assert ran.returncode == 2
    assert f"{tmp_path}/batchweave is missing: make build" in ran.stderr


def test_all_that_a_machine_lacks_is_named_at_once() -> None:
    code = """
import os, shutil
import cluster
os.geteuid = lambda: 0
shutil.which = lambda name, path=None: None if name in ("ip", "iptables") else "/usr/bin/" + name
print(*cluster.refusals(), sep="\\n")
"""
    ran = python(code)
    assert ran.returncode == 0, ran.stderr
    assert "ip is missing: install iproute2\niptables is missing: install iptables" in ran.stdout


def test_a_registry_that_does_not_answer_is_named(tmp_path: Path) -> None:
    if not shutil.which("go"):
        print("NOT CHECKED: go is not installed")
        return
    code = f"""
from pathlib import Path
from programs import Programs
from machine import CannotRunError
try:
    Programs(Path({str(tmp_path)!r})).requirements()
except CannotRunError as why:
    print(why)
"""
    ran = python(code, GOPROXY="http://127.0.0.1:9", GOFLAGS="-mod=mod")
    assert "go mod fails: " in ran.stdout, ran.stderr
    assert "it needs a Go module proxy (GOPROXY)" in ran.stdout


def test_an_image_is_an_archive_that_containerd_reads(tmp_path: Path) -> None:
    """The format of `docker save`: a manifest, a configuration named by its digest, layers."""
    code = f"""
from pathlib import Path
from image import Image
folder = Path({str(tmp_path)!r})
(folder / "root").mkdir()
(folder / "root" / "file").write_text("content")
Image("example:1", folder / "root", ["/file"]).archive(folder / "image.tar")
"""
    ran = python(code)
    assert ran.returncode == 0, ran.stderr
    read = subprocess.run(
        ["tar", "-xOf", tmp_path / "image.tar", "manifest.json"],
        capture_output=True,
        text=True,
        check=True,
    )
    (manifest,) = json.loads(read.stdout)
    assert manifest["RepoTags"] == ["example:1"]
    listed = subprocess.run(
        ["tar", "-tf", tmp_path / "image.tar"], capture_output=True, text=True, check=True
    )
    assert {manifest["Config"], *manifest["Layers"]} <= set(listed.stdout.split())


def test_the_name_server_answers_with_addresses_and_says_what_is_not_there() -> None:
    code = r"""
import struct, names
def question(name, kind=1):
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    head = struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0)
    return head + labels + b"\0" + struct.pack("!HH", kind, 1)
slices = "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices?labelSelector="
objects = {
    "/api/v1/namespaces/a/services/one": {"spec": {"clusterIP": "10.96.0.7"}},
    "/api/v1/namespaces/a/services/many": {"spec": {"clusterIP": "None"}},
    slices + "kubernetes.io/service-name%3Dmany": {
        "items": [{"endpoints": [
            {"hostname": "many-0", "addresses": ["10.88.1.2"]},
            {"hostname": "many-1", "addresses": ["10.88.2.2"]},
        ]}]
    },
}
names.get = lambda path, token: objects.get(path)
for name in ("one.a", "many.a", "many-1.many.a", "other.a"):
    answer = names.answer(question(name + ".svc.cluster.local"), "")
    found = [answer[-4 - 16 * n:][:4] for n in range(answer[7])]
    print(name, answer[3] & 15, [".".join(map(str, one)) for one in found])
print("IPv6", names.answer(question("one.a.svc.cluster.local", 28), "")[7])
"""
    ran = python(code)
    assert ran.stdout.splitlines() == [
        "one.a 0 ['10.96.0.7']",
        "many.a 0 ['10.88.2.2', '10.88.1.2']",
        "many-1.many.a 0 ['10.88.2.2']",
        "other.a 3 []",
        "IPv6 0",
    ], ran.stderr
