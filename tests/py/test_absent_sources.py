"""What the sources lack, as the documents say (absent_features.toml). The weakest probes: for
sentences that no behaviour shows.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from batchweave.inbox import _objects
from site_of_daemons import ROOT

# Python 3.10 has no tomllib; there pytest brings the same.
TOML: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


def test_metrics_have_no_labels_without_a_bound() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    labels = set(re.findall(r"(?m)^- `([a-z_]+)`: ", page.partition("## Producer")[0]))
    source = "".join(path.read_text() for path in (ROOT / "crates").glob("*/src/metrics*.rs"))
    source += "".join(path.read_text() for path in (ROOT / "crates").glob("*/src/metrics/*.rs"))
    assert {"dp_rank", "cause", "stage"} <= labels
    for label in ("step", "key", "id", "object", "attempt", "document", "session"):
        assert label not in labels
        assert f'["{label}"' not in source
        assert f', "{label}"]' not in source


def occurrences(pattern: str, *globs: str) -> list[str]:
    """Return the files in which a pattern occurs."""
    paths = [path for glob in globs for path in ROOT.glob(glob) if path.is_file()]
    assert paths
    return sorted(str(p.relative_to(ROOT)) for p in paths if re.search(pattern, p.read_text()))


def test_dev_s3_does_not_sync() -> None:
    assert occurrences(r"sync_all|sync_data|fsync|\bsyncfs", "crates/dev-s3/src/**/*.rs") == []
    assert occurrences(r"sync_all|sync_data|fsync", "crates/store/src/**/*.rs")


def test_nothing_publishes_on_pypi() -> None:
    ways = r"twine|(maturin|uv) (publish|upload)|pypi-publish|upload\.pypi"
    assert occurrences(ways, "Makefile", ".ci/*", "tools/*", "docs/releasing.md") == []


def test_the_package_needs_only_numpy_on_linux() -> None:
    for path in ("pyproject.toml", "python/pyproject.toml"):
        project = TOML.loads((ROOT / path).read_text())["project"]
        assert [re.split(r"[<>=]", name)[0] for name in project["dependencies"]] == ["numpy"]
        systems = [name for name in project["classifiers"] if "Operating System" in name]
        assert systems == ["Operating System :: POSIX :: Linux"]
    code = "import sys, batchweave, batchweave.torch\nprint(*sys.modules)"
    lean = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python" / "src")},
    )
    assert not {"torch", "pyarrow", "obstore", "ray", "jax"} & set(lean.stdout.split())


def test_memory_is_sealed_by_means_of_linux() -> None:
    assert occurrences(r"memfd_create", "crates/arena/src/**/*.rs")
    others = r"target_os|cfg\(windows\)|cfg\(unix\)|macos"
    assert occurrences(others, "crates/arena/**/*.rs", "crates/arena/Cargo.toml") == []


def test_daemons_of_training_nodes_and_operators_do_not_contain_the_producer() -> None:
    manifests = {path.parent.name: path for path in ROOT.glob("crates/*/Cargo.toml")}
    needs = {
        name: {
            dependency.removeprefix("batchweave-")
            for dependency in TOML.loads(path.read_text()).get("dependencies", {})
            if dependency.startswith("batchweave-")
        }
        for name, path in manifests.items()
    }
    assert "producer" in needs["all"]
    for name in ("consumer", "cli"):
        found, todo = set(), [name]
        while todo:
            found.add(crate := todo.pop())
            todo += needs[crate] - found
        assert "core" in found
        assert "producer" not in found, name


def test_large_reads_speak_http_1_only() -> None:
    reads = "crates/store/src/s3/direct_read/**/*.rs"
    assert occurrences(r"HTTP/1\.1", reads)
    assert occurrences(r"(?i)http/?2|\bh2\b|alpn", reads) == []


def test_the_model_lacks_what_its_page_says() -> None:
    entries = r"Entry::(Quarantine|Retired|Mixture)|lease_seconds: Some|mixture: [1-9]"
    assert occurrences(entries, "tests/model/src/*.rs") == []
    assert occurrences(r"(?i)crc32|index_segment|\bdac\b", "tests/model/src/*.rs") == []
    assert occurrences(r"(?i)watermark", "tests/model/src/*.rs")


def test_writers_of_inboxes_read_no_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("obstore")
    path = tmp_path / "config"
    keys = "aws_access_key_id = AKEY\naws_secret_access_key = SKEY"
    path.write_text(f"[profile mine]\nregion = eu-here-1\n{keys}\n")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(path))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    none = dict.fromkeys(("endpoint", "region", "access_key", "secret_key", "session_token"))
    store = _objects.s3_store("bucket", bytes_max=1 << 20, **none)
    assert store.config["region"] == "us-east-1"
    assert "AKEY" not in repr(store.config)


def test_no_test_writes_to_google() -> None:
    # Here are only locations that are refused.
    refused = ["python/tests/clouds_inbox.py", "python/tests/test_inbox_bad_places.py"]
    assert occurrences(r"gs://|GCSStore", "python/tests/*.py") == refused
    assert "STORAGE_EMULATOR_HOST is set" in (ROOT / refused[0]).read_text()
    assert "is for s3:// only" in (ROOT / refused[1]).read_text()


def test_no_test_has_nccl_or_tpus() -> None:
    tests = (
        "python/tests/*.py",
        "tests/py/test_[!a]*.py",
        "tests/gpu/*.py",
        ".ci/*",
        "Makefile",
    )
    assert occurrences("[\"'](nccl|tpu)[\"']|torch_xla", *tests) == []
    assert occurrences(r"gloo", *tests)
    # Nothing runs the check for a GPU by itself, but its small form on CPUs.
    assert occurrences(r"gpu/run(?! --tiny)", ".ci/*", "Makefile") == []
