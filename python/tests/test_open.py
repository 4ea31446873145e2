"""`batchweave.open` with the real programs: by step, and without a trace when it ends."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import eventually
from real_daemons import (
    BINARIES,
    MARKS,
    PRODUCER,
    ROWS,
    SEQ_LEN,
    SLICES,
    Daemons,
    documents,
    expected,
)
from test_docs import blocks

import batchweave
from batchweave import _documents, _programs, errors
from batchweave.batch import Batch

pytestmark = [*MARKS, pytest.mark.usefixtures("programs")]

MEMORY = "16MiB"
# Steps whose documents are asked for: each provenance object is a program that runs.
COMPARED = 60


@pytest.fixture
def stream(url: str) -> Iterator[batchweave.Stream]:
    with batchweave.open(url, memory=MEMORY) as found:
        yield found


def operate(url: str, *words: str) -> None:
    command = [str(BINARIES / "batchweave"), *words, "--store", url]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def provenance_of_steps(url: str) -> list[str]:
    """Returns the key of the provenance object of each step of one producer, from the log."""
    command = [str(BINARIES / "batchweave"), "log", "--json", "--from", "0", "--store", url]
    log = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    entries = [each for line in log.splitlines() for each in json.loads(line)["entries"]]
    batches = [each["entry"]["tgbs"] for each in entries if each["kind"] == "batch"]
    return [tgb["provenance"] for tgbs in batches for tgb in tgbs]


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def is_reclaimed(stream: batchweave.Stream, step: int) -> bool:
    try:
        return stream[step].step != step
    except errors.StepReclaimedError:
        return True


def rows(batch: Batch) -> np.ndarray[tuple[int, ...], np.dtype[np.uint16]]:
    return batch["tokens"].reshape(SLICES, ROWS, -1)


def test_a_stream_is_read_by_step(url: str, programs: Path) -> None:
    want = expected()
    with batchweave.open(url, memory=MEMORY) as stream:
        assert stream.steps == range(len(want))
        assert len(stream) == len(want)
        assert stream.sealed
        assert (stream.info.slices, stream.info.rows_per_slice) == (SLICES, ROWS)
        for step in (5, 0, len(want) - 1, 6, 7, 3):
            batch = stream[step]
            assert batch.step == step
            assert (rows(batch) == want[step]).all()
        assert stream[-1].step == len(want) - 1
        assert [batch.step for batch in stream[10:20:2]] == [10, 12, 14, 16, 18]
        assert [batch.step for batch in stream[-1:-4:-1]] == [len(want) - k for k in (1, 2, 3)]
        some = stream[10:20:2]
        assert (len(some), some[1].step, some[-1].step) == (5, 12, 18)
        with pytest.raises(IndexError, match=f"step {len(want)} is not in the stream"):
            stream[len(want)]
        # They are copies, so all of them may be kept.
        kept = list(stream)
        assert (np.stack([rows(batch) for batch in kept]) == want).all()
        assert kept[0]["tokens"].flags.writeable
        # One iteration does not disturb another.
        for one, two in zip(stream[:6], stream[3:9], strict=True):
            assert two.step - one.step == 3
        pid, (folder,) = stream._sidecar.pid, programs.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not runs(pid)
    assert list(programs.iterdir()) == []
    stream.close()
    for use in (
        lambda: stream[0],
        stream.refresh,
        lambda: next(iter(stream)),
        lambda: next(stream.follow()),
    ):
        with pytest.raises(errors.ClosedError, match=r"batchweave\.open"):
            use()
    assert (rows(kept[1]) == want[1]).all()
    assert "closed" in repr(stream)


def test_views_are_shared_memory_and_outlive_the_stream(url: str) -> None:
    with batchweave.open(url, memory=MEMORY, copy=False) as stream:
        batch = stream[4]
        assert not batch.slices[0]["tokens"].flags.writeable
    assert (rows(batch) == expected()[4]).all()


def test_a_stream_that_grows_is_followed(daemons: Daemons, tmp_path: Path) -> None:
    text = PRODUCER.format(root=tmp_path)
    two = text.replace('producers = ["p0"]', 'producers = ["p0", "p1"]')
    producer = tmp_path / "producer.toml"
    producer.write_text(two)
    assert daemons("producer").wait(60) == 0
    with batchweave.open(f"file://{tmp_path}/stream", memory=MEMORY) as stream:
        first = len(stream)
        assert not stream.sealed
        # It ends at the newest step, though the stream has no end yet.
        assert len(list(stream)) == first
        with pytest.raises(IndexError):
            stream[first]
        late = stream.follow(first - 1)
        assert next(late).step == first - 1
        producer.write_text(two.replace('name = "p0"', 'name = "p1"'))
        process = daemons("producer")
        assert next(late).step == first
        assert process.wait(60) == 0
        assert stream[first].step == first
        assert [batch.step for batch in late] == list(range(first + 1, 2 * first))
        assert len(stream.refresh()) == 2 * first
        assert stream.sealed


def test_an_empty_stream_is_one(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/empty"
    shape = ["--slices", "1", "--rows-per-slice", "1", "--seq-len", "8"]
    operate(url, "init", *shape, "--tokenizer", "t", "--fingerprint", "0" * 64)
    with batchweave.open(url, memory=MEMORY, timeout=10) as stream:
        assert (len(stream), list(stream), list(stream[:])) == (0, [], [])
        assert stream
        assert "none yet" in stream._repr_html_()
        assert "no steps" in repr(stream)
        with pytest.raises(IndexError, match="no steps yet"):
            stream[-1]
        with pytest.raises(errors.StepTimeoutError, match="producing"):
            next(stream.follow())


def test_reclaimed_and_quarantined_steps_are_named(url: str) -> None:
    end = len(expected())
    operate(url, "reclaim", "--apply", "--to", "8")
    operate(url, "quarantine", "20..22", "--reason", "garbage")
    operate(url, "quarantine", f"{end - 2}..{end - 1}", "--reason", "garbage")
    with batchweave.open(url, memory=MEMORY, timeout=20) as stream:
        assert stream.steps == range(8, end)
        assert "8 older ones are reclaimed" in stream._repr_html_()
        with pytest.raises(errors.StepReclaimedError, match=r"oldest step .* is 8"):
            stream[7]
        for step in (21, end - 1, -1):
            with pytest.raises(errors.StepQuarantinedError, match="quarantined"):
                stream[step]
        without = [k for k in stream.steps if k not in (20, 21, 22, end - 2, end - 1)]
        assert [batch.step for batch in stream] == without
        assert [batch.step for batch in stream[18:26:3]] == [18, 24]
        assert [batch.step for batch in stream[24:17:-1]] == [24, 23, 19, 18]
        operate(url, "reclaim", "--apply", "--to", "12")
        # The stream learns it from the error, and goes on.
        eventually(lambda: is_reclaimed(stream, 8), 60)
        assert stream[12].step == 12
        assert stream.refresh().steps.start == 12


def test_documents_have_names_and_text(stream: batchweave.Stream, tmp_path: Path) -> None:
    batch = stream[1]
    sources = batch.sources()
    assert [source.name for source in sources] == sorted(
        {source.name for source in sources}, key=lambda name: int(name.rpartition(":")[2])
    )
    assert all(source.name.startswith(f"{tmp_path}/corpus.jsonl:") for source in sources)
    assert sum(source.tokens for source in sources) == batch["tokens"].size
    assert {row for source in sources for row in source.rows} == set(range(SLICES * ROWS))
    # The first one goes on from the step before.
    assert sources[0].skip > 0
    assert sources[0].passed == 0
    html = batch._repr_html_()
    number = int(sources[0].name.rpartition(":")[2]) - 1
    # A token is a byte: the text goes on where the last step ended.
    text = documents()[number].encode()[sources[0].skip :][:20].decode(errors="ignore")
    assert text[1:] in html
    assert "corpus.jsonl:" in html
    assert "more rows" in html
    summary = stream._repr_html_()
    assert f"{len(stream):,}, from 0" in summary
    assert "p0 (finished)" in summary
    assert "bytes" in summary


def test_documents_are_asked_for_once_per_provenance_object(
    stream: batchweave.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    ask = _programs.ask

    def counted(url: str, words: list[str], *more: Any) -> dict[str, Any]:
        asked.append(words)
        return ask(url, words, *more)

    monkeypatch.setattr(_programs, "ask", counted)
    batches = list(stream[:COMPARED])
    found = [batch.sources() for batch in reversed(batches)][::-1]
    keys = provenance_of_steps(stream.url)[:COMPARED]
    assert len(keys) == len(batches)
    assert len(asked) == len(set(keys)) < len(batches)
    sizes = []
    for batch, sources in zip(batches, found, strict=True):
        assert batch._decoder is not None
        own = [part for row in batch._decoder.rows() for part in row["documents"]]
        names = list(dict.fromkeys(part["source"] for part in own))
        assert [source.name for source in sources] == names
        assert sum(source.tokens for source in sources) == sum(part["tokens"] for part in own)
        sizes.append(len(own))
    # What is kept has a bound, beside the last answer.
    asked.clear()
    monkeypatch.setattr(_documents, "KEPT_MAX", 10)
    for step in (0, len(batches) - 1, 0):
        assert batches[step].sources() == found[step]
        answer = sum(size for size, key in zip(sizes, keys, strict=True) if key == keys[step])
        kept = sum(map(len, stream._provenance._steps.values()))
        assert kept <= answer + (10 if asked else sum(sizes))


def test_a_batch_has_text_and_the_stream_a_tokenizer(stream: batchweave.Stream) -> None:
    assert stream.tokenizer.name == "bytes"
    assert stream.tokenizer is stream.tokenizer
    batch = stream[1]
    texts = [stream.tokenizer.decode(row) for row in batch["tokens"]]
    assert batch.text() == texts
    # A row begins with the last token of the one before.
    whole = b"".join(text.encode() + b"<|endoftext|>" for text in documents()).decode()
    joined = texts[0] + "".join(text[1:] for text in texts[1:])
    assert joined.strip("\ufffd")[:100] in whole
    stream.close()
    assert batch.text() == texts, "it needs no daemon"


def test_tokens_are_shown_where_there_is_no_text(
    stream: batchweave.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = stream[1]
    monkeypatch.setenv("BATCHWEAVE_BIN_DIR", "/nowhere")
    html = batch._repr_html_()
    assert "not decoded: the program batchweave is not in /nowhere" in html
    assert " ".join(map(str, expected()[1, 0, 0, :9])) in html


def test_the_code_on_the_pages_runs(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(__file__).parents[2]
    pages = [root / "docs" / "python.md", root / "python" / "README.md"]
    found = [block for page in pages for _, block in blocks(page.read_text())]
    opening = [block.replace("file:///tmp/stream", url) for block in found if ".open(" in block]
    assert len(opening) == 2
    for block in opening:
        exec(block, {"batchweave": batchweave})
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"0 {{'tokens': ({SEQ_LEN + 1},)}}"
    assert "corpus.jsonl:" in said[SLICES * ROWS]
    assert said[-1] == f"18 ({SLICES * ROWS}, {SEQ_LEN})"


def test_hostile_documents_stay_text(daemons: Daemons, tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    folder = tmp_path / "<b onclick=alert(1)>"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text(json.dumps({"text": hostile * 99}) + "\n")
    config = PRODUCER.format(root=tmp_path)
    config = config.replace(f"{tmp_path}/corpus", f"{folder}/corpus")
    (tmp_path / "producer.toml").write_text(config)
    assert daemons("producer").wait(60) == 0
    with batchweave.open(f"file://{tmp_path}/stream", memory=MEMORY) as stream:
        html = stream[0]._repr_html_()
        assert stream[0].sources()[0].name == f"{folder}/corpus.jsonl:1"
    assert "&lt;script&gt;alert(1)" in html
    assert "&lt;b onclick=alert(1)&gt;" in html
    assert "<script" not in html
    assert "<img" not in html
    assert "<b onclick" not in html
