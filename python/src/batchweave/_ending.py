"""The outer part of a reader that ends: checkpoints, and the session's end."""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections.abc import Mapping
from types import TracebackType
from typing import Any, TypeVar

from batchweave import _wire
from batchweave._elsewhere import reads_elsewhere
from batchweave._events import Event, Lost
from batchweave._loss_arguments import Given, record_of
from batchweave._reading import Reading
from batchweave._reports import is_reason
from batchweave._session import Session, close_parked
from batchweave._stopping import ENDED
from batchweave._values import DroppedLosses
from batchweave.batch import Batch
from batchweave.errors import (
    BadHelloError,
    BadReportError,
    BadStateError,
    BatchWeaveError,
    MarkOtherAttemptError,
)
from batchweave.state import KEY, State

_log = logging.getLogger("batchweave")

# Longest wait of close() for the daemon to confirm checkpoints.
_MARKS_SECONDS = 5.0
# Longest wait of checkpoint() and close() for a device to compute losses.
_LOSSES_SECONDS = 5.0
# Longest wait of close() for the daemon to read this rank's last messages.
_LINGER_SECONDS = 1.0

Own = TypeVar("Own", bound="Ending")


class Ending(Reading):
    """The part of `Reader` that marks checkpoints and closes."""

    @property
    def _shape(self) -> _wire.Welcome:
        """The daemon's last welcome."""
        if self._welcome is None:
            # Unpickled, and not connected yet.
            self._check()
            self.open(time.monotonic() + self._options.timeout)
        assert self._welcome is not None
        return self._welcome

    def checkpoint(self, state: Mapping[str, str]) -> None:
        """Marks a model checkpoint with this state as durable; call it once the checkpoint is.

        Any thread may call it, and it does not wait. `state` is the one captured when the model was
        saved. Call it on all ranks, whatever the daemon's `checkpoints` setting. If the daemon
        refuses a mark, that is logged, and the next `checkpoint` or `close` raises the error;
        reading continues. A signal handler may call it at any time, and `close` after it.
        """
        if not self._ending:
            self._check()
        saved = self._own(State.from_dict(state))
        if self._options.job is None:
            raise BadHelloError("checkpoint() needs a job: pass job= to connect()")
        text = state[KEY].encode()
        if len(text) > _wire.STATE_BYTES_MAX:
            raise BadStateError(f"the state has {len(text)} bytes, over {_wire.STATE_BYTES_MAX}")
        if saved.attempt != self._shape.attempt:
            raise MarkOtherAttemptError(
                f"the state was captured in attempt {saved.attempt}, this is attempt "
                f"{self._shape.attempt}; mark states of batches that this attempt trained: a "
                "restored one is a restart point already",
                step=saved.next_step,
            )
        self._reports.finish(_LOSSES_SECONDS)
        self._marks.add(saved.next_step, text)
        message = _wire.checkpoint(saved.next_step, text)
        self._reports.mark(self._session or self._last, message)
        self._marks.raise_refusal()

    def report(
        self,
        batch: Batch | int,
        *,
        left_out: str | None = None,
        loss: Any = None,
        tokens: float | None = None,
        sources: Mapping[int, tuple[float, float]] | None = None,
        rows: Any = None,
        documents: Any = None,
        part: bool = False,
    ) -> None:
        """Reports that the model was trained on a batch (or step), or left it out on purpose.

        `left_out`: the reason, one line of at most 64 bytes, such as "nan". Any thread may call it,
        in any order of steps, and it does not wait: an update over several steps reports all. The
        first report of a step counts. `checkpoint` sends reports first: the daemon stores them
        before the mark, and `batchweave verify --job NAME --trained` proves them. Without a job
        nothing is kept.

        `loss`: the mean over `tokens` tokens, by default the labels of this rank that are learned.
        `sources`: {number: (sum of losses, weight)} of at most 256 sources. `rows` or `documents`:
        (means, weights), an array each, in the order of this rank's rows, or of the documents in
        them. Without `loss` the sum of these is that of the step. NaN and infinite losses are
        counted, and left out of the sums. `part`: this rank has a part of the tokens of its
        coordinate; all its ranks report, and are added up (set by `split_rows`).
        """
        step = self._reported_step(batch)
        values: bytes | None = None
        given = Given(loss, tokens, sources, rows, documents, part)
        if given.part or given.any():
            if left_out is not None or not given.any():
                what = "left out with losses" if given.any() else "reported with part= alone"
                raise BadReportError(
                    f"step {step} is {what}; give loss= with trained steps only", step=step
                )
            parts = self._options.split_rows
            values = record_of(batch, given, (self._options.part, parts))
        elif left_out is not None and not is_reason(left_out):
            raise BadReportError(
                f"step {step} was left out for the reason {left_out!r}: give one line of 1 to "
                f"{_wire.REASON_BYTES_MAX} bytes",
                step=step,
            )
        if self._options.job is not None:
            self._reports.add(self._session or self._last, step, left_out, values)

    def _report_values(self, step: int, values: bytes | None, why: str) -> None:
        """Reports a trained step with its losses, or counts it where there are none, and why."""
        if values is None:
            self._reports.leave_out(f"step {step}: {why}", values=1)
        self._reports.add(self._session or self._last, step, None, values)

    @property
    def dropped_losses(self) -> DroppedLosses:
        """The number of steps whose reports lack losses: `details`, `sources`, `values`.

        Losses that the daemon has not confirmed take at most 1 MiB; above it the oldest are
        dropped, those of rows and documents first, then those of sources. Steps with more than
        7,168 rows or documents, or 256 sources, count as well.
        """
        return self._reports.dropped

    def _reported_step(self, batch: Batch | int) -> int:
        """Returns the step of a report, which this reader has returned."""
        if not self._ending:
            self._check()
        step = batch if isinstance(batch, int) else batch.step
        if not 0 <= step < self._position:
            raise BadReportError(
                f"step {step} was not read yet, the next one is {self._position}: report batches "
                "that this reader returned",
                step=step,
            )
        if not isinstance(batch, int) and batch.attempt != self._origin.attempt:
            raise BadReportError(
                f"step {step} was read in attempt {batch.attempt}, this is attempt "
                f"{self._origin.attempt}: report batches that this reader returned",
                step=step,
            )
        return step

    def close(self) -> None:
        """Ends the session. Arrays stay valid; the socket closes when the last one is gone.

        Sends all reports, waits up to 5 s for the daemon to confirm checkpoints, and raises if it
        refused one.
        """
        self._end()
        self._marks.raise_refusal()

    def _end(self) -> None:
        if self._closed and not self._ending:
            return
        # Until the end: a signal handler within this call, and a call after Ctrl-C, do all of it.
        self._closed = self._ending = True
        if self._session is not None:
            self._last = self._session
            self._session = None
        waited: set[int] = set()
        while self._ending:
            waited.update(self._marks.unconfirmed())
            self._end_last()
            self._ending = False
            # Added meanwhile.
            if not waited.issuperset(self._marks.unconfirmed()):
                self._ending = True
        self._last, self._stopping = None, ENDED

    def _end_last(self) -> None:
        session = self._last
        if session is None or session.forked:
            return
        if self._marks.unconfirmed() and reads_elsewhere():
            # That call may have received the confirmation: it is sent again in a new session.
            session.torn = True
        self._reports.finish(_LOSSES_SECONDS)
        with contextlib.suppress(BatchWeaveError):
            self._await_marks(session)
        if late := self._marks.unconfirmed():
            _log.warning("checkpoints at steps %s were not confirmed", late)
        (self._last or session).park(self.next_step, _LINGER_SECONDS)
        close_parked()

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A propagating error matters more than a refused mark, which is in the log.
        self._end()
        if error is None:
            self._marks.raise_refusal()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            session = self._session
            if session is not None and not session.forked:
                warnings.warn("a batchweave reader was not closed", ResourceWarning, stacklevel=2)
                session.park(self.next_step)

    def _await_marks(self, session: Session) -> None:
        deadline = time.monotonic() + _MARKS_SECONDS
        while self._unsent() and time.monotonic() < deadline:
            left = session.torn or session.parked
            if not left:
                self._reports.send(session)
                if not self._unsent():
                    break
            found = Lost() if left else session.receive()
            if isinstance(found, Lost):
                # A daemon that is restarting receives them, too, as does the one of a torn session.
                session = self.open(deadline, ending=True)
            elif isinstance(found, Event) and found.kind == _wire.MARKED:
                self._marks.stored(found.value)
            elif isinstance(found, Event) and found.kind == _wire.MARK_REFUSED:
                self._marks.refused(found.value)
            elif isinstance(found, Event) and found.kind == _wire.REPORTED:
                self._reports.stored(found.value)
            elif found is None:
                # The answer whether it takes reports comes on another socket.
                session.wait(0.005 if self._reports.waiting() else 0.05)
            session.event = None
            del found

    def _unsent(self) -> bool:
        """Returns whether reports wait to be sent, or marks to be confirmed."""
        return self._reports.waiting() or bool(self._marks.unconfirmed())

    def _own(self, state: State) -> State:
        if state.stream_id != self._stream_id:
            raise self._other_stream(str(self._stream_id), state.stream_id)
        return state
