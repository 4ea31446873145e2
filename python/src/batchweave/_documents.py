"""The documents of a batch: their names and text, from `batchweave show STEP --decode`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from batchweave import _programs
from batchweave.errors import NoSourcesError, StreamNotOpenedError


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


class Decoder:
    """Asks `batchweave show` about one step, at most once per slice."""

    def __init__(self, url: str, step: int, seconds: float) -> None:
        self._url, self._step, self._seconds = url, step, seconds
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

    def sources(self, rows_per_slice: int, first_slice: int) -> list[Source]:
        """Returns the documents of all rows, in the order of their first tokens."""
        try:
            rows = self.rows()
        except StreamNotOpenedError as error:
            raise NoSourcesError(
                f"cannot name the documents of step {self._step}: {error.args[0]}", step=self._step
            ) from None
        found: dict[tuple[str, int], list[tuple[int, dict[str, Any]]]] = {}
        for row in rows:
            number = (row["slice"] - first_slice) * rows_per_slice + row["row"]
            for part in row["documents"]:
                if part["source"] is None:
                    raise NoSourcesError(
                        f"the documents of step {self._step} have no names: the stream stores no "
                        "provenance (packing.provenance)",
                        step=self._step,
                    )
                found.setdefault((part["source"], part["pass"]), []).append((number, part))
        return [_source(*key, parts) for key, parts in found.items()]


def _source(name: str, passed: int, parts: list[tuple[int, dict[str, Any]]]) -> Source:
    return Source(
        name,
        passed,
        min(part["skip"] for _, part in parts),
        sum(part["tokens"] for _, part in parts),
        tuple(dict.fromkeys(number for number, _ in parts)),
    )
