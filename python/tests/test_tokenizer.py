"""The stream's tokenizer: described by the daemon, checked by the client, decoded by libraries."""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import os
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import real_daemons
import tokenizers
from conftest import eventually
from fake_daemon import SEALS, STREAM, FakeDaemon, Peer
from real_daemons import MARKS, Daemons

import batchweave
from batchweave import _describe
from batchweave.errors import BadMessageError, NoTokenizerError, OtherStreamError
from batchweave.tokenizer import Tokenizer

FINGERPRINT = "5c" * 32


def trained() -> tokenizers.Tokenizer:
    """Returns a byte-level tokenizer of few merges, made from the corpus."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    made.train_from_iterator(real_daemons.documents(), trainer)
    return made


def with_file(peer: Peer, file: bytes, seals: int = SEALS, **change: Any) -> None:
    """Answers with a file, sealed as the daemon seals it."""
    own = hashlib.sha256(file).hexdigest()
    fields = {"name": "m/tokenizer.json", "fingerprint": own, "builtin": None, "vocabulary": 3}
    writable = os.memfd_create("tokenizer", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.write(writable, file)
    fcntl.fcntl(writable, fcntl.F_ADD_SEALS, seals)
    peer.send_info([writable], **{**fields, "file_bytes": len(file), **change})
    os.close(writable)


def test_the_vocabulary_of_bytes_needs_nothing(daemon: FakeDaemon, path: Path) -> None:
    daemon.on_describe = lambda peer: peer.send_info()
    with batchweave.connect(path) as reader:
        info = reader.info
        assert (info.tokenizer, info.fingerprint, info.vocabulary) == ("bytes", FINGERPRINT, 257)
        assert info.seq_len == 15
        decode = reader.tokenizer.decode
        assert decode(np.array([104, 0xC3, 0xA9, 256, 104], np.uint16)) == "hé<|endoftext|>h"
        assert decode([0xC3]) == "\ufffd", "a cut character"
        assert decode([97, 300]) == "a<300?>"
        assert reader.tokenizer is reader.tokenizer
        assert repr(reader.tokenizer) == "<Tokenizer 'bytes', 257 ids>"


def test_a_daemon_of_an_older_release_is_named(daemon: FakeDaemon, path: Path) -> None:
    def refuse(peer: Peer) -> None:
        peer.send_error(2, "bad_message")

    daemon.on_describe = refuse
    with batchweave.connect(path) as reader:
        assert reader.info.slices == 1
        assert reader.info.vocabulary is None
        with pytest.raises(NoTokenizerError, match="of an older release"):
            _ = reader.tokenizer


def test_another_stream_s_tokenizer_is_refused(daemon: FakeDaemon, path: Path) -> None:
    daemon.on_describe = lambda peer: peer.send_info(stream="another")
    with batchweave.connect(path) as reader, pytest.raises(OtherStreamError):
        _ = reader.tokenizer


def test_a_file_is_decoded_as_its_library_does(daemon: FakeDaemon, path: Path) -> None:
    library = trained()
    file = library.to_str().encode()
    formed = hashlib.sha256(f"{hashlib.sha256(file).hexdigest()}; best_fit".encode()).hexdigest()
    change: dict[str, Any] = {"name": "m/tokenizer.json; best_fit", "fingerprint": formed}
    daemon.on_describe = lambda peer: with_file(peer, file, **change)
    with batchweave.connect(path) as reader:
        ids = library.encode("über 数据<|endoftext|> weave").ids
        assert library.token_to_id("<|endoftext|>") in ids
        assert reader.tokenizer.decode(ids) == library.decode(ids, skip_special_tokens=False)
        assert reader.tokenizer.decode(ids) == "über 数据<|endoftext|> weave"
        assert reader.tokenizer.decode([*ids, 1 << 20]).endswith("weave<1048576?>")


@pytest.mark.parametrize(
    ("change", "seals", "why"),
    [
        ({"fingerprint": FINGERPRINT}, SEALS, "another file"),
        ({"file_bytes": 7}, SEALS, "a file of 20 bytes, announced as 7"),
        ({"file_bytes": None}, SEALS, "1 descriptors"),
        ({"file_bytes": -1}, SEALS, "file_bytes must be a number"),
        ({"file_bytes": 1 << 40}, SEALS, "announced as"),
        ({}, SEALS & ~0x10, "lacks seals"),
        ({"name": 3}, SEALS, "name must be a text"),
    ],
)
def test_a_file_that_is_not_as_announced_is_refused(
    daemon: FakeDaemon, path: Path, change: dict[str, Any], seals: int, why: str
) -> None:
    daemon.on_describe = lambda peer: with_file(peer, b"{'model': 'a model'}", seals, **change)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with batchweave.connect(path) as reader:
        with pytest.raises(BadMessageError, match=why):
            _ = reader.tokenizer
        with pytest.raises(BadMessageError, match=why):
            _ = reader.info.vocabulary
    eventually(lambda: len(list(Path("/proc/self/fd").iterdir())) <= before)


def test_no_answer_is_an_error_with_the_cause(daemon: FakeDaemon, path: Path) -> None:
    daemon.on_describe = lambda peer: peer.send_waiting(0, 8, "opening the log")
    with (
        batchweave.connect(path, timeout=1) as reader,
        pytest.raises(batchweave.errors.NoDaemonError, match="describes its stream"),
    ):
        _ = reader.tokenizer


def made(**change: Any) -> Tokenizer:
    fields = {
        "stream_id": str(STREAM),
        "name": "gpt2",
        "fingerprint": FINGERPRINT,
        "builtin": "gpt2",
        "vocabulary": 50257,
        "missing": None,
        "file": None,
    }
    return Tokenizer(_describe.Described(**{**fields, **change}))


def test_a_missing_package_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", none)
    with pytest.raises(NoTokenizerError, match="pip install tiktoken"):
        made()
    with pytest.raises(NoTokenizerError, match="pip install tokenizers"):
        made(builtin=None, file=b"{}", name="m/tokenizer.json")
    assert made(builtin="bytes").decode([97]) == "a", "without anything"


def test_tiktoken_decodes_its_vocabularies(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {0: b"\xc3", 1: b"\xa9t", 50256: b"<|endoftext|>"}
    encoding = SimpleNamespace(decode_single_token_bytes=words.__getitem__)
    asked: list[str] = []

    def get_encoding(name: str) -> Any:
        asked.append(name)
        if name == "o200k_base":
            raise OSError("no network")
        return encoding

    package = SimpleNamespace(get_encoding=get_encoding)
    monkeypatch.setattr(importlib, "import_module", lambda _: package)
    assert made().decode([0, 1, 50256, 7]) == "ét<|endoftext|><7?>"
    assert asked == ["gpt2"]
    with pytest.raises(NoTokenizerError, match="TIKTOKEN_CACHE_DIR"):
        made(builtin="o200k_base")


def content_of(words: list[bytes]) -> bytes:
    """The content of a vocabulary with the number of tokens that gpt2 has."""
    words = words + [b"x"] * (50_256 - len(words))
    return b"a pattern" + b"".join(word + struct.pack("<I", len(word)) for word in words)


def test_a_vocabulary_of_the_daemon_needs_neither_a_package_nor_the_network(
    monkeypatch: pytest.MonkeyPatch, daemon: FakeDaemon, path: Path
) -> None:
    def none(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", none)
    content = content_of([b"\xc3", b"\xa9t", b" over"])
    daemon.on_describe = lambda peer: with_file(
        peer, content, name="gpt2; best_fit", builtin="gpt2", fingerprint=formed(content)
    )
    with batchweave.connect(path) as reader:
        decode = reader.tokenizer.decode
        assert decode([0, 1, 2, 50256, 50255, 50257, -1]) == "ét over<|endoftext|>x<50257?><-1?>"
        assert decode([0]) == "\ufffd"
    # Another content is refused as another file is, and a daemon without any needs the package.
    daemon.on_describe = lambda peer: with_file(
        peer, content + b"\0", name="gpt2; best_fit", builtin="gpt2", fingerprint=formed(content)
    )
    with (
        batchweave.connect(path) as reader,
        pytest.raises(BadMessageError, match="another file"),
    ):
        _ = reader.tokenizer
    with pytest.raises(NoTokenizerError, match="cut short"):
        made(file=content_of([])[20:])
    with pytest.raises(NoTokenizerError, match="pip install tiktoken"):
        made()


def formed(content: bytes) -> str:
    """The fingerprint of a stream of best_fit rows made with this content."""
    own = hashlib.sha256(content).hexdigest()
    return hashlib.sha256(f"{own}; best_fit".encode()).hexdigest()


def test_ids_that_came_ready_made_have_no_text() -> None:
    with pytest.raises(NoTokenizerError, match="came ready made"):
        made(builtin=None, name="ids below 100, end 0")
    with pytest.raises(NoTokenizerError, match="keeps no file"):
        made(builtin=None, name="m/t.json", missing="the stream keeps no file")
    with pytest.raises(NoTokenizerError, match="cannot load"):
        made(builtin=None, name="m/t.json", file=b"{}")


def produce(tmp_path: Path, start: Daemons) -> None:
    config = tmp_path / "producer.toml"
    named = f'kind = "file"\npath = "{tmp_path}/tokenizer.json"'
    config.write_text(config.read_text().replace('kind = "bytes"', named))
    assert start("producer").wait(300) == 0


class TestRealDaemons:
    """The same from documents to text."""

    pytestmark = MARKS

    def test_a_stream_keeps_the_file_that_made_it(self, tmp_path: Path, daemons: Daemons) -> None:
        library = trained()
        library.save(str(tmp_path / "tokenizer.json"))
        produce(tmp_path, daemons)
        daemons("consumer")
        with batchweave.connect(tmp_path / "s.sock", timeout=300) as reader:
            assert reader.info.tokenizer == f"{tmp_path.name}/tokenizer.json"
            assert reader.info.vocabulary == library.get_vocab_size()
            ids: list[int] = []
            for batch in reader:
                # The last token of a row is the first of the next.
                ids += batch.inputs.reshape(-1).tolist()
            text = reader.tokenizer.decode(ids)
        assert text == library.decode(ids, skip_special_tokens=False)
        whole = "".join(f"{text}<|endoftext|>" for text in real_daemons.documents())
        assert whole.startswith(text.rstrip("\ufffd"))
        assert len(text) > 1000

    @pytest.mark.parametrize("name", ["gpt2", "cl100k_base", "o200k_base"])
    def test_a_vocabulary_of_the_programs_needs_no_network(
        self, tmp_path: Path, daemons: Daemons, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        config = tmp_path / "producer.toml"
        named = f'kind = "embedded"\nname = "{name}"'
        config.write_text(config.read_text().replace('kind = "bytes"', named))
        assert daemons("producer").wait(300) == 0
        daemons("consumer")
        monkeypatch.setattr(importlib, "import_module", None)
        with batchweave.connect(tmp_path / "s.sock", timeout=300) as reader:
            assert reader.info.tokenizer == name
            ids: list[int] = []
            for batch in reader:
                ids += batch.inputs.reshape(-1).tolist()
            text = reader.tokenizer.decode(ids)
            bound = reader.info.vocabulary
            assert bound is not None
            special = reader.tokenizer.decode(range(bound - 1, bound))
        whole = "".join(f"{text}<|endoftext|>" for text in real_daemons.documents())
        assert whole.startswith(text.rstrip("\ufffd"))
        assert len(text) > 1000
        assert special in ("<|endoftext|>", "<|endofprompt|>")

    def test_a_damaged_and_a_missing_file_are_named(self, tmp_path: Path, daemons: Daemons) -> None:
        trained().save(str(tmp_path / "tokenizer.json"))
        produce(tmp_path, daemons)
        (stored,) = (tmp_path / "stream" / "tokenizers").iterdir()
        assert stored.read_bytes() == (tmp_path / "tokenizer.json").read_bytes()
        assert stored.name == f"{hashlib.sha256(stored.read_bytes()).hexdigest()}.json"
        for damaged, why in [
            (b"{}", "damaged, or another tokenizer"),
            (None, "keeps no file of its tokenizer"),
        ]:
            stored.unlink()
            if damaged is not None:
                stored.write_bytes(damaged)
            consumer = daemons("consumer")
            with batchweave.connect(tmp_path / "s.sock", timeout=300) as reader:
                assert reader.info.vocabulary is None
                with pytest.raises(NoTokenizerError, match=why):
                    _ = reader.tokenizer
                assert next(reader).inputs.size, "batches need no tokenizer"
            consumer.kill()
            consumer.wait()
