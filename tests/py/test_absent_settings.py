"""The programs refuse settings for what the documents say is absent (absent_features.toml)."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from probes import Ran, refused, run
from site_of_daemons import Site, eventually


class Checks:
    """Checks of producers' and consumers' configurations in one folder."""

    def __init__(self, folder: Path) -> None:
        self.site = Site(folder)
        (folder / "corpus.jsonl").write_text('{"text": "a b c"}\n' * 100)

    def producer(self, paths: str = "corpus.jsonl", source: str = "", more: str = "") -> Ran:
        """Check a producer of these files."""
        text = self.site.producer_config(more).read_text().replace("corpus.jsonl", paths)
        return self._check("producer", text.replace("epochs = 0", f"epochs = 1{source}"))

    def consumer(self, old: str = "", new: str = "", more: str = "") -> Ran:
        """Check a consumer."""
        return self._check(
            "consumer", self.site.consumer_config(more).read_text().replace(old, new)
        )

    def _check(self, daemon: str, text: str) -> Ran:
        path = self.site.config("checked", text)
        return run(f"batchweave-{daemon}", "--config", path, "--check")


@pytest.fixture
def checks(tmp_path: Path) -> Checks:
    return Checks(tmp_path)


def test_a_stored_sentencepiece_model_only_decodes(tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    tokenizers = pytest.importorskip("tokenizers")
    texts = [f"some words  of document {n} and numbers {n * n}" for n in range(400)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_prefix=str(tmp_path / "small"),
        vocab_size=100,
        minloglevel=2,
    )
    (tmp_path / "made").mkdir()
    site = Site(tmp_path / "made")
    text = site.producer_config().read_text().replace("epochs = 0", "epochs = 1")
    kind = f'"file"\ntokenizer.path = "{tmp_path}/small.model"'
    text = text.replace('"bytes"', kind).replace("ahead.max_steps = 200", "")
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (site.folder / "corpus.jsonl").write_text(lines)
    ended = run("batchweave-producer", "--config", site.config("once", text))
    assert ended.code == 0, ended
    (stored,) = (site.folder / "stream" / "tokenizers").iterdir()
    library = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "small.model"))
    known = tokenizers.Tokenizer.from_file(str(stored))
    ids = library.encode(texts[0])
    assert known.decode(ids) == library.decode(ids)
    assert known.encode(texts[0]).ids != ids


@pytest.mark.parametrize("ending", ["orc", "tfrecord", "mds", "avro"])
def test_formats_without_a_reader_are_refused(checks: Checks, ending: str) -> None:
    (checks.site.folder / f"a.{ending}").write_text("a,b\n1,2\n")
    refused(
        checks.producer(f"a.{ending}"),
        f'source.format = "auto" does not read {checks.site.folder}',
    )
    refused(checks.producer(source=f', format = "{ending}"'), f'"{ending}" is not one of')


def test_files_of_array_record_are_refused(checks: Checks) -> None:
    (checks.site.folder / "a.arrayrecord").write_bytes(b"\x83\xaf\x70\xd1\x0d\0\0\0" * 64)
    refused(checks.producer("a.arrayrecord"), "a.arrayrecord")
    refused(
        checks.producer(source=', format = "arrayrecord"'),
        '"arrayrecord" is not one of',
    )


def test_compressed_parquet_is_refused(checks: Checks) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").table({"text": ["a b c"] * 100})
    parquet.write_table(table, checks.site.folder / "a.parquet")
    assert checks.producer("a.parquet").code == 0
    subprocess.run(["gzip", "-k", str(checks.site.folder / "a.parquet")], check=True)
    refused(checks.producer("a.parquet.gz"), "not readable as Parquet")


def ids(folder: Path) -> None:
    """Write token ids as .npy, and as a pair of Megatron's."""
    np.save(folder / "a.npy", np.arange(1000, dtype="uint16"))


