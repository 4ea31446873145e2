"""Loaders of other libraries around a reader: those that leave out or join steps are refused.

accelerate and transformers wrap a DataLoader to divide its items among processes, or to skip the
first ones after a restart. A rank's reader does both already, so that steps would be delivered,
count as read, and never be trained. A DataLoader with a batch_size joins that number of items, each
of which is a global step already. A wrapper is found on the stack when it begins to iterate, and a
joining DataLoader by torch's fetcher, which takes the items of all kinds of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from batchweave.errors import WrappedLoaderError

_LIBRARIES = frozenset({"accelerate", "transformers"})
# Loaders that fetch the next item before they return one.
_AHEAD = frozenset({"DataLoaderShard", "DataLoaderDispatcher"})
# Libraries of loaders whose fetcher joins items if its attribute `auto_collation` is set.
_FETCHERS = frozenset({"torch", "torchdata"})
# The calls between a wrapper and the reader, of torch and of datasets around this one.
_FRAMES = 32

_UNWRAPPED = (
    "do not pass the DataLoader to accelerator.prepare(), but iterate DataLoader(dataset, "
    "batch_size=None) itself and move its tensors to accelerator.device; in a transformers "
    "Trainer, return that loader from get_train_dataloader()"
)
_RESUMED = (
    "set ignore_data_skip=True in TrainingArguments, or remove skip_first_batches(): the "
    "position is set by state=, start= or seek()"
)
_JOINED = (
    "use DataLoader(dataset, batch_size=None): an item is the whole batch of a step, of this "
    "rank's rows; for batches of single rows, iterate the samples() of batchweave.connect()'s "
    "batches in a dataset of your own; in a transformers Trainer, return that loader from "
    "get_train_dataloader()"
)


def check_loader(job: str | None = None) -> None:
    """Raises `WrappedLoaderError` if a calling loader leaves out steps.

    With `job`, also if one fetches a step ahead of training, which makes saved positions wrong.
    """
    found = list(_wrappers())
    for name, loader in found:
        processes = _processes(loader)
        if processes > 1:
            raise _refused(
                f"{name} divides steps among {processes} processes, but each rank reads only its "
                "own slices of each step: steps would be delivered and not trained",
                _UNWRAPPED,
            )
    for name, loader in found:
        skipped = _whole(loader, "skip_batches")
        if skipped:
            raise _refused(
                f"{name} leaves out the first {skipped} steps from the reader's position on: "
                "they would be delivered and not trained, since a resumed reader begins after "
                "the trained ones",
                _RESUMED,
            )
    for name, loader in found:
        if job is not None and any(each.__name__ in _AHEAD for each in type(loader).__mro__):
            raise _refused(
                f"{name} fetches a step ahead of training: positions saved in job {job!r} would "
                "be one step too far, and a restart would leave out that step",
                _UNWRAPPED,
            )


def check_joined() -> None:
    """Raises `WrappedLoaderError` if a calling DataLoader joins items, or adds an axis to one."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame is None:
            return
        library = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if library in _FETCHERS and frame.f_code.co_name in ("__init__", "fetch"):
            fetcher = frame.f_locals.get("self")
            if getattr(fetcher, "auto_collation", False) is True:
                raise _refused(
                    "a DataLoader with a batch_size joins that number of global steps into one "
                    "update, or adds an axis to one step (batch_size=1): they would count as "
                    "several steps, or have another shape",
                    _JOINED,
                )
        frame = frame.f_back


def _refused(reason: str, remedy: str) -> WrappedLoaderError:
    return WrappedLoaderError(f"{reason}; {remedy}", remedy=remedy)


def _wrappers() -> Iterator[tuple[str, Any]]:
    """The wrappers that are iterating now, innermost first, with their names."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame is None:
            return
        library = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        # The variables of other frames stay untouched: reading them may keep a batch alive.
        if frame.f_code.co_name == "__iter__" and library in _LIBRARIES:
            loader = frame.f_locals.get("self")
            yield f"{type(loader).__name__} of {library}", loader
        frame = frame.f_back


def _processes(loader: Any) -> int:
    """Number of processes among which a loader divides its items; 1 for others."""
    own = _whole(loader, "num_processes")
    return own or _whole(getattr(loader, "state", None), "num_processes") or 1


def _whole(owner: Any, name: str) -> int:
    value = getattr(owner, name, 0)
    return value if isinstance(value, int) else 0
