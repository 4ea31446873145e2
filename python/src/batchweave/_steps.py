"""Indices of a stream as steps. Pure."""

from __future__ import annotations

from batchweave.errors import StepReclaimedError


def one(number: int, steps: range) -> int:
    """Returns the step of an index; `steps` are those that can be read."""
    step = number if number >= 0 else number + steps.stop
    if number >= 0 and step < steps.start:
        raise _reclaimed(number, steps)
    if step not in steps:
        have = f"steps {steps.start} to {steps.stop - 1}" if steps else "no steps yet"
        raise IndexError(f"step {number} is not in the stream, which has {have}")
    return step


def chosen(index: slice, steps: range) -> range:
    """Returns the steps of a slice, whose numbers are steps or count from the end.

    Bounds that are omitted or negative begin at the oldest step that can be read.
    """
    start, stop, step = index.start, index.stop, index.step
    backwards = step is not None and step < 0
    if backwards and start is not None and 0 <= start < steps.start:
        raise _reclaimed(start, steps)
    if not backwards and (start is None or start < 0):
        start = steps.start if start is None else max(start + steps.stop, steps.start)
    if backwards and (stop is None or stop < 0):
        after = steps.start if stop is None else max(stop + steps.stop + 1, steps.start)
        # In a range, -1 is the stop before step 0.
        top = range(steps.stop)[slice(start, None, step)]
        found = range(top.start, after - 1, top.step)
    else:
        found = range(steps.stop)[slice(start, stop, step)]
    if found and min(found[0], found[-1]) < steps.start:
        raise _reclaimed(min(found[0], found[-1]), steps)
    return found


def _reclaimed(step: int, steps: range) -> StepReclaimedError:
    return StepReclaimedError(
        f"step {step} is reclaimed: the oldest step that can be read is {steps.start}; "
        "omit the start of a slice to begin there",
        step=step,
    )