def test_files_of_ids_do_not_pass_a_function(checks: Checks) -> None:
    (checks.site.folder / "own.py").write_text("def same(document):\n    return document\n")
    function = f'transform = {{ function = "own:same", path = "{checks.site.folder}" }}'
    ids(checks.site.folder)
    content = ', content = "ids"'
    assert checks.producer("a.npy", content).code == 0
    refused(
        checks.producer("a.npy", content, function),
        "transform.function takes documents of JSONL, text, Parquet, Arrow, CSV and tars",
    )
    both = f'{content}, format = "megatron"'
    refused(checks.producer("a.bin", both, function), "transform.function", "Megatron")


def test_pairs_of_megatron_are_not_followed(checks: Checks) -> None:
    both = ', content = "ids", format = "megatron", follow = true'
    refused(
        checks.producer("a.bin", both),
        'source.follow: is not for source.format = "megatron"',
    )


@pytest.mark.parametrize("mode", ["concat", "pairs"])
def test_cut_documents_and_pairs_have_no_arrays(checks: Checks, mode: str) -> None:
    array = 'packing.arrays = [{ name = "image", dtype = "U8", shape = [4] }]'
    ran = checks.producer(more=f'packing.mode = "{mode}"\n{array}')
    refused(
        ran,
        'packing.arrays: is for packing.mode = "opaque", "best_fit", "chat" and "balanced" only',
    )


def test_no_configuration_has_credentials_or_a_password(checks: Checks) -> None:
    for key in ("access_key", "secret_key", "session_token", "profile"):
        for check in (checks.producer, checks.consumer):
            refused(check(more=f'store.{key} = "x"'), f"store.{key}: unknown key")
    for key in ("token", "password", "user", "tls_certificate"):
        for check in (checks.producer, checks.consumer):
            refused(
                check(more=f'admin.{key} = "x"'),
                f"admin.{key}: unknown key",
                "here: listen",
            )


def test_an_abstract_socket_is_refused(checks: Checks) -> None:
    for path in ("@batchweave", "\\u0000batchweave"):
        ran = checks.consumer(str(checks.site.socket), path)
        refused(ran, "is not an absolute path")


@pytest.mark.parametrize("media", ["audio", "video", "gif"])
def test_arrays_of_producers_are_of_images_only(checks: Checks, media: str) -> None:
    array = f'{{ name = "x", dtype = "U8", shape = [4, 4, 3], {media} = "fit" }}'
    ran = checks.producer(more=f'packing.mode = "best_fit"\npacking.arrays = [{array}]')
    refused(ran, f"`{media}` is not a key of this table")
    # Otherwise the keys have other names, and this test is to be written anew.
    assert "shape, base64, path, image, shortest" in ran.err


def test_a_change_in_the_middle_of_a_large_file_is_not_detected(tmp_path: Path) -> None:
    site = Site(tmp_path)
    corpus = tmp_path / "corpus.jsonl"
    config = site.producer_config().read_text().replace("epochs = 0", "epochs = 1")
    path = site.config("once", config)
    process = site.start("batchweave-producer", "--config", str(path))
    eventually(
        "a hold",
        lambda: "held back" in site.log("batchweave-producer"),
        output=site.logs,
    )
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
    check = ("batchweave-producer", "--config", path, "--check")
    lines = corpus.read_text().splitlines(keepends=True)
    middle, last = len(lines) // 2, len(lines) - 1
    for line, code in [(middle, 0), (last, 64)]:
        lines[line] = lines[line].replace("word", "WORD")
        corpus.write_text("".join(lines))
        assert run(*check).code == code, (line, run(*check))


@pytest.mark.parametrize("name", ["random", "pprint"])
def test_templates_lack_some_filters(checks: Checks, name: str) -> None:
    folder = checks.site.folder
    line = json.dumps({"messages": [{"role": "assistant", "content": "a"}]})
    (folder / "chat.jsonl").write_text(f"{line}\n" * 100)
    mode = f'packing.mode = "chat"\nchat.template = "{folder}/chat.jinja"'
    for used, code in [("upper", 0), (name, 64)]:
        text = "{% for m in messages %}{{ m.content|FILTER }}{% endfor %}"
        (folder / "chat.jinja").write_text(text.replace("FILTER", used))
        ran = checks.producer("chat.jsonl", more=mode)
        assert ran.code == code, ran
    assert f'the filter "{name}" is not supported' in ran.err
