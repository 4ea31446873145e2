"""Losses of steps that stay on their device until they are fetched, together with their states.

The sums of a step are computed where its losses are. After `every` steps their copy to this process
begins, and they are reported when it has ended: at a later step, a mark or the end. So no step
waits for the device.

Any thread and any signal handler may call, since nothing here waits for a lock. A step leaves the
queue after it was reported, so two simultaneous calls may both report it; the daemon counts the
first.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from batchweave._arguments import check_whole
from batchweave._label_groups import DETAILS, Plan, plan
from batchweave._values import NO_DETAILS, NO_SOURCES, PART, Details, Source, record
from batchweave.errors import BadReportError, ClosedError
from batchweave.views import WHOLE, Share, check_share

if TYPE_CHECKING:
    from batchweave.batch import Batch
    from batchweave.reader import Reader

# Longest wait of a mark for the device; the losses of slower steps are left out.
_FLUSH_SECONDS = 5.0
_EVERY_MAX = 1024
# Steps that wait before a report waits for the device, as a multiple of `every`.
_WAITING = 4


class Pending:
    """A step whose losses are on the device: their sums in one array, and the copy of it."""

    __slots__ = ("plan", "sums", "copy")

    def __init__(self, plan: Plan, sums: Any) -> None:
        self.plan, self.sums = plan, sums
        self.copy: Copy | None = None


class Copy:
    """A copy of a step's sums on its way to this process."""

    def is_done(self) -> bool:
        """Returns whether `numbers` would return at once."""
        return True

    def numbers(self) -> Any:
        """Returns the sums as an array of this process."""
        raise NotImplementedError


