"""The reader: an iterator over batches that survives the daemon's restarts and Ctrl-C."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from sys import _getframe
from threading import get_ident
from typing import Any, NoReturn

from batchweave._connect import Options
from batchweave._describe import Described, describe
from batchweave._ending import Ending
from batchweave._info import Info
from batchweave._loaders import check_loader
from batchweave._reading import NO_STOP
from batchweave._stages import Stage
from batchweave._stopping import StopRequest
from batchweave._turns import Turns
from batchweave.batch import Batch
from batchweave.errors import (
    BadHelloError,
    BadStateError,
)
from batchweave.state import State
from batchweave.tokenizer import Tokenizer

# Longest wait for the daemon to describe its stream.
_DESCRIBE_SECONDS = 60.0


class Reader(Ending):
    """Reads one data coordinate's batches; made by `batchweave.connect`.

    One thread at a time may iterate. `checkpoint`, `stop` and dropping arrays are allowed in any
    thread.
    """

    def __init__(
        self,
        options: Options,
        state: State | None,
        start: int,
        *,
        mode: str,
        stopping: StopRequest | None = None,
    ) -> None:
        super().__init__(options, state, start, mode=mode, stopping=stopping)
        self._turns = Turns(self, _READING)

    @property
    def info(self) -> Info:
        """The stream's shape, this rank's part of it, and the stream's tokenizer."""
        return Info(**vars(self._shape), _describe=self._describe, _list_stages=self._list_stages)

    def _list_stages(self) -> tuple[Stage, ...]:
        """Returns the stages of the log as the daemon knows them now."""
        return describe(self._options.socket, min(self._options.timeout, _DESCRIBE_SECONDS)).stages

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
        if self._turns.thread != get_ident():
            self._turns.change()
        batch, found = self._quickly()
        if batch is None:
            batch = self._peeked() or self._read(found)
        if batch.stage is not self._stages.stage:
            self._enter_stage(batch)
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
            group: list[Batch] = []
            try:
                while len(group) < steps:
                    batch = next(self, None)
                    if batch is None:
                        return
                    group.append(batch)
                    del batch
            except BaseException:
                self._put_back(group)
                raise
            yield group
            group.clear()

    def _put_back(self, group: list[Batch]) -> None:
        """Makes batches that were read and not returned the next ones."""
        if group:
            self._ahead = [*group, *self._ahead]
            self._at.step = group[0].step

    def peek(self) -> Batch:
        """Returns the next batch without moving on; StopIteration at the end."""
        self._taker.takes(_getframe(1))
        self._turns.change()
        batch = self._peeked() or self._read()
        self._ahead.insert(0, batch)
        return batch

    def stop(self) -> None:
        """Ends the wait of `next()` with `Stopped`; any thread and any signal handler may call it.

        Where no call waits, the next one raises it. No step is lost: the call after that reads the
        step that was waited for.
        """
        self._stopping.ask()

    def _peeked(self) -> Batch | None:
        if self._stopping.asked:
            return None
        while self._ahead:
            batch = self._ahead.pop(0)
            # An interrupt between the lines of `__next__` leaves one that was returned already.
            if batch.step >= self._position:
                return batch
        return None

    def seek(self, step: int) -> None:
        """Moves to a step in constant time; only for a reader without a job.

        A new pass begins there: a limit counts from this step.
        """
        self._check()
        self._turns.change()
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
        self._at.step, self._ahead = step, []
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
        self._turns.change()
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

    # Another process.

    def __reduce__(self) -> Any:
        state = None
        if self._welcome is not None:
            state = dataclasses.replace(self._origin, next_step=self._position)
        counted = (self._start, self._limit_from, self._stop)
        return _elsewhere, (self._options, state, self._position, counted, self._closed)


_READING = frozenset(
    call.__code__ for call in (Reader.__next__, Reader.peek, Reader.seek, Reader.load_state_dict)
)
"""Calls that one thread at a time may be in."""


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
