"""A device for losses that computes when a test lets it, and a reporter of losses on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import batchweave
from batchweave import _loss_reporter
from batchweave._label_groups import Plan
from batchweave._loss_reporter import Copy


class Device:
    """Computes at once, or after `computes` is set."""

    def __init__(self) -> None:
        self.computes = True
        self.copied: list[int] = []
        self.fails: Exception | None = None


class LossReporter(_loss_reporter.LossReporter):
    """Adds up on such a device."""

    device: Device

    def _sums(self, losses: Sequence[Any], weights: Sequence[Any] | None, how: Plan) -> Any:
        loss = np.concatenate([np.ravel(one) for one in losses]).astype(float)
        weight = how.codes[0] if weights is None else np.ravel(weights[0])
        finite = np.isfinite(loss)
        bad = (weight > 0) & ~finite
        weight = np.where(finite, weight, 0.0)
        each = np.stack([np.where(finite, loss, 0.0) * weight, weight, bad], 1)
        found = [each.sum(0)]
        groups = [] if how.sources is None else [len(how.sources)]
        groups += [how.details + 1] if how.details else []
        for count, index in zip(groups, how.codes[1:], strict=True):
            added = np.zeros((count, 3))
            np.add.at(added, index, each)
            found.append(added.reshape(-1))
        return np.concatenate(found)

    def _copies(self, sums: Sequence[Any]) -> Sequence[Copy]:
        if self.device.fails is not None:
            raise self.device.fails
        self.device.copied.append(len(sums))
        return [_Copied(self.device, one) for one in sums]


class _Copied(Copy):
    def __init__(self, device: Device, sums: Any) -> None:
        self.device, self.sums = device, sums

    def is_done(self) -> bool:
        return self.device.computes

    def numbers(self) -> Any:
        assert self.device.computes, "read before it was computed"
        return self.sums


def reporter(reader: batchweave.Reader, **more: Any) -> LossReporter:
    found = LossReporter(reader, **more)
    found.device = Device()
    return found