class LossReporter:
    """Reports trained steps with their losses, by source, and on request by row or document."""

    def __init__(
        self,
        reader: Reader,
        every: int = 10,
        detail: str | None = None,
        part: bool | Share = False,
    ) -> None:
        # Of a Dataset.
        reader = getattr(reader, "reader", reader)
        check_whole(every=every)
        if not 1 <= every <= _EVERY_MAX:
            raise BadReportError(f"every={every}: give a number of steps from 1 to {_EVERY_MAX}")
        if detail not in DETAILS:
            raise BadReportError(f'detail={detail!r}: give "row", "document" or None')
        self._split = (reader._options.part, reader._options.split_rows)
        if detail == "document" and self._split[1] > 1:
            raise BadReportError(
                'detail="document" with split_rows: a rank knows the documents of its own rows '
                'only; give detail="row"'
            )
        self._share: Share = WHOLE if isinstance(part, bool) else part
        # Rows of length 0 have any share, so this checks only the arguments.
        check_share(0, self._share)
        self._every, self._detail = every, detail
        self._kind = PART if part or self._split[1] > 1 else 0
        self._waiting: deque[Pending] = deque()
        # The reader keeps this object, which would be a cycle.
        self._reader = weakref.ref(reader)
        self._new = 0
        reader._reports.before_marks.append(self.flush)

    def __call__(self, batch: Batch, per_token_loss: Any, weights: Any = None) -> None:
        """Reports that the model was trained on `batch`, with the loss of each token.

        `per_token_loss`: of each label, in the shape of `batch.labels` or flattened, as by
        `cross_entropy(..., reduction="none")`; or a list with those of each micro-batch in order.
        `weights`: of each loss; default: 1 where the label is to be learned (`batch.loss_mask`),
        else 0.
        """
        reader = self._owner()
        step = reader._reported_step(batch)
        losses = _listed(per_token_loss)
        sizes = _sizes(losses)
        found = plan(batch, sizes, self._detail, self._share, self._split)
        if weights is not None:
            weights = _listed(weights)
            if sum(_sizes(weights)) != sum(sizes):
                raise BadReportError(
                    f"step {step}: {sum(_sizes(weights))} weights for {sum(sizes)} losses; give "
                    "one for each",
                    step=step,
                )
        self._say_left_out(reader, found)
        if reader._options.job is None:
            return
        self._waiting.append(Pending(found, self._sums(losses, weights, found)))
        self._new += 1
        if self._new >= self._every:
            self._fetch()
        if len(self._waiting) > _WAITING * self._every:
            self.flush(_FLUSH_SECONDS)
        else:
            self._deliver(0.0)

    def flush(self, seconds: float = _FLUSH_SECONDS) -> None:
        """Reports all steps; the reader calls it before marks and at its end.

        Waits for the device at most this long, then reports the remaining steps without losses.
        """
        if self._waiting:
            self._fetch()
            self._deliver(time.monotonic() + seconds)
            self._deliver(0.0, without=f"the device has not computed them in {seconds:g} s")

    def _sums(self, losses: Sequence[Any], weights: Sequence[Any] | None, how: Plan) -> Any:
        """Returns the sums of a step as one array of its device: see `_record`."""
        raise NotImplementedError

    def _copies(self, sums: Sequence[Any]) -> Sequence[Copy]:
        """Starts copies of arrays of a device."""
        raise NotImplementedError

    def _owner(self) -> Reader:
        reader = self._reader()
        if reader is None:
            raise ClosedError("the reader of this LossReporter is gone; make one of a new reader")
        return reader

    def _fetch(self) -> None:
        self._new = 0
        waiting = [one for one in list(self._waiting.copy()) if one.copy is None]
        try:
            copies = self._copies([one.sums for one in waiting]) if waiting else []
        except Exception as error:
            # The state of a step is never dropped. The loop meets the same error.
            copies = [_Failed(error) for _ in waiting]
        for one, copy in zip(waiting, copies, strict=True):
            one.copy = copy

    def _deliver(self, deadline: float, without: str = "") -> None:
        """Reports the steps whose copies have ended, in order; others after the deadline."""
        reader = self._owner()
        while self._waiting:
            try:
                one = self._waiting[0]
            except IndexError:
                return
            if not without:
                while not (one.copy is not None and one.copy.is_done()):
                    if one.copy is None or time.monotonic() >= deadline:
                        return
                    time.sleep(0.0005)
            reader._report_values(one.plan.step, *self._record(one, without))
            with contextlib.suppress(ValueError):
                self._waiting.remove(one)

    def _record(self, one: Pending, without: str) -> tuple[bytes | None, str]:
        """Returns the record of a step, or why there is none."""
        if without or one.copy is None:
            return None, without
        try:
            found = np.asarray(one.copy.numbers(), np.float64)
            return _record(one.plan, found, self._kind), ""
        except Exception as error:
            return None, f"{type(error).__name__}: {error}"

    def _say_left_out(self, reader: Reader, how: Plan) -> None:
        details, sources = bool(how.kind & NO_DETAILS), bool(how.kind & NO_SOURCES)
        if details or sources:
            what = "7,168 rows or documents" if details else "256 sources"
            why = f"step {how.step} has more than {what}"
            reader._reports.leave_out(why, details=int(details), sources=int(sources))


class _Failed(Copy):
    """A copy that could not begin."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def numbers(self) -> Any:
        raise self._error


def _listed(given: Any) -> Sequence[Any]:
    return given if isinstance(given, (list, tuple)) else [given]


def _sizes(tensors: Sequence[Any]) -> list[int]:
    """Returns the number of elements of each tensor."""
    return [int(np.prod(one.shape)) for one in tensors]


def _record(how: Plan, sums: Any, kind: int) -> bytes:
    """Returns the record of sums: of all tokens, then by source, then by detail.

    Each is the sum of losses, their weight, and the number of losses that are not finite.
    """
    (total, weight, nonfinite), rest = sums[:3], sums[3:].reshape(-1, 3)
    sources: list[Source] = []
    details = None
    if how.sources is not None:
        of, rest = rest[: len(how.sources)], rest[len(how.sources) :]
        sources = list(zip(how.sources.tolist(), *of[:, :2].T.tolist(), strict=True))
    if how.details:
        of = rest[: how.details]
        with np.errstate(divide="ignore", invalid="ignore"):
            means = np.where(of[:, 1] > 0, of[:, 0] / of[:, 1], 0.0)
        details = Details(means, of[:, 1])
    return record(
        how.step, float(total), float(weight), float(nonfinite), kind | how.kind, sources, details
    )
