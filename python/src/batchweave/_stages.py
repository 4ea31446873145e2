"""The stages of a stream: the shapes of its batches after that of stream.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Stage:
    """The shape of the batches of one stage."""

    id: int
    """Its number, from 1 on."""
    name: str
    """Its name in the producers' configurations."""
    rows_per_slice: int
    seq_len: int
    form: str
    """How its slices differ from plain rows, as in the name of the stream's tokenizer."""


def of_fields(fields: dict[str, Any]) -> Stage:
    """Returns the stage that these fields describe; ValueError or KeyError for others."""
    numbers = [fields[key] for key in ("id", "rows_per_slice", "seq_len")]
    texts = [fields[key] for key in ("name", "form")]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError("a number of a stage is none")
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a name of a stage must be text")
    return Stage(numbers[0], texts[0], numbers[1], numbers[2], texts[1])


def of_message(body: memoryview) -> Stage | None:
    """Decodes a `stage`; None for the shape of stream.json."""
    fields = json.loads(bytes(body))
    if not isinstance(fields, dict):
        raise ValueError("it must be an object")
    found = of_fields(fields)
    return found if found.id else None


class Entering:
    """Calls `on_stage` where the stage of a batch is not that of the batch before."""

    def __init__(self, call: Callable[[Stage | None], object] | None) -> None:
        self._call = call
        self.stage: Stage | None = None

    def enter(self, stage: Stage | None) -> None:
        """Takes over the stage, unless the call raises an exception."""
        if stage == self.stage:
            return
        if self._call is not None:
            self._call(stage)
        self.stage = stage
