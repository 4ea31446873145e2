"""`batchweave.open`: a stream read without a daemon of one's own, by step.

    with batchweave.open("file:///data/stream") as stream:
        stream[5].samples()
        for batch in stream[10:20:2]: ...

A consumer daemon runs as a child of this process, without a job: it neither retains data nor holds
producers back. Verbs of `batchweave` say what the stream has, and decode it.
"""

from __future__ import annotations

import operator
import os
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, overload

from batchweave import _html_stream, _losses, _programs, _wire
from batchweave._arguments import check_seconds, check_whole
from batchweave._connect import Options
from batchweave._documents import Decoder, Provenance
from batchweave._names import names_checked
from batchweave._reading import NO_STOP
from batchweave._sidecar import Sidecar
from batchweave._steps import chosen, one
from batchweave._stopping import StopRequest
from batchweave.batch import Batch
from batchweave.errors import (
    BadHelloError,
    BatchWeaveError,
    ClosedError,
    NoDaemonError,
    StepQuarantinedError,
    Stopped,
    StreamNotOpenedError,
)
from batchweave.reader import Reader
from batchweave.tokenizer import Tokenizer

# One try to connect, between two looks at whether the daemon still runs.
_TRY_SECONDS = 0.5
_CREDITS = 4


@names_checked
def open(
    url: str, *, memory: str | None = None, copy: bool = True, timeout: float = 60.0
) -> Stream:
    """Opens the stream at `url` for reading by step, without a daemon or a job of one's own.

    `url`: "file:///folder" or "s3://bucket/prefix"; S3 credentials, region and endpoint come from
    the AWS_* variables and profiles. `memory`: the most shared memory, at least two global batches,
    for example "256MiB"; default: a quarter of the machine's, or less under a memory limit, as far
    as it is needed. `copy`: whether batches are private, writable copies, which may be kept; with
    False they are views of shared memory. `timeout`: seconds after which this call, or reading one
    batch, fails with the cause.

    The programs `batchweave` and `batchweave-consumer` must be installed: the wheel has them.
    """
    if not isinstance(url, str) or not url:
        raise BadHelloError(
            f'url={url!r}: give the root of a stream as text, "file:///folder" or "s3://bucket/prefix"'
        )
    check_seconds(timeout=timeout)
    return Stream(url, memory, copy, timeout)


class StreamBatch(Batch):
    """A global batch of an opened stream, which can name and decode its documents."""

    __slots__ = ("_decoder",)

    def __init__(self, batch: Batch, decoder: Decoder) -> None:
        super().__init__(batch.step, batch.slices, batch._origin)
        self._decoder = decoder
        self.stage = batch.stage


