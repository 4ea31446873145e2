"""The protocol of one instance of a writer, as a pure state machine: no store, no thread, no clock.

An instance has at most one request under way. `Core.request` is that request, and the methods
`listed`, `found`, `created`, `exists` and `unknown` take its answer and return the next state. The
real writer and the model of all interleavings (python/tests/inbox_model.py) drive the same code.

Rows are acknowledged by one transition only: after the PUT of file n, a LIST shows n and nothing
newer. The PUT alone proves nothing: an instance that slept before its PUT may find number n free
again, because a successor wrote n and more, producers read them and deleted n. The LIST then shows
the successor's newest file, which is never deleted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple


class Phase(Enum):
    """The request under way, or the reason why there is none."""

    OPEN_LIST = "lists the files at the start"
    OPEN_READ = "reads the newest file at the start"
    READY = "waits for rows"
    LATE_READ = "reads a file that may have been stored late"
    LATE_DELETE = "deletes a file that was stored late"
    PUT = "puts a file"
    READ = "reads the file that may be its own"
    CHECK = "lists behind its put"
    END_LIST = "lists before the end"
    END_PUT = "puts the end"
    ENDED = "has ended"
    FENCED = "was replaced by another instance"
    MISSING = "misses a file"
    NOT_EXCLUSIVE = "found a store that replaces existing objects"


class Takeover(NamedTuple):
    """An instance of the writer, and the number of the first file that it wrote."""

    first: int
    instance: str


class File(NamedTuple):
    """The metadata of a stored file."""

    number: int
    first_row: int
    rows: int
    instance: str
    state: str
    state_row: int
    takeovers: tuple[Takeover, ...] = ()
    """The newest instances that wrote files up to this one, in their order."""


class Listing(NamedTuple):
    """The answer to a LIST: numbers above the requested one, ascending, and whether `end` exists.

    A LIST of everything may leave out the oldest numbers.
    """

    numbers: tuple[int, ...]
    ended: bool


class List(NamedTuple):
    """Requests the numbers above `after`; None: the newest numbers."""

    after: int | None


class Read(NamedTuple):
    """Requests the metadata of a file."""

    number: int


class Delete(NamedTuple):
    """Requests the deletion of a file that no reader takes; it may fail."""

    number: int


class Create(NamedTuple):
    """Requests a create-only PUT of a file."""

    file: File


class CreateEnd(NamedTuple):
    """Requests a create-only PUT of the object `end`."""


Request = List | Read | Delete | Create | CreateEnd

TAKEOVERS_MAX = 32
"""Instances that a file names at most."""
_GONE_MAX = 3
"""Contradictions of a store (a file that it lists and does not have) before it is an error."""


@dataclass(frozen=True)
class Core:
    """The state of one instance; every transition returns a new one."""

    instance: str
    allow_gaps: bool = False
    probes: bool = False
    """Whether the first file is put twice, so that a store that replaces objects is found."""
    phase: Phase = Phase.OPEN_LIST
    newest: int = -1
    """The number of the newest acknowledged file, or the newest found at the start."""
    rows: int = 0
    """Acknowledged rows of all instances."""
    state: str = "null"
    state_row: int = 0
    pending: File | None = None
    other: str = ""
    """The instance that replaced this one, where it is known; "end" if the writer has ended."""
    missing: int = -1
    gone: int = 0
    replaced: bool = False
    takeovers: tuple[Takeover, ...] = ()
    late: tuple[int, ...] = ()
    """Files before a gap, which were stored late or whose successors are missing."""
    late_by: str = ""
    """The instance that stored the first of them."""

    @property
    def request(self) -> Request | None:
        """The request under way; None in a phase that waits for the caller or is final."""
        match self.phase:
            case Phase.OPEN_LIST:
                return List(None)
            case Phase.OPEN_READ:
                return Read(self.newest)
            case Phase.LATE_READ:
                return Read(self.late[0])
            case Phase.LATE_DELETE:
                return Delete(self.late[0])
            case Phase.PUT:
                return Create(self._file())
            case Phase.READ:
                return Read(self._file().number)
            case Phase.CHECK:
                # From the predecessor on, so that the file itself must be listed, too.
                return List(self._file().number - 1)
            case Phase.END_LIST:
                return List(self.newest)
            case Phase.END_PUT:
                return CreateEnd()
            case _:
                return None

    def submit(self, rows: int, state: str, state_row: int) -> Core:
        """Begins to write the next file, with `rows` rows and the caller's state."""
        assert self.phase is Phase.READY, self.phase
        number = self.newest + 1
        takeovers = self.takeovers
        if not takeovers or takeovers[-1].instance != self.instance:
            takeovers = (*takeovers, Takeover(number, self.instance))[-TAKEOVERS_MAX:]
        file = File(number, self.rows, rows, self.instance, state, state_row, takeovers)
        return replace(self, phase=Phase.PUT, pending=file, gone=0, takeovers=takeovers)

    def finish(self) -> Core:
        """Begins to write `end`."""
        assert self.phase is Phase.READY, self.phase
        return replace(self, phase=Phase.END_LIST)

    def listed(self, listing: Listing) -> Core:
        """Takes the answer to a LIST."""
        match self.phase:
            case Phase.OPEN_LIST:
                return self._opened(listing)
            case Phase.CHECK:
                return self._checked(listing)
            case Phase.END_LIST:
                if listing.numbers:
                    return self._fenced("")
                return replace(self, phase=Phase.ENDED if listing.ended else Phase.END_PUT)
            case _:
                raise AssertionError(self.phase)

    def found(self, file: File | None) -> Core:
        """Takes the answer to a read: the metadata, or None where there is no such file."""
        if self.phase is Phase.OPEN_READ:
            if file is None:
                return self._gone(self.newest, Phase.OPEN_LIST)
            read = replace(
                self,
                rows=file.first_row + file.rows,
                state=file.state,
                state_row=file.state_row,
                takeovers=file.takeovers,
            )
            return read._after_late()
        if self.phase is Phase.LATE_READ:
            return self._late(file)
        assert self.phase is Phase.READ, self.phase
        if file is None:
            # It has not happened yet, or a successor's file is read and deleted: the same PUT
            # again. In the second case it succeeds, and the LIST behind it tells.
            return replace(self, phase=Phase.PUT)
        if file.instance != self.instance:
            return self._fenced(file.instance)
        return replace(self, phase=Phase.CHECK)

    def deleted(self) -> Core:
        """Takes the answer to a deletion, whether it succeeded or not."""
        assert self.phase is Phase.LATE_DELETE, self.phase
        return replace(self, late=self.late[1:])._after_late()

    def created(self) -> Core:
        """Takes the answer that a PUT created its object."""
        if self.phase is Phase.END_PUT:
            return replace(self, phase=Phase.ENDED)
        assert self.phase is Phase.PUT, self.phase
        if self.probes and not self.replaced:
            return replace(self, replaced=True)
        # The probe found the number free again: the store replaces objects, or a successor's
        # producers deleted the file; the LIST tells which.
        return replace(self, phase=Phase.CHECK)

    def exists(self) -> Core:
        """Takes the answer that the object of a PUT exists already, or that another PUT runs."""
        if self.phase is Phase.END_PUT:
            # The other PUT may fail, so a LIST tells.
            return replace(self, phase=Phase.END_LIST)
        assert self.phase is Phase.PUT, self.phase
        if self.replaced:
            return replace(self, probes=False, replaced=False, phase=Phase.CHECK)
        return replace(self, phase=Phase.READ)

    def unknown(self) -> Core:
        """Takes a PUT without an answer: it may have happened, and may still happen."""
        if self.phase is Phase.END_PUT:
            return self
        assert self.phase is Phase.PUT, self.phase
        return self if self.replaced else replace(self, phase=Phase.READ)

    def _file(self) -> File:
        assert self.pending is not None
        return self.pending

    def _opened(self, listing: Listing) -> Core:
        core = replace(self, other="end" if listing.ended else "")
        if not listing.numbers:
            return replace(core, phase=Phase.ENDED if listing.ended else Phase.READY)
        late = 0
        if not self.allow_gaps:
            pairs = zip(listing.numbers, listing.numbers[1:], strict=False)
            gaps = [at for at, (before, after) in enumerate(pairs, 1) if after != before + 1]
            late = gaps[-1] if gaps else 0
        newest = listing.numbers[-1]
        return replace(core, phase=Phase.OPEN_READ, newest=newest, late=listing.numbers[:late])

    def _after_late(self) -> Core:
        if self.late:
            return replace(self, phase=Phase.LATE_READ)
        return replace(self, phase=Phase.ENDED if self.other == "end" else Phase.READY)

    def _late(self, file: File | None) -> Core:
        """Takes a file before a gap. It was stored late if another instance wrote its number.

        The newest file names the instances that wrote up to it, and each number was written by one
        of them, before readers deleted it. A file of another instance is a PUT that was overtaken:
        its rows were never acknowledged, and readers are past its number.
        """
        number = self.late[0]
        if file is None:
            return replace(self, late=self.late[1:])._after_late()
        wrote = [each.instance for each in self.takeovers if each.first <= number]
        if wrote and wrote[-1] != file.instance:
            return replace(self, phase=Phase.LATE_DELETE, late_by=file.instance)
        missing = next(n for n in range(number, self.newest) if n not in self.late)
        return replace(self, phase=Phase.MISSING, missing=missing)

    def _checked(self, listing: Listing) -> Core:
        file = self._file()
        if listing.ended:
            return self._fenced("end")
        if listing.numbers and listing.numbers[-1] > file.number:
            return self._fenced("")
        if file.number not in listing.numbers:
            # The newest file is never deleted, so a newer one came while the store listed.
            return self._gone(file.number, Phase.CHECK)
        if self.replaced:
            return replace(self, phase=Phase.NOT_EXCLUSIVE)
        return replace(
            self,
            phase=Phase.READY,
            newest=file.number,
            rows=file.first_row + file.rows,
            state=file.state,
            state_row=file.state_row,
            pending=None,
            gone=0,
        )

    def _fenced(self, other: str) -> Core:
        return replace(self, phase=Phase.FENCED, other=other)

    def _gone(self, number: int, again: Phase) -> Core:
        if self.gone + 1 >= _GONE_MAX:
            return replace(self, phase=Phase.MISSING, missing=number)
        return replace(self, phase=again, gone=self.gone + 1)
