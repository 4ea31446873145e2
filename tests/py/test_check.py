"""`--check` of both daemons says what it opened, and leaves nothing behind."""

from __future__ import annotations

import io
import json
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from site_of_daemons import BINARIES, Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.end()


def check(daemon: str, config: Path, *more: str, env: dict[str, str] | None = None) -> str:
    """Check a configuration that is right; return what was opened."""
    command = [str(BINARIES / f"batchweave-{daemon}"), "--config", str(config), "--check", *more]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, env=env
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    return ended.stdout.replace(str(config.parent), "DIR")


def produce(site: Site) -> None:
    """Fill the stream and end."""
    text = site.producer_config().read_text().replace("epochs = 0", "epochs = 1")
    config = site.config("once", text.replace("ahead.max_steps = 200", ""))
    command = [str(BINARIES / "batchweave-producer"), "--config", str(config)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)


def test_a_producers_check_says_what_it_opened_and_leaves_nothing(site: Site) -> None:
    config = site.producer_config()
    assert check("producer", config).splitlines() == [
        "DIR/producer.toml: ok",
        "  tokenizer  bytes; token 256 ends a document",
        "  input      DIR/corpus.jsonl: 1 file, JSON lines; its first document has 480 tokens",
        f'  document   "{("word0 " * 80)[:200]} ..."',
        "  stream     none yet: a start creates it, 2 slices x 2 rows x 128 tokens",
        "  kept       packing.last_batch, packing.pad_token, producer.index, producer.of, "
        "source.column, source.field, source.format, source.max_document_bytes, "
        "tokenizer.end_token: they decide the bytes, so a restart with other values is refused; "
        "keys at their defaults may do so too, see docs/configuration.md",
        "  end        the run has no end (source.epochs = 0), and ahead.max_steps = 200 bounds it",
        "  store      file://DIR/stream: readable, creates are exclusive",
    ]
    assert list((site.folder / "stream").iterdir()) == []


def test_a_check_does_not_create_the_folder(site: Site) -> None:
    (site.folder / "stream").rmdir()
    report = check("producer", site.producer_config())
    assert "  store      file://DIR/stream: a start creates this folder\n" in report
    assert not (site.folder / "stream").exists()


def test_a_check_of_a_stream_in_use_says_where_the_producer_continues(site: Site) -> None:
    produce(site)
    before = sorted(site.folder.rglob("stream/**/*"))
    report = check("producer", site.producer_config())
    assert "  stream     2 slices x 2 rows x 128 tokens, " in report
    assert "  producer   tokens-0 finished before, with " in report
    assert sorted(site.folder.rglob("stream/**/*")) == before


def test_a_consumers_check_waits_for_no_stream_and_says_so(site: Site) -> None:
    config = site.consumer_config()
    assert check("consumer", config).splitlines() == [
        "DIR/consumer.toml: ok",
        "  store   file://DIR/stream: readable",
        "  stream  none yet: the daemon waits until a producer or `batchweave init` creates it",
        "  arena   8388608 bytes in segments of 4MiB",
        "  socket  DIR/consumer.sock: can be made",
    ]
    assert list((site.folder / "stream").iterdir()) == []
    assert not site.socket.exists()
    produce(site)
    report = check("consumer", config)
    assert "  stream  2 slices x 2 rows x 128 tokens, " in report
    assert "  job     training: a start opens it\n" in report


def test_a_consumers_check_takes_a_folder_that_a_producer_is_to_create(site: Site) -> None:
    (site.folder / "stream").rmdir()
    report = check("consumer", site.consumer_config())
    assert "  store   file://DIR/stream: no folder yet: a producer creates it\n" in report
    assert not (site.folder / "stream").exists()


