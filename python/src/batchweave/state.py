"""The saved position of a reader: one constant key with one JSON string.

Checkpoint libraries flatten, shard and merge nested dicts by rank; a single string under a constant
key is restored unchanged, on any number of ranks. The string is equal on all ranks: it is a
position in the *stream* (the first step not yet trained), without the rank.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from batchweave.errors import BadStateError

KEY = "batchweave"
FORMAT = 1
_FIELDS = {"format", "stream_id", "next_step", "attempt", "attempt_number", "world"}
_COUNTS = {int, type(None)}


@dataclass(frozen=True)
class State:
    """A position in a stream: `next_step` is the first step that has not been trained."""

    stream_id: str
    next_step: int
    attempt: str | None = None
    attempt_number: int | None = None
    """The attempt that trained so far: its id, and its number within its job."""
    world: int | None = None
    """The number of data-parallel ranks; informational only."""

    def to_dict(self) -> dict[str, str]:
        """Returns the form for a checkpoint: `{"batchweave": "<json>"}`."""
        body: dict[str, Any] = {
            "format": FORMAT,
            "stream_id": self.stream_id,
            "next_step": self.next_step,
            "attempt": self.attempt,
            "attempt_number": self.attempt_number,
            "world": self.world,
        }
        return {KEY: json.dumps(body, separators=(",", ":"))}

    @staticmethod
    def from_dict(state: Mapping[str, str]) -> State:
        """Parses the result of `to_dict`; raises `BadStateError` for anything else."""
        text = state.get(KEY) if isinstance(state, Mapping) else None
        if not isinstance(text, str):
            found = sorted(map(str, state)) if isinstance(state, Mapping) else type(state).__name__
            raise BadStateError(
                f'the saved state has no string under "{KEY}" (found: {found}); '
                "pass what reader.state_dict() or batch.state_dict() returned, unchanged"
            )
        return State._parse(text)

    @staticmethod
    def _parse(text: str) -> State:
        try:
            body = json.loads(text)
        except ValueError as reason:
            raise BadStateError(
                f"the saved state is not JSON ({reason}): {text[:80]!r}; restore another checkpoint"
            ) from None
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            raise BadStateError(
                f"the saved state is not of format {FORMAT}: {text[:80]!r}; "
                "it was written by another version of batchweave: use that one, or start=STEP"
            )
        unknown = sorted(set(body) - _FIELDS)
        if unknown:
            raise BadStateError(f"the saved state has unknown fields {unknown}: {text[:80]!r}")
        stream_id, next_step = body.get("stream_id"), body.get("next_step")
        if not isinstance(stream_id, str) or not stream_id:
            raise BadStateError(f"the saved state names no stream: {text[:80]!r}")
        if not isinstance(next_step, int) or isinstance(next_step, bool) or next_step < 0:
            raise BadStateError(f"next_step of the saved state is {next_step!r}, not a step number")
        attempt, world = body.get("attempt"), body.get("world")
        number = body.get("attempt_number")
        if not isinstance(attempt, str | None) or not {type(number), type(world)} <= _COUNTS:
            raise BadStateError(
                f"attempt or world of the saved state has a wrong type: {text[:80]!r}"
            )
        return State(stream_id, next_step, attempt, number, world)

    def parent(self) -> dict[str, Any] | None:
        """Returns the attempt and step for a `hello`; None without a job."""
        if self.attempt is None or self.attempt_number is None:
            return None
        return {"attempt": self.attempt_number, "id": self.attempt, "step": self.next_step}
