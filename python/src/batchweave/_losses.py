"""The losses that ranks of a job reported, as a table: from `batchweave losses`."""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from typing import Any

from batchweave import _programs
from batchweave.errors import BadHelloError, NoProgramError

BY = ("step", "source", "row", "document")


def table(url: str, job: str, steps: range | int | None, by: str, seconds: float) -> Any:
    """Returns a `pyarrow.Table` of the losses of some steps, or of all."""
    if by not in BY:
        raise BadHelloError(f"by={by!r}: give one of {', '.join(map(repr, BY))}")
    words = ["losses", f"--job={job}", f"--by={by}", *_words_of(steps)]
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError as reason:
        raise NoProgramError(
            f"losses() makes a table of pyarrow, which cannot be imported ({reason}): "
            f"pip install pyarrow, or call `batchweave losses --job {job} --json`"
        ) from None
    with tempfile.TemporaryDirectory(prefix="batchweave-losses-") as folder:
        file = Path(folder, "losses.parquet")
        called = " ".join(words)
        _programs.said(url, [*words, f"--parquet={file}"], seconds, called=called)
        return parquet.read_table(file, memory_map=False)


def _words_of(steps: range | int | None) -> list[str]:
    if steps is None:
        return []
    chosen = range(steps, steps + 1) if isinstance(steps, int) else steps
    if not isinstance(chosen, range) or chosen.step != 1 or not chosen or chosen[0] < 0:
        raise BadHelloError(
            f"steps={steps!r}: give a step, or a range of steps such as range(1000, 2000)"
        )
    # As all verbs take ranges: with the last step.
    return [f"--steps={chosen[0]}..{chosen[-1]}"]
