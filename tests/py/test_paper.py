"""tools/paper: its arguments, pictures and page, what it says of missing systems, and experiments
in a tiny setting, one of which must fail aloud over a lost sample.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from site_of_daemons import BINARIES, ROOT

RUN = ROOT / "tools" / "paper" / "run"


def module(name: str) -> Any:
    """Return a module of the harness."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module(f"paper.{name}")
    finally:
        sys.path.remove(str(ROOT / "tools"))


def run(out: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [str(RUN), "--scale", "tiny", "--bin-dir", str(BINARIES), "--out", str(out), *words]
    all_env = {**os.environ, "PYTHON": sys.executable, **env}
    return subprocess.run(
        command, env=all_env, capture_output=True, text=True, check=False, timeout=1_800
    )


def test_help_and_wrong_arguments(tmp_path: Path) -> None:
    shown = subprocess.run([str(RUN), "--help"], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert max(map(len, shown.stdout.splitlines())) <= 100
    ended = run(tmp_path, "--bin-dir", "/none")
    assert ended.returncode == 1
    assert "no programs in /none: build them" in ended.stderr
    ended = run(tmp_path, "--only", "e11")
    assert ended.returncode == 2
    assert "invalid choice: 'e11'" in ended.stderr


def test_each_experiment_has_a_claim() -> None:
    main = module("__main__")
    names = [*main.NAMES, *main.OTHERS]
    found = [main.load(name) for name in names]
    assert names == [*(f"e{n}" for n in range(1, 11)), "freshness", "handover"]
    assert [each.name for each in found] == names
    assert all(each.title and each.claim for each in found)


def test_restarts_are_counted() -> None:
    """Counts of lost, doubled and repeated samples, by hand."""
    audit, programs = module("audit"), module("programs")

    def step(number: int, *ids: int) -> dict[str, Any]:
        return {"step": number, "ids": list(ids)}

    good = [step(0, 0, 1), step(1, 2, 3), step(1, 2, 3), step(2, 4, 5)]
    assert audit.exactly_once("ours", good, 1) == (0, 0, 1)
    assert audit.count([step(0, 0, 1), step(1, 0, 1)], 1) == (0, 2, 0)
    assert audit.count([step(0, 0, 1), step(1, 3, 4)], 1) == (1, 0, 0)
    assert audit.count([step(0, 0, 2), step(1, 1, 5)], 2) == (1, 0, 0), "3 of the odd producer"
    with pytest.raises(programs.WrongError, match="has lost 1 and doubled 0 samples"):
        audit.exactly_once("ours", [step(0, 0), step(1, 2)], 1)


def test_systems_take_turns() -> None:
    order: list[str] = []
    values = {"ours": [3.0, 1.0, 2.0], "theirs": [5.0, 4.0, 9.0]}

    def side(name: str) -> Any:
        def measure() -> dict[str, Any]:
            order.append(name)
            return {"p50": values[name].pop(0), "text": "x"}

        return measure

    found = module("experiment").in_turns(3, {name: side(name) for name in values})
    assert order == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert (found["ours"]["p50"], found["theirs"]["p50"]) == (2.0, 5.0)
    assert found["ours"]["rounds"] == [{"p50": 3.0}, {"p50": 1.0}, {"p50": 2.0}]
    assert len(found["ours"]["load"]) == 3


@pytest.mark.parametrize("kind", ["line", "bar"])
def test_pictures_are_whole(kind: str) -> None:
    experiment, svg = module("experiment"), module("svg")
    series = [("a < b", [(0.0, 1.0), (1.0, 1000.0)]), ("one", [(0.0, 0.0)])]
    names = ("x", "y")
    for log in (False, True):
        marks = () if kind == "bar" else ((0.5, "kill"),)
        chart = experiment.Chart("t", "x", "y", series, kind, names, marks, False, log)
        root = ElementTree.fromstring(svg.draw([chart] * 3))
        assert "nan" not in ElementTree.tostring(root).decode()
    assert ElementTree.fromstring(svg.draw([])) is not None


def checked(out: Path, name: str) -> dict[str, Any]:
    """Return a result, whose shape is the same for each experiment."""
    found: dict[str, Any] = json.loads((out / f"{name}.json").read_text())
    assert found["experiment"] == name
    assert found["scale"] == "tiny"
    assert found["machine"]["cpus"] >= 1
    assert len(found["machine"]["load"]) == 2
    assert "numpy" in found["versions"]
    for goal in found["goals"]:
        assert set(goal) == {"text", "value", "bound", "met"}
    for missing in found["missing"]:
        assert missing["system"]
        assert missing["remedy"]
    return found


def test_whole_runs_beside_a_loader(tmp_path: Path) -> None:
    ended = run(tmp_path, "--only", "e4", "--only", "e9")
    found = checked(tmp_path, "e4")
    assert found["failed"] is None, found["failed"]
    assert ended.returncode == 0, ended.stderr
    rows = [row for row in found["rows"] if row["system"].startswith("BatchWeave")]
    assert {row["workload"] for row in rows} >= {"robot", "numbers, 4 ranks"}
    for row in rows:
        assert row["samples_per_s"] > 0
        assert 0 <= row["waiting_percent"] <= 100
        assert row["step_p50_ms"] <= row["step_p99_ms"]
    page = (tmp_path / "index.md").read_text()
    named = [each["system"] for each in found["missing"]]
    assert "Megatron Energon" in named
    if importlib.util.find_spec("torch") is None:
        assert "torch DataLoader" in named
    for name in named:
        assert f"**{name}**" in page
        assert name in ended.stderr
    elastic = checked(tmp_path, "e9")
    assert elastic["failed"] is None, elastic["failed"]
    assert [row["ranks"] for row in elastic["rows"]] == [16, 8, 4, 8]
    for name in ("e4", "e9"):
        assert f"]({name}.svg)" in page
        ElementTree.fromstring((tmp_path / f"{name}.svg").read_text())


def test_a_lost_sample_fails_aloud(tmp_path: Path) -> None:
    """The trainer's record leaves out step 7."""
    ended = run(tmp_path, "--only", "e9", PAPER_LOSE_STEP="7")
    assert ended.returncode == 1
    found = checked(tmp_path, "e9")
    assert "has lost 16 and doubled 0 samples" in found["failed"]
    assert "FAILED" in ended.stderr
    assert "failed experiments: E9" in (tmp_path / "index.md").read_text()


def test_kills_lose_nothing_and_kafka_is_named(tmp_path: Path) -> None:
    ended = run(tmp_path, "--only", "e10", "--java", "/none")
    found = checked(tmp_path, "e10")
    assert found["failed"] is None, ended.stderr
    mine = next(row for row in found["rows"] if row["system"] == "BatchWeave")
    assert (mine["samples_lost"], mine["samples_doubled"]) == (0, 0)
    assert mine["kills"] == 3
    assert any("Kafka" in each["system"] for each in found["missing"])


def test_a_folder_without_kafka_is_named(tmp_path: Path) -> None:
    broker, programs = module("broker"), module("programs")
    with pytest.raises(programs.FailedError, match=r"neither it nor its libs has a kafka_\*.jar"):
        broker.jars(tmp_path, tmp_path)
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka_2.13-4.1.1.jar").touch()
    assert broker.jars(tmp_path, tmp_path) == tmp_path / "libs"


def test_the_hand_over_and_the_time_from_commits_are_measured(tmp_path: Path) -> None:
    ended = run(tmp_path, "--only", "handover", "--only", "freshness")
    assert ended.returncode == 0, ended.stderr
    found = {row["system"]: row for row in checked(tmp_path, "handover")["rows"]}
    assert set(found) == {"BatchWeave", "BatchWeave, reporting", "multiprocessing.Queue"}
    for row in found.values():
        assert 0 < row["queued_p50_us"] <= row["queued_p99_us"]
    assert found["BatchWeave"]["blocking_p50_us"] > 0
    reporting = found["BatchWeave, reporting"]
    for figure in ("release_message_us", "report_us", "report_loss_us", "report_sources_us"):
        assert reporting[figure] > 0
    fresh = checked(tmp_path, "freshness")
    stores = {row["store"]: row for row in fresh["rows"]}
    assert len(stores) == 3
    for row in stores.values():
        assert row["p50_ms"] <= row["p99_ms"]
        # On a machine with other work a commit may be noticed after its batch has come.
        assert row["p50_ms"] > 0 or row["noticed_late"] > 0
        assert not row["noticed_late"] or any("noticed after" in note for note in fresh["notes"])


def record(steps: int) -> bytes:
    return json.dumps({"entries": [{"tgbs": [{}] * steps}, {"kind": "other"}]}).encode()


def stored(key: str, data: bytes) -> bytes:
    header = json.dumps({"key": key, "headers": {}}).encode()
    return b"BWDEVS3\x01" + len(header).to_bytes(4, "little") + header + data


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_commits_are_noted_when_they_appear(tmp_path: Path, kind: str) -> None:
    """One is there before; other objects of a bucket are not commits of the stream."""
    files = [("00.json", record(1)), ("01.json", record(0)), ("02.json", record(2))]
    if kind == "bucket":
        files = [
            ("00.obj", stored("stream/log/00.json", record(1))),
            ("01.obj", stored("stream/data/00.tgb", b"no JSON")),
            ("02.obj", stored("other/log/00.json", record(7))),
            ("03.obj", stored("stream/log/01.json", record(2))),
        ]
    freshness, programs = module("freshness"), module("programs")

    def appear(name: str, data: bytes) -> None:
        (tmp_path / ".draft").write_bytes(data)
        (tmp_path / ".draft").rename(tmp_path / name)

    appear(*files[0])
    with freshness.noted(tmp_path, "" if kind == "folder" else "stream/log/") as commits:
        programs.until(lambda: len(commits) == 1, 60, "the first")
        before = time.time()
        for file in files[1:]:
            appear(*file)
        programs.until(lambda: len(commits) == 3, 60, "the rest")
        assert commits[0] <= before <= commits[1] == commits[2] <= time.time()
