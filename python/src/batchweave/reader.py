"""The reader: an iterator over batches that survives the daemon's restarts and Ctrl-C.

One rule keeps every batch exactly once: the reader has a position, the step after the last batch,
which moves in the last instruction before a batch is handed out. Whatever else happens (a lost
message, an interrupt, a new daemon), the session is dropped and another one starts at the position.

Steps that the attempt passes over (a quarantine) do not move the position: ranks learn of them at
different times, and states must be equal on all ranks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import mmap
import time
import warnings
import weakref
from collections.abc import Iterator, Mapping
from types import TracebackType

from batchweave import _wire
from batchweave._connect import Options, Unserved, hello, open_session, unserved
from batchweave._marks import Marks
from batchweave._session import Event, Lost, Session, Step, close_parked
from batchweave._wait import Wait
from batchweave.batch import Batch, Slice
from batchweave.errors import (
    BadHelloError,
    BadMessageError,
    BadStateError,
    BatchWeaveError,
    ClosedError,
    ForkedError,
    MarkOtherAttemptError,
    OtherStreamError,
)
from batchweave.state import KEY, State

_log = logging.getLogger("batchweave")

_PROGRESS_SECONDS = 1.0
# How long close() waits for the daemon to confirm checkpoints.
_MARKS_SECONDS = 5.0
# How long close() waits for the daemon to read what this rank received and released.
_LINGER_SECONDS = 1.0
# A correct daemon needs one resync after a lost message; one that needs more is at fault.
_RESYNCS_MAX = 3


class Reader:
    """Reads one data coordinate's batches; made by `batchweave.connect`.

    One thread may iterate. `checkpoint` and dropping arrays are allowed in any thread.
    """

    def __init__(self, options: Options, state: State | None, start: int, *, mode: str) -> None:
        self._options = options
        self._position = state.next_step if state else start
        self._session: Session | None = None
        self._failure: BatchWeaveError | None = None
        self._closed = self._ended = self._forked = False
        self._marks = Marks()
        self._old: list[tuple[str, weakref.ref[mmap.mmap]]] = []
        self._waited = 0.0
        self._progress_at = time.monotonic()
        self._mode, self._resyncs = mode, 0
        self._stream_id = state.stream_id if state else None
        self._welcome: _wire.Welcome | None = None

    # What people see.

    @property
    def info(self) -> _wire.Welcome:
        """The stream's shape and what this rank gets of it, as the daemon said it last."""
        if self._welcome is None:
            raise ClosedError("the reader was never connected; use batchweave.connect()")
        return self._welcome

    @property
    def next_step(self) -> int:
        """The step that comes next, as far as this rank knows: later ones may be passed over."""
        # The welcome's is above the position only between a skip and the batch that follows it.
        if self._welcome is None:
            return self._position
        return max(self._position, self._welcome.next_step)

    @property
    def ended(self) -> bool:
        """Whether the stream's end was reached."""
        return self._ended

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        """The next batch; StopIteration at the stream's end, a named error after the timeout."""
        batch = self._read()
        # Nothing may come between these two lines: see the header.
        self._position = batch.step + 1
        return batch

    def state_dict(self) -> dict[str, str]:
        """The position after the last batch handed out; `batch.state_dict()` is more exact."""
        return self._state(self._position).to_dict()

    def load_state_dict(self, state: Mapping[str, str]) -> None:
        """Goes on from a saved position; the next batch is the first one after it.

        A job's reader stays where it is: its attempt began there, on all ranks, by a record.
        """
        self._check()
        loaded = self._own(State.from_dict(state))
        if self._options.job is not None and loaded.next_step != self._position:
            raise BadStateError(
                f"the state stands at step {loaded.next_step}, this reader of job "
                f"{self._options.job} at {self._position}, and an attempt can't move: close the "
                "reader, then connect(state=...) with a new attempt (with "
                "torch.distributed.checkpoint: load into batchweave.torch.Checkpointing first)",
                step=loaded.next_step,
            )
        self._ended = False
        if loaded.next_step != self._position:
            self._position = loaded.next_step
            self._welcome = dataclasses.replace(self.info, next_step=loaded.next_step)
            if self._session is not None:
                self._session.torn = True

    def checkpoint(self, state: Mapping[str, str]) -> None:
        """Tells the job that a model checkpoint with this state is durable; call it after that.

        May be called in any thread; does not wait. `state` is what was captured when the model was
        saved. Call it on all ranks, whatever `checkpoints` says in the daemon's configuration. A
        mark that the daemon refuses is logged, and its error raised by the next `checkpoint` or by
        `close`; reading goes on.
        """
        self._check()
        saved = self._own(State.from_dict(state))
        if self._options.job is None:
            raise BadHelloError("checkpoint() needs a job: pass job= to connect()")
        text = state[KEY].encode()
        if len(text) > _wire.STATE_BYTES_MAX:
            raise BadStateError(f"the state has {len(text)} bytes, over {_wire.STATE_BYTES_MAX}")
        if saved.attempt != self.info.attempt:
            raise MarkOtherAttemptError(
                f"the state was captured in attempt {saved.attempt}, this is attempt "
                f"{self.info.attempt}; mark states of batches that this attempt trained: a "
                "restored one is a restart point already",
                step=saved.next_step,
            )
        self._marks.add(saved.next_step, text)
        if self._session is not None:
            self._session.post(_wire.checkpoint(saved.next_step, text))
        self._marks.raise_refusal()

    def close(self) -> None:
        """Ends the session. Arrays stay valid; the socket closes when the last one is gone.

        Waits up to 5 s for the daemon to confirm checkpoints, and raises if it refused one.
        """
        self._end()
        self._marks.raise_refusal()

    def _end(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._session is not None and not self._session.forked:
            with contextlib.suppress(BatchWeaveError):
                self._await_marks(self._session)
            if late := self._marks.unconfirmed():
                _log.warning("checkpoints at steps %s were not confirmed", late)
        session, self._session = self._session, None
        if session is not None and not session.forked:
            session.park(self.next_step, _LINGER_SECONDS)
            close_parked()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # An error on its way out is worth more than a refused mark, which is in the log.
        self._end()
        if error is None:
            self._marks.raise_refusal()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            session = self._session
            if session is not None and not session.forked:
                warnings.warn("a batchweave reader was not closed", ResourceWarning, stacklevel=2)
                session.park(self.next_step)

    # Reading.

    def _read(self) -> Batch:
        wait = Wait(self._options, self._position)
        self._resyncs = 0
        try:
            while True:
                self._check()
                if self._ended:
                    raise StopIteration
                session = self._ready(wait)
                found = session.receive()
                if isinstance(found, Step):
                    if found.step == self.next_step:
                        return self._batch(found)
                    session.torn = True
                elif isinstance(found, Event):
                    self._event(session, found, wait)
                elif found is None:
                    self._report(session, wait.pause(session))
        except BadMessageError as error:
            raise self._fail(error) from None
        finally:
            self._waited += wait.seconds()

    def _ready(self, wait: Wait) -> Session:
        session = self._session
        if session is not None:
            if session.interrupted:
                session.interrupted = False
                session.torn = True
                raise KeyboardInterrupt
            if not session.lost and not session.torn:
                session.next_step = self.next_step
                self._report(session, False)
                session.flush()
                return session
        if session is not None and session.torn:
            self._resyncs += 1
            if self._resyncs > _RESYNCS_MAX:
                raise BadMessageError(
                    f"the daemon at {self._options.socket} does not send step {self._position}, "
                    "where this rank stands, but another; report it with the daemon's log"
                )
        session = self.open(wait.deadline)
        # Told with the next report, apart from what is waited for in this session.
        self._waited, self._progress_at = wait.without_session(), -math.inf
        return session

    def open(self, deadline: float) -> Session:
        """Starts a session at the position, in the place of the one before."""
        first, before = self._welcome is None, self._session
        lost = before is None or before.lost
        opened: list[Session] = []
        try:
            session, welcome = open_session(
                self._options.socket, self._greeting(before), self._position, deadline, opened
            )
            self._session, self._welcome, self._mode = session, welcome, "resume"
        except BaseException as error:
            for half_open in opened:
                half_open.close()
            if isinstance(error, Unserved):
                at = None if first else self._position
                raise unserved(self._options, str(error), at) from None
            if isinstance(error, BatchWeaveError):
                raise self._fail(error) from None
            raise
        if not first:
            _log.info(
                "connected again at step %d (%s)", self._position, "lost" if lost else "resync"
            )
        if self._stream_id not in (None, welcome.stream_id):
            raise self._fail(self._other_stream(welcome.stream_id, self._stream_id))
        self._stream_id = welcome.stream_id
        self._advance(welcome)
        self._marks.send_again(session)
        return session

    def _greeting(self, before: Session | None) -> bytes:
        replaces, current = None, None
        if before is not None and self._welcome is not None:
            instance = self._welcome.instance
            self._old += [(instance, mapping) for mapping in before.mappings]
            before.mappings = []
            current = None if before.lost else instance
            replaces = {"instance": instance, "session": self._welcome.session}
            before.park(self.next_step)
        self._old = [old for old in self._old if old[1]() is not None]
        earlier = [mapping() for instance, mapping in self._old if instance != current]
        return hello(
            self._options,
            mode=self._mode,
            next_step=self._position,
            stream=self._stream_id,
            replaces=replaces,
            mapped_bytes=sum(len(mapping) for mapping in earlier if mapping is not None),
        )

    def _event(self, session: Session, event: Event, wait: Wait) -> None:
        if event.kind == _wire.WELCOME:
            self._welcome = event.value
            self._advance(event.value)
        elif event.kind == _wire.WAITING:
            wait.cause = event.value[1]
        elif event.kind == _wire.MARKED:
            self._marks.stored(event.value)
        elif event.kind == _wire.MARK_REFUSED:
            self._marks.refused(event.value)
        elif event.kind == _wire.ERROR:
            raise self._fail(event.value)
        elif event.value == self.next_step:
            self._ended = True
        else:
            session.torn = True

    def _advance(self, welcome: _wire.Welcome) -> None:
        if welcome.next_step < self._position:
            raise self._fail(
                BadMessageError(
                    f"the daemon starts at step {welcome.next_step}, this rank stands at "
                    f"{self._position}; report it with the daemon's log"
                )
            )
        if welcome.next_step > self._position:
            _log.info("steps %d to %d are quarantined", self._position, welcome.next_step - 1)

    def _batch(self, found: Step) -> Batch:
        slices = []
        for number, layout, root in found.frames:
            arrays = layout.views(root)
            if self._options.copy:
                arrays = {name: view.copy() for name, view in arrays.items()}
            slices.append(Slice(number, arrays))
        return Batch(found.step, slices, self._state(found.step + 1))

    def _report(self, session: Session, waiting: bool) -> None:
        now = time.monotonic()
        if waiting or now - self._progress_at >= _PROGRESS_SECONDS:
            self._progress_at = now
            waited = int(self._waited * 1e6)
            session.offer(_wire.progress(self.next_step, waited, waiting))
            close_parked()

    def _await_marks(self, session: Session) -> None:
        deadline = time.monotonic() + _MARKS_SECONDS
        while self._marks.unconfirmed() and not session.torn and time.monotonic() < deadline:
            found = session.receive()
            if isinstance(found, Lost):
                # A daemon that restarts just now hears of them all the same.
                session = self.open(deadline)
            elif isinstance(found, Event) and found.kind == _wire.MARKED:
                self._marks.stored(found.value)
            elif isinstance(found, Event) and found.kind == _wire.MARK_REFUSED:
                self._marks.refused(found.value)
            elif found is None:
                session.wait(0.05)
            del found

    # States and errors.

    def _state(self, next_step: int) -> State:
        info = self.info
        return State(
            info.stream_id, next_step, info.attempt, info.attempt_number, self._options.dp_size
        )

    def _own(self, state: State) -> State:
        if state.stream_id != self._stream_id:
            raise self._other_stream(str(self._stream_id), state.stream_id)
        return state

    def _other_stream(self, served: str, wanted: str | None) -> OtherStreamError:
        return OtherStreamError(
            f"the state is of stream {wanted}, the daemon at {self._options.socket} serves "
            f"{served}; start from a state of this stream, or pass start=STEP and no state"
        )

    def _check(self) -> None:
        if self._session is not None and self._session.forked:
            raise ForkedError(
                "this reader was inherited by fork and belongs to the parent process; "
                "connect in the child, or start it by 'spawn'"
            )
        if self._closed:
            raise ClosedError("the reader is closed; connect again to go on from a saved state")
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: BatchWeaveError) -> BatchWeaveError:
        """An error that stays: every later call raises it again."""
        self._failure = error
        session, self._session = self._session, None
        if session is not None:
            session.park(self.next_step)
        return error