class Stream:
    """A stream by step: `stream[5]` is step 5, `stream[-1]` the newest; made by `batchweave.open`.

    Steps keep their numbers when older ones are reclaimed: `steps` is the range that can be read
    now, and `len(stream)` its length. Any thread may read, and so may a forked process.
    """

    def __init__(self, url: str, memory: str | None, copy: bool, timeout: float) -> None:
        self.url = url
        """The root of the stream."""
        self._copy, self._timeout = copy, timeout
        self._provenance = Provenance(url, timeout)
        self._tokenizer: Tokenizer | None = None
        self._lock = threading.RLock()
        self._stopping = StopRequest()
        self._reader: Reader | None = None
        self._closed, self._owner = False, os.getpid()
        self._sidecar = Sidecar(url, memory)
        try:
            self._status = self._asked()
            self._reader_at(self.steps.start)
        except BaseException:
            self.close()
            raise

    # The stream.

    @property
    def steps(self) -> range:
        """The steps that can be read: from the oldest retained one to the newest.

        As of `open` or the last `refresh`; a later step, and a new iteration, refresh it.
        """
        return range(self._status["watermark"], self._status["head"]["steps"])

    @property
    def sealed(self) -> bool:
        """Whether no further step will follow."""
        return self._status["end"] is not None and self._status["end"] <= self.steps.stop

    @property
    def info(self) -> _wire.Welcome:
        """The stream's shape: `slices`, `rows_per_slice`, `seq_len`, `stream_id`, `end_step`."""
        with self._lock:
            return self._reader_at(self.steps.start).info

    @property
    def tokenizer(self) -> Tokenizer:
        """The stream's tokenizer: `decode(ids)`, `name`, `vocabulary`; see `Reader.tokenizer`."""
        if self._tokenizer is None:
            with self._lock:
                self._tokenizer = self._reader_at(self.steps.start).tokenizer
        return self._tokenizer

    def losses(self, job: str, steps: range | int | None = None, by: str = "step") -> Any:
        """Returns the losses that ranks of a job reported, as a `pyarrow.Table`.

        `steps`: a step, or a range such as `stream.steps[-1000:]`; default: all whose losses are
        stored. `by`: a row per "step", per "source" over all steps, or per "row" or "document" of
        each step. The columns are those of `batchweave losses --job NAME --parquet FILE`.
        """
        self._check()
        return _losses.table(self.url, job, steps, by, self._timeout)

    def refresh(self) -> Stream:
        """Reads the stream's state again: new steps, reclaimed ones."""
        self._check()
        self._status = self._asked()
        return self

    def __len__(self) -> int:
        """Returns the number of steps that can be read; quarantined ones count."""
        return len(self.steps)

    def __bool__(self) -> bool:
        return True

    # Batches.

    @overload
    def __getitem__(self, step: int) -> Batch: ...
    @overload
    def __getitem__(self, step: slice) -> Steps: ...

    def __getitem__(self, step: int | slice) -> Batch | Steps:
        """Returns the batch of a step, or an iterable of batches for a slice of steps.

        Negative numbers count from the newest step on. Slices end at the newest step, as Python's
        do; a step that is reclaimed is an error, and one that does not exist is an IndexError.
        """
        self._check()
        if isinstance(step, slice):
            return Steps(self, chosen(step, self.steps))
        number = operator.index(step)
        if number >= self.steps.stop and not self.sealed:
            self.refresh()
        number = one(number, self.steps)
        batch = self._take(number, self.steps.stop)
        if batch is None or batch.step != number:
            raise StepQuarantinedError(
                f"step {number} is quarantined, so readers pass over it; `batchweave quarantine` "
                f"lists the reasons, and `batchweave show {number}` its contents",
                step=number,
            )
        return batch

    def __iter__(self) -> Iterator[Batch]:
        """Yields all batches, from the oldest retained one to the one that is the newest now."""
        self._check()
        if not self.sealed:
            self.refresh()
        return iter(Steps(self, self.steps))

    def follow(self, start: int | None = None) -> Iterator[Batch]:
        """Yields batches from a step on as they are committed, until the stream is sealed.

        Default: from the next one on. Where none comes within the timeout of `open`, this is a
        `StepTimeoutError` with the cause, after which it may be called again.
        """
        check_whole(start=start)
        step = self.refresh().steps.stop if start is None else start
        if step < 0:
            raise BadHelloError(f"follow({start}): a step is a number from 0 on")
        while (batch := self._take(step, NO_STOP)) is not None:
            step = batch.step + 1
            yield batch

    def _take(self, step: int, stop: int) -> Batch | None:
        """Returns the batch of the first step from `step` on that is not quarantined."""
        with self._lock:
            reader = self._reader_at(step)
            try:
                reader.seek(step)
                # The end that this caller wants, which another one's may not be.
                reader._stop = stop
                batch = next(reader)
            except StopIteration:
                return None
            except Stopped:
                raise
            except BatchWeaveError as error:
                self._give_up(reader, error)
                raise
        return StreamBatch(batch, Decoder(self.url, batch.step, self._timeout, self._provenance))

    def _reader_at(self, step: int) -> Reader:
        """Returns the reader; another one after an error, since a failed one stays failed."""
        self._check()
        if self._owner != os.getpid():
            # A forked process connects by itself, to its parent's daemon.
            self._owner, self._reader = os.getpid(), None
        if self._reader is None:
            self._reader = self._connected(step)
        return self._reader

    def _connected(self, step: int) -> Reader:
        deadline = time.monotonic() + self._timeout
        while True:
            self._sidecar.check()
            reader = Reader(self._options(), None, step, mode="join", stopping=self._stopping)
            try:
                reader.open(min(deadline, time.monotonic() + _TRY_SECONDS))
            except NoDaemonError as error:
                # It may have ended since, and then its own words are the cause.
                if time.monotonic() < deadline:
                    continue
                raise StreamNotOpenedError(
                    f"the consumer of {self.url} does not serve within {self._timeout:g} s: "
                    f"{self._sidecar.last_words() or error}"
                ) from None
            return reader

    def _options(self) -> Options:
        return Options(
            socket=self._sidecar.socket,
            job=None,
            dp_rank=0,
            dp_size=1,
            global_rank=0,
            attempt=None,
            parent=None,
            credits=_CREDITS,
            copy=self._copy,
            timeout=self._timeout,
            slices=None,
            seq_len=None,
            rows_per_slice=None,
        )

    def _give_up(self, reader: Reader, error: BatchWeaveError) -> None:
        self._reader = None
        reader.close()
        if self._sidecar.ended:
            raise StreamNotOpenedError(
                f"the consumer of {self.url} has ended: {self._sidecar.last_words()}; open the "
                "stream again"
            ) from error

    def _asked(self) -> dict[str, Any]:
        return _programs.ask(self.url, ["status"], self._timeout)

    # The end.

    def stop(self) -> None:
        """Ends the wait for a step with `Stopped`; any thread and any signal handler may call it.

        Where none waits, the next one raises it. The stream can be read on.
        """
        self._stopping.ask()

    def close(self) -> None:
        """Ends the daemon. Arrays stay valid."""
        with self._lock:
            self._closed = True
            reader, self._reader = self._reader, None
            if reader is not None:
                reader.close()
            self._sidecar.stop()

    def __del__(self) -> None:
        # A notebook's `batchweave.open(url)[5]` closes nothing: its daemon ends with the object.
        reader: Reader | None = getattr(self, "_reader", None)
        if reader is not None:
            reader.leave()

    def _check(self) -> None:
        if self._closed:
            raise ClosedError(f"the stream is closed: batchweave.open({self.url!r}) again")

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        steps, closed = self.steps, ", closed" if self._closed else ""
        sealed = ", sealed" if self.sealed else ""
        return f"<Stream {self.url}, {_steps_text(steps)}{sealed}{closed}>"

    def _repr_html_(self) -> str:
        return _html_stream.stream(self.url, self._status)

    def __reduce__(self) -> Any:
        raise TypeError(
            "a stream belongs to this process and cannot be pickled: send its url, and call "
            "batchweave.open there"
        )


class Steps:
    """Batches of some steps of a stream, in order; they are read while one iterates."""

    def __init__(self, stream: Stream, steps: range) -> None:
        self.steps = steps
        """The steps' numbers."""
        self._stream = stream

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, index: int) -> Batch:
        return self._stream[self.steps[index]]

    def __iter__(self) -> Iterator[Batch]:
        """Yields the batches; quarantined steps are left out."""
        if not self.steps:
            return
        stop, passed = max(self.steps) + 1, -1
        for step in self.steps:
            # A reader passes over whole ranges of quarantined steps.
            if self.steps.step > 0 and step < passed:
                continue
            batch = self._stream._take(step, stop)
            passed = stop if batch is None else batch.step
            if batch is not None and batch.step == step:
                yield batch

    def __repr__(self) -> str:
        every = f", every {self.steps.step}" if self.steps.step != 1 else ""
        return f"<{_steps_text(self.steps)}{every} of {self._stream.url}>"


def _steps_text(steps: range) -> str:
    if not steps:
        return "no steps"
    return f"{len(steps)} steps, {steps[0]} to {steps[-1]}"
