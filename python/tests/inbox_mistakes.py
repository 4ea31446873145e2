"""Deliberate mistakes in the protocol of inboxes, which the model must find."""

from __future__ import annotations

from dataclasses import replace

from batchweave.inbox._core import Core, File, Listing, Phase


class WithoutList(Core):
    """A mistake: a PUT that created its object is acknowledged without a LIST."""

    def created(self) -> Core:
        if self.phase is not Phase.PUT:
            return super().created()
        checks = replace(self, phase=Phase.CHECK)
        return checks.listed(Listing((self._file().number,), False))


class EarlyAcknowledgement(Core):
    """A mistake: rows count before the LIST, though it follows."""

    def created(self) -> Core:
        if self.phase is not Phase.PUT:
            return super().created()
        file = self._file()
        return replace(super().created(), rows=file.first_row + file.rows)


class TriesTheNextNumber(Core):
    """A mistake: an instance that lost a number takes the next one."""

    def found(self, file: File | None) -> Core:
        if self.phase is Phase.READ and file is not None and file.instance != self.instance:
            number = file.number + 1
            pending = self._file()._replace(number=number)
            return replace(self, phase=Phase.PUT, newest=file.number, pending=pending)
        return super().found(file)


class OwnFileIsAnother(Core):
    """A mistake: a 412 means another instance, though the own PUT lost its answer."""

    def exists(self) -> Core:
        return self._fenced("") if self.phase is Phase.PUT else super().exists()

    def unknown(self) -> Core:
        return self


class NewNumberAfterUnknown(Core):
    """A mistake: a PUT without an answer did not happen, and its rows get a new number."""

    def unknown(self) -> Core:
        if self.phase is not Phase.PUT:
            return super().unknown()
        pending = self._file()._replace(number=self._file().number + 1)
        return replace(self, pending=pending)


class BlindToTheEnd(Core):
    """A mistake: the LIST behind a PUT overlooks the end."""

    def listed(self, listing: Listing) -> Core:
        if self.phase is Phase.CHECK:
            listing = listing._replace(ended=False)
        return super().listed(listing)


class ConflictIsTheEnd(Core):
    """A mistake: an end that was refused beside another PUT counts as written."""

    def exists(self) -> Core:
        if self.phase is Phase.END_PUT:
            return replace(self, phase=Phase.ENDED)
        return super().exists()


class EveryGapIsLate(Core):
    """A mistake: whatever lies before a gap counts as stored late."""

    def found(self, file: File | None) -> Core:
        if self.phase is Phase.LATE_READ and file is not None:
            return replace(self, phase=Phase.LATE_DELETE)
        return super().found(file)
