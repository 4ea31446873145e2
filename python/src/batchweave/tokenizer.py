"""The stream's tokenizer, for people who look at the data: token ids in, text out.

The vocabularies that are part of BatchWeave need neither a package nor the network: their content
comes from the daemon. A stream made with a tokenizer.json needs `tokenizers`, and a vocabulary with
a daemon of an older release `tiktoken`: `pip install "batchweave[decode]"` has both.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from batchweave._describe import Described
from batchweave.errors import NoTokenizerError

END_TEXT = "<|endoftext|>"
_BYTES_END = 256

# By vocabulary: the number of tokens that stand for bytes, and the special ones by their ids.
_SPECIALS = {
    "gpt2": (50_256, {50_256: END_TEXT}),
    "cl100k_base": (
        100_256,
        {
            100_257: END_TEXT,
            100_258: "<|fim_prefix|>",
            100_259: "<|fim_middle|>",
            100_260: "<|fim_suffix|>",
            100_276: "<|endofprompt|>",
        },
    ),
    "o200k_base": (199_998, {199_999: END_TEXT, 200_018: "<|endofprompt|>"}),
}


class Tokenizer:
    """Decodes the stream's tokens; made by `reader.tokenizer`."""

    name: str
    """The name in the stream's parameters, with the form of the slices."""
    fingerprint: str
    """The fingerprint in the stream's parameters."""
    vocabulary: int | None
    """The number of token ids: all ids are below it. None if it is not known."""

    def __init__(self, described: Described) -> None:
        self.name, self.fingerprint = described.name, described.fingerprint
        self.vocabulary = described.vocabulary
        self._decode = _decoder(described)

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of token ids, special tokens included.

        A character that the end of a row cuts becomes U+FFFD; an id that the vocabulary lacks is
        shown as `<id?>`.
        """
        return self._decode([int(token) for token in ids])

    def __repr__(self) -> str:
        size = "" if self.vocabulary is None else f", {self.vocabulary} ids"
        return f"<Tokenizer {self.name!r}{size}>"


def _decoder(described: Described) -> Callable[[list[int]], str]:
    if described.builtin == "bytes":
        return lambda ids: _of_bytes(ids, _byte)
    if described.builtin is not None:
        if described.file is not None and described.builtin in _SPECIALS:
            return _of_content(described.file, described.builtin)
        return _of_tiktoken(described.builtin)
    if described.file is not None:
        return _of_tokenizers(described.file, described.name)
    why = described.missing or "its tokens came ready made"
    raise NoTokenizerError(
        f"cannot decode the tokens of {described.name!r}: {why}; load your own tokenizer, or start "
        "a producer of this version with the tokenizer's file, which stores it"
    )


def _byte(token: int) -> bytes:
    if token == _BYTES_END:
        return END_TEXT.encode()
    return bytes([token]) if 0 <= token < _BYTES_END else _unknown(token).encode()


def _of_bytes(ids: list[int], word: Callable[[int], bytes]) -> str:
    return b"".join(map(word, ids)).decode(errors="replace")


def _of_content(content: bytes, name: str) -> Callable[[list[int]], str]:
    """Decodes by the content of a vocabulary, which fits its fingerprint already.

    It ends in the tokens, each followed by its length: so it is read from the end.
    """
    count, specials = _SPECIALS[name]
    words = {token: text.encode() for token, text in specials.items()}
    at = len(content)
    for token in reversed(range(count)):
        end = at - 4
        at = end - int.from_bytes(content[max(0, end) : end + 4], "little")
        if at < 0:
            raise NoTokenizerError(
                f"the daemon's content of the vocabulary {name} is cut short; install client and "
                "daemon of one release"
            )
        words[token] = content[at:end]
    return lambda ids: _of_bytes(ids, lambda token: words.get(token) or _unknown(token).encode())


def _of_tiktoken(name: str) -> Callable[[list[int]], str]:
    package = _package("tiktoken", name)
    try:
        encoding = package.get_encoding(name)
    except Exception as reason:
        raise NoTokenizerError(
            f"tiktoken cannot load the vocabulary {name}: {reason}; it downloads it once: allow "
            "that, name a folder that has it in TIKTOKEN_CACHE_DIR, or update the consumer daemon, "
            "which then hands it over"
        ) from reason

    def word(token: int) -> bytes:
        try:
            return bytes(encoding.decode_single_token_bytes(token))
        except (KeyError, OverflowError):
            return _unknown(token).encode()

    return lambda ids: _of_bytes(ids, word)


def _of_tokenizers(file: bytes, name: str) -> Callable[[list[int]], str]:
    package = _package("tokenizers", name)
    try:
        library = package.Tokenizer.from_str(file.decode())
    except Exception as reason:
        raise NoTokenizerError(
            f"the tokenizers package cannot load the stream's tokenizer {name!r}: {reason}; "
            "update it: pip install -U tokenizers"
        ) from reason

    def is_known(token: int) -> bool:
        return 0 <= token < 1 << 32 and library.id_to_token(token) is not None

    def decode(ids: list[int]) -> str:
        # The library would pass over unknown ids in silence.
        runs = [(known, list(run)) for known, run in groupby(ids, is_known)]
        texts = [
            library.decode(run, skip_special_tokens=False) if known else "".join(map(_unknown, run))
            for known, run in runs
        ]
        return "".join(texts)

    return decode


def _package(package: str, name: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise NoTokenizerError(
            f"decoding the tokens of {name!r} needs the package {package}: "
            f'pip install {package} (or "batchweave[decode]")'
        ) from None


def _unknown(token: int) -> str:
    return f"<{token}?>"
