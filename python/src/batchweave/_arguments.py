"""The types of arguments: a wrong one fails at once, and the message shows the right form."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from batchweave.errors import BadHelloError, BadStateError


def check_whole(**given: Any) -> None:
    """Raises a BadHelloError for an argument that is neither None nor a whole number."""
    for name, value in given.items():
        if value is None or (_is_whole(value) and not isinstance(value, bool)):
            continue
        number = _as_whole(value)
        form = f"write {name}={number}" if number is not None else f"for example {name}=1"
        raise BadHelloError(f"{name}={value!r} is not a whole number: {form}")


def check_seconds(**given: Any) -> None:
    """Raises a BadHelloError for an argument that is not a number above 0."""
    for name, value in given.items():
        if not isinstance(value, int | float) or not value > 0:
            raise BadHelloError(f"{name}={value!r}: give seconds above 0, for example {name}=60")


def check_state(state: Any) -> None:
    """Raises a BadStateError for a state that is a path or an object of another kind."""
    if state is None or isinstance(state, Mapping):
        return
    raise BadStateError(
        f"state={state!r} is not a saved state: give the dict that state_dict() returned, as "
        "loaded from the checkpoint"
    )


def _is_whole(value: Any) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def _as_whole(value: Any) -> int | None:
    try:
        number = float(value)
        return int(number) if number == int(number) else None
    except (TypeError, ValueError, OverflowError):
        return None
