"""The documents of a batch: their names and text, from `batchweave show STEP`."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from batchweave import _programs
from batchweave.errors import NoSourcesError, NoTokenizerError, StreamNotOpenedError

# Documents that are kept, beside those of the last answer: half a kilobyte each.
KEPT_MAX = 50_000


@dataclass(frozen=True)
class Source:
    """A document of a batch, or the part of one that is in it."""

    name: str
    """Its place in the input: FILE:LINE, or FILE:ROW of a Parquet file, from 1."""
    passed: int
    """The number of the pass over the input, from 0."""
    skip: int
    """Tokens of the document before those in this batch."""
    tokens: int
    """Tokens in this batch; one that two rows share counts in both. 1 for a sample."""
    rows: tuple[int, ...]
    """The rows or samples of the batch that hold it, as numbers of `batch.samples()`."""


class Provenance:
    """The documents of a stream's steps by name, of the steps that were asked for lately.

    `batchweave` answers for all steps of one provenance object, which follow one another. Any
    thread may use it: two that ask at the same time both get an answer.
    """

    def __init__(self, url: str, seconds: float) -> None:
        self._url, self._seconds = url, seconds
        # The least recently used first.
        self._steps: OrderedDict[int, list[dict[str, Any]]] = OrderedDict()
        # Never held while a program runs.
        self._lock = threading.RLock()

    def of(self, step: int) -> list[dict[str, Any]]:
        """Returns the documents of a step, with slice and row."""
        with self._lock:
            known = self._steps.get(step)
            if known is not None:
                self._steps.move_to_end(step)
                return known
        words = ["show", str(step), "--sources"]
        answer = _programs.ask(self._url, words, self._seconds)["sources"]
        found: dict[int, list[dict[str, Any]]] = {one["step"]: one["documents"] for one in answer}
        with self._lock:
            self._keep(found)
        return found[step]

    def _keep(self, found: dict[int, list[dict[str, Any]]]) -> None:
        kept = sum(map(len, self._steps.values()))
        while self._steps and kept > KEPT_MAX:
            kept -= len(self._steps.popitem(last=False)[1])
        self._steps.update(found)


class Decoder:
    """Asks `batchweave show` about one step, at most once per slice."""

    def __init__(
        self, url: str, step: int, seconds: float, provenance: Provenance | None = None
    ) -> None:
        self._url, self._step, self._seconds = url, step, seconds
        self._provenance = provenance or Provenance(url, seconds)
        self._rows: dict[int | None, list[dict[str, Any]]] = {}

    @property
    def url(self) -> str:
        """The root of the stream."""
        return self._url

    def rows(self, piece: int | None = None) -> list[dict[str, Any]]:
        """Returns the `rows` of `show --decode --json`, of all slices or of one."""
        if None in self._rows:
            return [row for row in self._rows[None] if piece in (None, row["slice"])]
        if piece not in self._rows:
            words = ["show", str(self._step), "--decode"]
            words += [] if piece is None else ["--slice", str(piece), "--values", "0"]
            answer = _programs.ask(self._url, words, self._seconds)
            self._rows[piece] = answer["rows"] or []
        return self._rows[piece]

    def text(self) -> list[str]:
        """Returns the text of each row, without padding."""
        try:
            rows = self.rows()
        except StreamNotOpenedError as error:
            raise NoTokenizerError(
                f"cannot decode step {self._step}: {error.args[0]}", step=self._step
            ) from None
        parts = [[part["text"] for part in row["documents"]] for row in rows]
        if any(text is None for row in parts for text in row):
            raise NoTokenizerError(
                f"step {self._step} has samples without tokens, so it has no text: see "
                "batch.samples()",
                step=self._step,
            )
        return ["".join(row) for row in parts]

    def sources(self, rows_per_slice: int, first_slice: int) -> list[Source]:
        """Returns the documents of all rows, in the order of their first tokens."""
        try:
            documents = self._provenance.of(self._step)
        except StreamNotOpenedError as error:
            raise NoSourcesError(
                f"cannot name the documents of step {self._step}: {error.args[0]}", step=self._step
            ) from None
        found: dict[tuple[str, int], list[tuple[int, dict[str, Any]]]] = {}
        for part in documents:
            number = (part["slice"] - first_slice) * rows_per_slice + part["row"]
            found.setdefault((part["source"], part["pass"]), []).append((number, part))
        return [_source(*key, parts) for key, parts in found.items()]


def _source(name: str, passed: int, parts: Sequence[tuple[int, dict[str, Any]]]) -> Source:
    return Source(
        name,
        passed,
        min(part["skip"] for _, part in parts),
        sum(part["tokens"] for _, part in parts),
        tuple(dict.fromkeys(number for number, _ in parts)),
    )
