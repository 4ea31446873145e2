"""The inner part of a reader: sessions with the daemon, one after another.

One rule delivers every batch exactly once: the reader has a position, the step after the last
batch, which moves in the last instruction before a batch is returned. In all other cases (a lost
message, an interrupt, a new daemon), the session is dropped and another one starts at the position.

Steps that the attempt skips (a quarantine) do not move the position: ranks learn of them at
different times, and states must be equal on all ranks.
"""

from __future__ import annotations

import logging
import math
import time

from batchweave import _wire
from batchweave._connect import Options, Unserved, guards, hello, open_session, unserved
from batchweave._describe import Described
from batchweave._earlier import Earlier
from batchweave._events import Event, Lost
from batchweave._exit import ends_with_the_interpreter
from batchweave._holds import Taker
from batchweave._late import Late
from batchweave._marks import Marks
from batchweave._reports import Reports
from batchweave._sending import Position
from batchweave._session import Session, close_parked
from batchweave._stages import Entering
from batchweave._stopping import StopRequest, of_new_reader
from batchweave._wait import Wait
from batchweave.batch import Batch
from batchweave.errors import (
    BadMeshError,
    BadMessageError,
    BatchWeaveError,
    ClosedError,
    ForkedError,
    OtherStreamError,
    Stopped,
)
from batchweave.state import State
from batchweave.tokenizer import Tokenizer

_log = logging.getLogger("batchweave")

_PROGRESS_SECONDS = 1.0
# A correct daemon needs one resync after a lost message; one that needs more has a bug.
_RESYNCS_MAX = 3
# Above all steps, which are below 2^53.
NO_STOP = 1 << 60


