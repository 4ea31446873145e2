"""The reader: an iterator over batches that survives the daemon's restarts and Ctrl-C."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
import warnings
from collections.abc import Iterator, Mapping
from sys import _getframe
from types import TracebackType
from typing import Any, NoReturn

from batchweave import _wire
from batchweave._connect import Options
from batchweave._describe import Described, describe
from batchweave._elsewhere import reads_elsewhere
from batchweave._events import Event, Lost
from batchweave._info import Info
from batchweave._loaders import check_loader
from batchweave._reading import NO_STOP, Reading
from batchweave._session import Session, close_parked
from batchweave.batch import Batch
from batchweave.errors import (
    BadHelloError,
    BadStateError,
    BatchWeaveError,
    MarkOtherAttemptError,
)
from batchweave.state import KEY, State
from batchweave.tokenizer import Tokenizer

_log = logging.getLogger("batchweave")

# Longest wait of close() for the daemon to confirm checkpoints.
_MARKS_SECONDS = 5.0
# Longest wait of close() for the daemon to read this rank's last messages.
_LINGER_SECONDS = 1.0
# Longest wait for the daemon to describe its stream.
_DESCRIBE_SECONDS = 60.0


class Reader(Reading):
    """Reads one data coordinate's batches; made by `batchweave.connect`.

    One thread may iterate. `checkpoint` and dropping arrays are allowed in any thread.
    """

    @property
    def info(self) -> Info:
        """The stream's shape, this rank's part of it, and the stream's tokenizer."""
        return Info(**vars(self._shape), _describe=self._describe)

    @property
    def tokenizer(self) -> Tokenizer:
        """The stream's tokenizer: `decode(ids)`, `name`, `vocabulary`.

        Fetched from the daemon at the first use, so never on the way of a batch.
        """
        if self._tokenizer is None:
            self._tokenizer = Tokenizer(self._describe())
        return self._tokenizer

    def _describe(self) -> Described:
        if self._described is None:
            found = describe(self._options.socket, min(self._options.timeout, _DESCRIBE_SECONDS))
            if found.stream_id != self._shape.stream_id:
                raise self._other_stream(found.stream_id, self._shape.stream_id)
            self._described = found
        return self._described

    @property
    def _shape(self) -> _wire.Welcome:
        """The daemon's last welcome."""
        if self._welcome is None:
            # Unpickled, and not connected yet.
            self._check()
            self.open(time.monotonic() + self._options.timeout)
        assert self._welcome is not None
        return self._welcome

    @property
    def first_step(self) -> int:
        """The first step of a whole pass: `start`, or the step of the last `seek`."""
        return self._start

    @property
    def ended(self) -> bool:
        """Whether the stream's end was reached."""
        return self._ended

    def __iter__(self) -> Iterator[Batch]:
        check_loader()
        return self

    def __next__(self) -> Batch:
        """Returns the next batch; StopIteration at the stream's end, an error after the timeout."""
        self._taker.takes(_getframe(1))
        batch, found = self._quickly()
        if batch is None:
            batch = self._peeked() or self._read(found)
        # Nothing may stand between these two lines: see the header of _reading.
        self._at.step = batch.step + 1
        return batch

    def __repr__(self) -> str:
        options, info = self._options, self._welcome
        whose = "without a job" if options.job is None else f"of job {options.job!r}"
        state = ", closed" if self._closed else ", ended" if self._ended else ""
        text = f"rank {options.dp_rank} of {options.dp_size}, at step {self._position}{state}"
        if info is not None:
            text += f", {info.slice_count} of {info.slices} slices of {info.rows_per_slice} rows"
            text += f" of {info.seq_len} tokens"
        return f"<Reader {whose}, {text}, {options.socket}>"

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        """Returns the number of steps of a whole pass, if the stream is sealed or there is a limit.

        It is the same before, during and after the pass, and on a restart from a state: from
        `start` or the last `seek` to the stream's end, or `limit` steps where that is less.
        Skipped steps (a quarantine) count, too.
        """
        self._taker.measures(_getframe(1))
        end = self._shape.end_step
        if self._stop != NO_STOP:
            stop = self._stop if end is None else min(self._stop, end)
            return max(0, stop - self._limit_from)
        if end is None:
            # `list(reader)` calls this and accepts a TypeError as "unknown".
            raise TypeError(
                "the stream has no end yet, so its length is unknown: seal it with "
                "`batchweave seal --reason TEXT`, or pass limit= to connect()"
            )
        return max(0, end - self._start)

    def __getitem__(self, _: object) -> NoReturn:
        raise TypeError(
            "a reader gives its batches in order and has none by number: iterate it; for a "
            "DataLoader make a batchweave.torch.Dataset and pass batch_size=None; to look at a "
            "step, use batchweave.open(url)[step]"
        )

    def updates(self, steps: int) -> Iterator[list[Batch]]:
        """Yields lists of `steps` batches, each for one update of the model.

        A list is emptied when the next one is requested, which frees its memory. Steps that do not
        fill an update at the stream's end are left out, on all ranks alike.
        """
        if not 1 <= steps < self._options.credits:
            raise BadHelloError(
                f"updates({steps}): their steps are held together, so connect with more credits "
                f"than that (these are {self._options.credits})"
            )
        while True:
            group = [batch for _, batch in zip(range(steps), self, strict=False)]
            if len(group) < steps:
                return
            yield group
            group.clear()

    def peek(self) -> Batch:
        """Returns the next batch without moving on; StopIteration at the end."""
        self._taker.takes(_getframe(1))
        batch = self._peeked() or self._read()
        self._ahead = batch
        return batch

    def _peeked(self) -> Batch | None:
        ahead, self._ahead = self._ahead, None
        # An interrupt between the lines of `__next__` leaves one that was returned already.
        return ahead if ahead is not None and ahead.step >= self._position else None

    def seek(self, step: int) -> None:
        """Moves to a step in constant time; only for a reader without a job.

        A new pass begins there: a limit counts from this step.
        """
        self._check()
        if not 0 <= step < 1 << 53:
            raise BadHelloError(f"seek({step}): a step is a number from 0 on")
        if self._options.job is not None and step != self._position:
            raise BadStateError(
                f"seek({step}): this reader of job {self._options.job} is at step "
                f"{self._position}, and an attempt cannot move: close it, then connect(start=...) "
                "with a new attempt; a reader without job= moves freely",
                step=step,
            )
        self._move(step)
        if self._options.job is None:
            self._start = self._limit_from = step
            self._stop = self._stop_from(step)

    def _move(self, step: int) -> None:
        self._ended = False
        if step == self._position:
            return
        self._limit_from, self._stop = step, self._stop_from(step)
        self._at.step, self._ahead = step, None
        self._welcome = dataclasses.replace(self._shape, next_step=step)
        if self._session is not None:
            self._session.torn = True

    def state_dict(self) -> dict[str, str]:
        """Returns the position after the last returned batch; prefer `batch.state_dict()`."""
        _ = self._shape
        return dataclasses.replace(self._origin, next_step=self._position).to_dict()

    def load_state_dict(self, state: Mapping[str, str]) -> None:
        """Moves to a saved position; the next batch is the first one after it.

        A job's reader cannot move: its attempt began at its position, on all ranks, by a record.
        """
        self._check()
        loaded = self._own(State.from_dict(state))
        if self._options.job is not None and loaded.next_step != self._position:
            raise BadStateError(
                f"the state is at step {loaded.next_step}, this reader of job "
                f"{self._options.job} at {self._position}, and an attempt cannot move: close the "
                "reader, then connect(state=...) with a new attempt (with "
                "torch.distributed.checkpoint: load into batchweave.torch.Checkpointing first)",
                step=loaded.next_step,
            )
        self._move(loaded.next_step)

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
        self._marks.add(saved.next_step, text)
        session = self._session or self._last
        if session is not None:
            session.post(_wire.checkpoint(saved.next_step, text))
        self._marks.raise_refusal()

    def close(self) -> None:
        """Ends the session. Arrays stay valid; the socket closes when the last one is gone.

        Waits up to 5 s for the daemon to confirm checkpoints, and raises if it refused one.
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
        self._last = None

    def _end_last(self) -> None:
        session = self._last
        if session is None or session.forked:
            return
        if self._marks.unconfirmed() and reads_elsewhere():
            # That call may have received the confirmation: it is sent again in a new session.
            session.torn = True
        with contextlib.suppress(BatchWeaveError):
            self._await_marks(session)
        if late := self._marks.unconfirmed():
            _log.warning("checkpoints at steps %s were not confirmed", late)
        (self._last or session).park(self.next_step, _LINGER_SECONDS)
        close_parked()

    def __enter__(self) -> Reader:
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
        while self._marks.unconfirmed() and time.monotonic() < deadline:
            left = session.torn or session.parked
            found = Lost() if left else session.receive()
            if isinstance(found, Lost):
                # A daemon that is restarting receives them, too, as does the one of a torn session.
                session = self.open(deadline, ending=True)
            elif isinstance(found, Event) and found.kind == _wire.MARKED:
                self._marks.stored(found.value)
            elif isinstance(found, Event) and found.kind == _wire.MARK_REFUSED:
                self._marks.refused(found.value)
            elif found is None:
                session.wait(0.05)
            session.event = None
            del found

    def _own(self, state: State) -> State:
        if state.stream_id != self._stream_id:
            raise self._other_stream(str(self._stream_id), state.stream_id)
        return state

    # Another process.

    def __reduce__(self) -> Any:
        state = None
        if self._welcome is not None:
            state = dataclasses.replace(self._origin, next_step=self._position)
        counted = (self._start, self._limit_from, self._stop)
        return _elsewhere, (self._options, state, self._position, counted, self._closed)


def _elsewhere(
    options: Options,
    state: State | None,
    position: int,
    counted: tuple[int, int, int],
    closed: bool,
) -> Reader:
    """Returns an unpickled reader: it connects at its first use, at the same position."""
    reader = Reader(options, state, position, mode="resume")
    reader._start, reader._limit_from, reader._stop = counted
    reader._closed = closed
    return reader