def test_a_check_of_the_file_opens_nothing(site: Site) -> None:
    (site.folder / "corpus.jsonl").unlink()
    command = [str(BINARIES / "batchweave-producer"), "--config", str(site.producer_config())]
    ended = subprocess.run(
        [*command, "--check=file"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (0, f"{command[-1]}: ok\n")


def test_a_check_warns_of_what_would_surprise_later(site: Site) -> None:
    text = site.producer_config().read_text().replace("ahead.max_steps = 200", "")
    report = check("producer", site.config("endless", text))
    assert (
        "  warning    the run has no end (source.epochs = 0), and nothing bounds it, and it fills "
        "the store; set producer.limit, or ahead.max_steps\n" in report
    )
    once = text.replace("epochs = 0", "epochs = 1")
    report = check("producer", site.config("once", once))
    assert re.search(r"\n  size       about \d+\.\d [kM]B more, by an estimate from some", report)
    huge = once.replace("epochs = 1", "epochs = 1000000000")
    report = check("producer", site.config("huge", huge))
    assert re.search(
        r"\n  warning    the stream needs about \d+\.\d TB more, by an estimate from some "
        r"documents, and DIR/stream has \d+\.\d .B free: give it a larger disk",
        report,
    ), report
    (site.folder / "corpus.txt").write_text("word " * 100_000)
    whole = once.replace("corpus.jsonl", "corpus.txt")
    report = check("producer", site.config("whole", whole))
    assert (
        "  warning    one document of DIR/corpus.txt has about 500k tokens, which fill 976 steps "
        "in a row; set packing.shuffle_rows, or source.format where the file holds many "
        "documents\n" in report
    ), report
    report = check("producer", site.config("shuffled", whole + "\n[packing.shuffle_rows]\n"))
    assert (
        "  warning    one document of DIR/corpus.txt has about 500k tokens, more than a twentieth "
        "of the window of shuffled rows, 8.39M tokens; raise packing.shuffle_rows.tokens\n"
        in report
    ), report


def test_all_faults_come_together_one_per_line(site: Site) -> None:
    text = site.producer_config().read_text()
    text = text.replace("corpus.jsonl", "lost.jsonl").replace("file:///", "s3:///")
    text = text.replace('"bytes"', '"file"\n            tokenizer.path = "/lost/tokenizer.json"')
    config = site.config("wrong", text)
    command = [str(BINARIES / "batchweave-producer"), "--config", str(config), "--check"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    lines = ended.stderr.splitlines()
    assert ended.returncode == 64, ended
    assert lines[0].endswith("wrong.toml has 3 problems:"), ended
    keys = [line.split(": ")[1] for line in lines[1:]]
    assert keys == ["store.url", "tokenizer.path", "source.paths"], lines


def test_a_bucket_has_no_object_after_a_check(tmp_path: Path) -> None:
    command = [str(BINARIES / "batchweave"), "dev-s3", "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            started = json.loads(server.stdout.readline())
            site = Site(tmp_path, "s3://batchweave/stream")
            env = {
                "AWS_ENDPOINT_URL": started["endpoint"],
                "AWS_ACCESS_KEY_ID": started["access_key"],
                "AWS_SECRET_ACCESS_KEY": started["secret_key"],
                "AWS_REGION": started["region"],
            }
            report = check("producer", site.producer_config(), env=env)
            assert (
                "  store      s3://batchweave/stream: readable, creates are exclusive\n" in report
            )
            show = [str(BINARIES / "batchweave"), "delete", "s3://batchweave/stream", "--json"]
            left = subprocess.run(
                show, capture_output=True, text=True, check=False, timeout=60, env=env
            )
            # Nothing at all is below the root.
            assert left.returncode == 73, left
            assert "nothing to delete" in left.stderr, left
        finally:
            server.kill()


def test_the_size_of_a_tar_is_that_of_its_texts(site: Site) -> None:
    shard = site.folder / "corpus.tar"
    with tarfile.open(shard, "w") as tar:
        for number in range(300):
            body = b"word " * 200
            member = tarfile.TarInfo(f"{number:06}.txt")
            member.size = len(body)
            tar.addfile(member, io.BytesIO(body))
    text = site.producer_config().read_text().replace("ahead.max_steps = 200", "")
    text = text.replace("epochs = 0", "epochs = 1").replace("corpus.jsonl", "corpus.tar")
    tar_source = text.replace("[source]", '[source]\nformat = "webdataset"\nfield = "txt"')
    report = check("producer", site.config("tar", tar_source))
    found = re.search(r"\n  size       about (\d+\.\d) ([kM])B more", report)
    assert found, report
    # 300 texts of 1,001 tokens, and 600 KiB of tar around them, which the estimate takes for text.
    stored = float(found[1]) * {"k": 1e3, "M": 1e6}[found[2]]
    whole = run_whole(site, tar_source)
    assert whole / 3 < stored < 3 * whole, (stored, whole)


def run_whole(site: Site, text: str) -> int:
    """Make the stream of a configuration; return the bytes of its data."""
    config = site.config("whole-tar", text)
    command = [str(BINARIES / "batchweave-producer"), "--config", str(config)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    data = (site.folder / "stream" / "data").rglob("*")
    return sum(file.stat().st_size for file in data if file.is_file())