class Reading:
    """The private part of `Reader`. One thread may read."""

    def __init__(
        self,
        options: Options,
        state: State | None,
        start: int,
        *,
        mode: str,
        stopping: StopRequest | None = None,
    ) -> None:
        self._options = options
        self._at = Position(state.next_step if state else start)
        # Where the stream's length and the limit are counted from; a state moves only the latter.
        self._start = start
        self._limit_from = self._position
        self._stop = self._stop_from(self._position)
        self._session: Session | None = None
        # Half-open sessions of the last `open`, and the session that `close` ends.
        self._opening: list[Session] = []
        self._last: Session | None = None
        self._ending = False
        self._interrupts: list[BaseException] = []
        self._failure: BatchWeaveError | None = None
        self._closed = self._ended = False
        self._marks, self._reports = Marks(), Reports(options.socket)
        self._earlier = Earlier()
        self._waited = 0.0
        self._progress_at = time.monotonic()
        self._mode, self._resyncs = mode, 0
        self._stream_id = state.stream_id if state else None
        self._welcome: _wire.Welcome | None = None
        self._origin = State("", 0)
        # Batches that were read and not returned, of ascending steps.
        self._ahead: list[Batch] = []
        self._stages = Entering(options.on_stage)
        self._stopping = stopping or of_new_reader()
        self._cause = (-1, "")
        self._described: Described | None = None
        self._tokenizer: Tokenizer | None = None
        self._late, self._taker = Late(options), Taker()
        ends_with_the_interpreter(self)
        self._as_it_comes = not options.copy and options.split_rows == 1

    def _stop_from(self, step: int) -> int:
        return NO_STOP if self._options.limit is None else step + self._options.limit

    @property
    def _position(self) -> int:
        return self._at.step

    @property
    def cause(self) -> str | None:
        """The last cause for which the next step is late; any thread may read it.

        A name of docs/socket.md, with the daemon's details after a colon; None if it is not late.
        """
        # Stored with its position, so that returning a batch need not reset it.
        step, cause = self._cause
        return cause if step == self._position else None

    @property
    def next_step(self) -> int:
        """The next step, as far as this rank knows: a quarantine may skip it."""
        # The welcome's is above the position only between a skip and the batch that follows it.
        if self._welcome is None:
            return self._position
        return max(self._position, self._welcome.next_step)

    def _quickly(self) -> tuple[Batch | None, Batch | Event | Lost | None]:
        """Returns the next batch, if it has arrived and nothing else is due; or another event."""
        session, position = self._session, self._at.step
        if (
            session is None
            or self._ahead
            or self._stopping.asked
            or not self._as_it_comes
            or position >= self._stop
            or not session.quiet()
            or time.monotonic() - self._progress_at >= _PROGRESS_SECONDS
        ):
            return None, None
        try:
            found = session.receive()
        except BadMessageError as error:
            raise self._fail(error) from None
        if type(found) is Batch and found.step == position:
            return found, None
        return None, found

    def _read(self, found: Batch | Event | Lost | None = None) -> Batch:
        """Returns the next batch, waiting if necessary; `found` has been received already."""
        wait = Wait(self._options, self._position, self._late, self._taker)
        self._resyncs = 0
        try:
            while True:
                self._raise_interrupt()
                self._check()
                self._stopping.take(self._position)
                if self._ended or self.next_step >= self._stop:
                    raise StopIteration
                session = self._ready(wait, tells=found is None)
                if found is None:
                    found = session.receive()
                if isinstance(found, Batch):
                    if found.step == self.next_step < self._stop:
                        return found if self._as_it_comes else self._changed(found)
                    session.torn = True
                elif isinstance(found, Event):
                    self._event(session, found, wait)
                    session.event = None
                elif found is None:
                    due = wait.pause(session)
                    # A wait is counted while it lasts, so that metrics show a rank that is stuck.
                    self._waited += wait.seconds()
                    self._report(session, due)
                found = None
        except (BadMessageError, BadMeshError) as error:
            raise self._fail(error) from None
        finally:
            self._waited += wait.seconds()

    def _enter_stage(self, batch: Batch) -> None:
        """Calls `on_stage`. The batch is not lost where that raises an exception."""
        try:
            self._stages.enter(batch.stage)
        except BaseException:
            self._ahead.insert(0, batch)
            raise

    def _changed(self, batch: Batch) -> Batch:
        """Returns the batch with only this rank's rows, or with private arrays, by the options."""
        parts = self._options.split_rows
        if parts > 1:
            batch.slices = [piece.rows(self._options.part, parts) for piece in batch.slices]
        if self._options.copy:
            batch.slices = [piece.copy() for piece in batch.slices]
        return batch

    def _ready(self, wait: Wait, *, tells: bool) -> Session:
        session, welcome = self._session, self._welcome
        freed = tells and welcome is not None and self._earlier.are_free(welcome.instance)
        if session is not None and not (session.lost or session.torn or freed):
            session.next_step = self.next_step
            self._report(session, False)
            session.flush()
            return session
        if session is not None and session.torn:
            self._resyncs += 1
            if self._resyncs > _RESYNCS_MAX:
                raise BadMessageError(
                    f"the daemon at {self._options.socket} sends another step than "
                    f"{self._position}, this rank's next; report it with the daemon's log"
                )
        self._cause = (self._position, "daemon_restarting")
        session = self.open(wait.deadline, wait.started)
        # Reported separately from the waits of the new session.
        self._waited, self._progress_at = wait.without_session(), -math.inf
        return session

    def open(self, deadline: float, since: float | None = None, *, ending: bool = False) -> Session:
        """Opens a session at the position, in place of the current one.

        `since`: when the wait for it began, for warnings; default: now. `ending`: for `close`,
        which may have interrupted another `open`: that one then ends without a session.
        """
        begun = time.monotonic() if since is None else since
        first, before = self._welcome is None, self._last if ending else self._session
        lost = before is None or before.lost
        for half_open in self._opening:
            if half_open is not before and not half_open.held:
                half_open.close()
        opened: list[Session] = []
        self._opening = opened

        def waits(cause: str) -> None:
            self._refuse_closed(ending)
            if not ending:
                self._stopping.take(self._position)
            self._late.has_no_session(begun, self._position, cause, first=first)

        try:
            session, welcome = open_session(
                self._options.socket,
                self._greetings(before),
                self._position,
                deadline,
                opened,
                waits,
                None if ending else self._stopping,
            )
            self._refuse_closed(ending)
            session.taker, session.interrupts = self._taker, self._interrupts
            if first and self._options.begin == "latest":
                self._begin_at(welcome.next_step)
            session.position = self._at
            # Until it is complete: an interrupt before the last line leads to another session.
            session.torn = True
            if ending:
                self._last = session
            else:
                self._session = session
            # The daemon has checked the first one: a fork takes a state of its parent.
            self._stream_id = welcome.stream_id if first else self._stream_id
            self._welcome, self._mode = welcome, "resume"
        except BaseException as error:
            for half_open in opened:
                half_open.close()
            if isinstance(error, Unserved):
                at = None if first else self._position
                raise unserved(self._options, str(error), at) from None
            if isinstance(error, BatchWeaveError) and not isinstance(error, Stopped):
                raise self._fail(error) from None
            raise
        if not first:
            _log.info(
                "connected again at step %d (%s)", self._position, "lost" if lost else "resync"
            )
        if self._stream_id != welcome.stream_id:
            raise self._fail(self._other_stream(welcome.stream_id, self._stream_id))
        self._origin = session.origin = State(
            welcome.stream_id, 0, welcome.attempt, welcome.attempt_number, self._options.dp_size
        )
        self._advance(welcome)
        self._marks.send_again(session, self._reports)
        session.torn = False
        return session

    def _begin_at(self, step: int) -> None:
        """Takes the job's newest restart point as the position, before the first batch."""
        self._at.step = self._start = self._limit_from = step
        self._stop = self._stop_from(step)
        _log.info(
            "job %s begins at step %d, its newest restart point: the model must be the one saved "
            "there",
            self._options.job,
            step,
        )

    def _greetings(self, before: Session | None) -> list[bytes]:
        replaces, current = None, None
        if before is not None and self._welcome is not None:
            instance = self._welcome.instance
            self._earlier.add(instance, before.mappings)
            before.mappings = []
            current = None if before.lost else instance
            replaces = {"instance": instance, "session": self._welcome.session}
            before.park(self.next_step)
        guarded = guards(self._options) if self._mode == "join" else {}
        fields = {
            "mode": self._mode,
            "next_step": 0 if "begin" in guarded else self._position,
            "stream": self._stream_id,
            "replaces": replaces,
            "mapped_bytes": self._earlier.tell(current),
        }
        # The position of "latest" is the daemon's to find: no hello without it can stand in.
        replaceable = guarded.get("begin") != "latest"
        tries = [guarded, {}] if guarded and replaceable else [guarded]
        return [hello(self._options, **fields, **more) for more in tries]

    def _event(self, session: Session, event: Event, wait: Wait) -> None:
        if event.kind == _wire.WELCOME:
            self._welcome = event.value
            self._advance(event.value)
        elif event.kind == _wire.WAITING:
            wait.cause = event.value[1]
            self._cause = (self._position, wait.cause)
        elif event.kind == _wire.MARKED:
            self._marks.stored(event.value)
        elif event.kind == _wire.MARK_REFUSED:
            self._marks.refused(event.value)
        elif event.kind == _wire.REPORTED:
            self._reports.stored(event.value)
        elif event.kind == _wire.ERROR:
            raise self._fail(event.value)
        elif event.value == self.next_step:
            session.flush()
            self._ended = True
        else:
            session.torn = True

    def _advance(self, welcome: _wire.Welcome) -> None:
        if welcome.next_step < self._position:
            raise self._fail(
                BadMessageError(
                    f"the daemon starts at step {welcome.next_step}, this rank is at "
                    f"{self._position}; report it with the daemon's log"
                )
            )
        if welcome.next_step > self._position:
            _log.info("steps %d to %d are quarantined", self._position, welcome.next_step - 1)

    def _report(self, session: Session, waiting: bool) -> None:
        now = time.monotonic()
        if waiting or now - self._progress_at >= _PROGRESS_SECONDS:
            self._progress_at = now
            waited = int(self._waited * 1e6)
            session.offer(_wire.progress(self.next_step, waited, waiting))
            self._reports.send(session)
            close_parked()

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
        self._refuse_closed()
        if self._failure is not None:
            raise self._failure

    def _refuse_closed(self, ending: bool = False) -> None:
        if self._closed and not ending:
            raise ClosedError("the reader is closed; connect again to continue from a saved state")

    def _raise_interrupt(self) -> None:
        """Raises what a signal handler raised while an array was dropped."""
        if self._interrupts:
            if self._session is not None:
                self._session.torn = True
            raise self._interrupts.pop(0)

    def leave(self) -> None:
        """Ends the session at the interpreter's exit: without waiting and without a warning."""
        session = self._session
        if not self._closed and session is not None and not session.forked:
            self._reports.leave(session)
            session.park(self.next_step)
        self._closed = True

    def _fail(self, error: BatchWeaveError) -> BatchWeaveError:
        """Keeps the error: every later call raises it again."""
        self._failure = error
        session, self._session = self._session, None
        if session is not None:
            session.park(self.next_step)
        return error
