"""What a stream in a folder and its commands lack (absent_features.toml)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import batchweave
import pytest
from probes import Made, make, refused, run
from site_of_daemons import BINARIES


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("made"))


def test_a_producer_and_a_folder_are_enough(made: Made) -> None:
    status = made.command("status", "--json")
    assert status.code == 0, status
    assert json.loads(status.out)["head"]["steps"] > 20


def test_commands_need_no_daemon(made: Made) -> None:
    for arguments in (("status",), ("log",), ("show", "3", "--slices"), ("verify",)):
        assert made.command(*arguments).code == 0, arguments


def test_the_doctor_changes_no_stream(made: Made) -> None:
    before = made.files()
    assert made.command("doctor").code == 0
    assert made.files() == before


def without(made: Made, pattern: str, folder: Path) -> Made:
    """Copy a stream without its objects of this kind."""
    shutil.copytree(made.site.folder / "stream", folder / "stream")
    gone = [path for path in folder.rglob(pattern) if path.is_file()]
    assert gone
    for path in gone:
        path.unlink()
    return Made(made.site, f"file://{folder}/stream")


def test_a_step_and_its_sources_are_shown_without_its_data(made: Made, tmp_path: Path) -> None:
    bare = without(made, "*.tgb", tmp_path)
    assert bare.command("show", "3", "--slices").code == 76
    assert bare.command("show", "3").code == 0
    shown = bare.command("show", "3", "--sources")
    assert shown.code == 0, shown
    assert "corpus.jsonl" in shown.out


def test_streams_of_a_built_in_vocabulary_store_no_tokenizer(made: Made) -> None:
    assert not (made.site.folder / "stream" / "tokenizers").exists()


def test_the_shape_of_a_stream_stays(made: Made) -> None:
    for old, new in [
        ("seq_len = 128", "seq_len = 256"),
        ("per_slice = 2", "per_slice = 4"),
    ]:
        text = made.site.producer_config().read_text()
        assert old in text
        path = made.site.config("other", text.replace(old, new))
        ran = run("batchweave-producer", "--config", path, "--check")
        refused(ran, "differs from this configuration", old.split()[0].removeprefix("per_"))


def test_a_step_is_the_smallest_unit(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHWEAVE_BIN_DIR", str(BINARIES))
    with batchweave.open(made.url) as stream:
        assert stream[3].step == 3
        for index in ("corpus.jsonl:3", (3, 0), 3.5):
            with pytest.raises(TypeError):
                stream[index]  # type: ignore[call-overload]
    for name in ("document", "get_document", "row", "sample", "sampler"):
        assert not hasattr(batchweave.Stream, name)
        assert not hasattr(batchweave.Reader, name)
