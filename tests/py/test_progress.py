"""What a producer shows while it works: a line on a terminal, lines in the log elsewhere."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from site_of_daemons import BINARIES, eventually

PROGRAM = BINARIES / "batchweave-producer"


def config(folder: Path, more: str) -> Path:
    """Configure a producer over a small corpus."""
    (folder / "stream").mkdir(exist_ok=True)
    text = "".join(json.dumps({"text": f"word{n} " * 80}) + "\n" for n in range(50))
    (folder / "corpus.jsonl").write_text(text)
    path = folder / "producer.toml"
    path.write_text(
        f"""
        store.url = "file://{folder / "stream"}"
        stream.slices = 2
        stream.rows_per_slice = 2
        {"" if "seq_len" in more else "stream.seq_len = 128"}
        producer.name = "tokens-0"
        source.paths = ["{folder}/*.jsonl"]
        tokenizer.kind = "bytes"
        admin.listen = "off"
        {more}
        """
    )
    return path


class OnTerminal:
    """A program on a pseudo terminal, and what it wrote."""

    def __init__(self, command: list[str], **environment: str) -> None:
        ours, its = pty.openpty()
        self.output = b""
        # A session of its own with this controlling terminal: the program is in the foreground.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *command],
            stdin=its,
            stdout=its,
            stderr=its,
            env={**os.environ, "TERM": "xterm", **environment},
        )
        os.close(its)
        self.reader = threading.Thread(target=self.read, args=(ours,))
        self.reader.start()

    def read(self, terminal: int) -> None:
        """Collect the output."""
        with (
            contextlib.suppress(OSError),
            os.fdopen(terminal, "rb", buffering=0) as source,
        ):
            while part := source.read(4096):
                self.output += part

    @property
    def text(self) -> str:
        """Return the output until now."""
        return self.output.decode(errors="replace")

    def end(self) -> None:
        """End the program, which holds the terminal."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def programs() -> Iterator[list[OnTerminal]]:
    running: list[OnTerminal] = []
    try:
        yield running
    finally:
        for one in running:
            one.end()


def test_a_terminal_has_one_line_that_log_lines_do_not_break(
    tmp_path: Path, programs: list[OnTerminal]
) -> None:
    path = config(tmp_path, "source.follow = true\nsource.settled_age = '1ms'")
    shown = OnTerminal([str(PROGRAM), "--config", str(path)])
    programs.append(shown)
    eventually("the end of the list", lambda: "waits for new files" in shown.text)
    assert re.search(r"\r\x1b\[K[^\r]*50 docs  waits for new files", shown.text), shown.text
    (tmp_path / "more.jsonl").write_text(json.dumps({"text": "more"}) + "\n")
    eventually("the next file", lambda: "51 docs" in shown.text, output=lambda: shown.text)
    # A line of the log erases the drawn one, and draws it again below itself.
    assert re.search(r"\r\x1b\[K[^\r\n]*new input files[^\r\n]*\r\n[^\r\n]* docs", shown.text)
    assert " progress " not in shown.text, "the line is enough"


def test_elsewhere_the_log_has_a_line_every_ten_seconds(
    tmp_path: Path, programs: list[OnTerminal]
) -> None:
    path = config(tmp_path, "source.epochs = 0\nlog.format = 'json'")
    with (tmp_path / "log").open("wb") as log:
        piped = subprocess.Popen([PROGRAM, "--config", path], stderr=log)
    try:
        eventually("progress", lambda: '"progress"' in (tmp_path / "log").read_text())
    finally:
        piped.terminate()
        assert piped.wait(timeout=60) == 0
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    progress = next(line for line in lines if line["message"] == "progress")
    assert progress["producer"] == "tokens-0"
    assert progress["documents"] > 0
    assert progress["tokens_per_second"] > 0
    assert not {"percent", "left_s"} & set(progress), "endless input has no end"
    last = lines[-1]
    assert last["message"] == "stopped; a restart continues from here"
    assert last["tokens"] > last["documents"] > 0
    assert last["seconds"] >= 10
    assert min(last["bytes"], last["text_bytes"]) > 0
    # JSON stays JSON on a terminal too.
    shown = OnTerminal([str(PROGRAM), "--config", str(path)])
    programs.append(shown)
    eventually("a start", lambda: '"producing"' in shown.text, output=lambda: shown.text)
    assert "\x1b[K" not in shown.text


def finished(folder: Path, more: str) -> list[str]:
    """Run a producer to its end, and return the lines of its log."""
    path = config(folder, more)
    ran = subprocess.run([PROGRAM, "--config", path], capture_output=True, text=True, check=True)
    assert not ran.stdout
    return ran.stderr.splitlines()


def test_the_last_line_has_the_totals(tmp_path: Path) -> None:
    last = finished(tmp_path, "source.epochs = 2")[-1]
    found = dict(re.findall(r"(\w+)=([\d.]+)", last))
    assert "finished: all input is in the stream" in last
    assert found["documents"] == "100"
    tokens, batches = int(found["tokens"]), int(found["batches"])
    # 512 tokens per batch; the end of the input fills no batch.
    assert tokens // 512 - 1 <= batches <= tokens // 512
    assert set(found) >= {"padding", "text_bytes", "bytes", "seconds"}
    again = finished(tmp_path, "source.epochs = 2")
    assert "finished before" in again[0]
    assert re.search(rf"finished: .*batches={batches}$", again[-1])


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (
            "stream.seq_len = 100000",
            r"its 50 documents are \d+ tokens, and a batch takes 400000",
        ),
        (
            "producer.index = 1\nproducer.of = 2\nsource.format = 'text'",
            "the input has no document for this",
        ),
        (
            "source.field = 'x'\nsource.on_bad_document = 'skip'",
            "all 50 documents were left out",
        ),
    ],
)
def test_no_batch_at_all_is_a_warning_with_its_reason(
    tmp_path: Path, more: str, reason: str
) -> None:
    last = finished(tmp_path, more)[-1]
    assert "WARN" in last
    assert re.search(f"finished with 0 batches: {reason}", last), last
