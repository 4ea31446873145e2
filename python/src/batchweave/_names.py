"""Arguments by name: a wrong one fails at once, with the nearest right one."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def check_names(called: str, given: Iterable[str], function: Callable[..., Any]) -> None:
    """Raises a TypeError for a name that the function does not have."""
    known = inspect.signature(function).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in known):
        return
    names = [each.name for each in known if each.name != "self"]
    for name in given:
        if name in names:
            continue
        near = difflib.get_close_matches(name, names, 1, 0.5)
        meant = f"did you mean {near[0]}=?" if near else f"there are {', '.join(names)}"
        raise TypeError(f"{called} has no argument {name}=: {meant}")


def names_checked(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Returns the function with a check of the names of its arguments."""

    @functools.wraps(function)
    def checked(*arguments: _P.args, **more: _P.kwargs) -> _R:
        check_names(f"batchweave.{function.__name__}()", more, function)
        return function(*arguments, **more)

    return checked
