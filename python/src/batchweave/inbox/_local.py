"""A writer's folder on a local disk.

Files are written here and not by obstore, which links them into place atomically as well, but does
not sync them: a file would be acknowledged and lost with the power. Here a file is written under a
hidden name, synced, linked to its final name, which fails where that exists, and the folder is
synced. A kill at any instant leaves the whole file or none under the final name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from batchweave.inbox._core import Listing
from batchweave.inbox._store import ENDS, ExistsError, TransientError, number_of
from batchweave.inbox.errors import StoreRefusedError

_TEMPORARY = ".new-"
"""Producers leave out names that begin with a dot."""

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REMEDIES = {
    **dict.fromkeys(_FULL, "make room (or raise the quota or file size limit)"),
    errno.EACCES: "give this user write permission",
    errno.EROFS: "mount it writable",
    errno.EPERM: "use a file system with hard links, and give this user write permission",
    errno.ENOTSUP: "use a file system with hard links",
    errno.ENOTDIR: "choose a folder",
    errno.ENAMETOOLONG: "choose a shorter path",
}


_NOT_OURS = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL}


class LocalFolder:
    """One writer's folder; made by the first file, so that a look changes nothing."""

    def __init__(self, folder: Path) -> None:
        self.place = str(folder)
        self._folder = folder
        self._synced: tuple[int, int] | None = None
        """The folder, by device and inode, whose entry this process has made durable."""
        self._unsynced: set[str] = set()
        """Names of files that were linked, and whose folder could not be synced since."""

    def create(self, name: str, data: bytes) -> None:
        """Stores a file durably under a new name."""
        with self._explained(f"write {name}"):
            self._make_folder()
            if name in self._unsynced:
                # Our own, of a try whose sync failed: it counts when this one succeeds.
                self._sync(name)
            new = self._folder / f"{_TEMPORARY}{secrets.token_hex(8)}"
            opened = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            try:
                # The lock says that the temporary file's writer lives: see `_sweep`.
                fcntl.flock(opened, fcntl.LOCK_EX)
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(opened, rest) :]
                os.fsync(opened)
                os.link(new, self._folder / name)
                self._unsynced.add(name)
            except FileExistsError:
                raise ExistsError(name) from None
            finally:
                with contextlib.suppress(FileNotFoundError):
                    new.unlink()
                os.close(opened)
            self._sync(name)

    def delete(self, name: str) -> None:
        """Deletes a file."""
        with self._explained(f"delete {name}"):
            (self._folder / name).unlink(missing_ok=True)

    def numbers(self, after: int | None) -> Listing:
        """Lists the folder; at the start also removes what killed processes left."""
        with self._explained("list the folder"):
            # A scan is not one instant, but it is shorter than what could deceive it: a successor's
            # file, a producer's commit of it and the deletion of the file before.
            try:
                names = [path.name for path in self._folder.iterdir()]
            except FileNotFoundError:
                return Listing((), False)
            if after is None:
                self._sweep(name for name in names if name.startswith(_TEMPORARY))
                # Its rows count from now on, and a killed predecessor may not have synced them.
                self._make_folder()
                _sync(self._folder)
        numbers = (number_of(name) for name in names)
        above = sorted(n for n in numbers if n is not None and (after is None or n > after))
        return Listing(tuple(above), any(name in ENDS for name in names))

    def tail(self, name: str, count: int) -> tuple[bytes, int] | None:
        """Reads the end of a file."""
        with self._explained(f"read {name}"):
            if name in self._unsynced:
                self._sync(name)
            try:
                with (self._folder / name).open("rb") as file:
                    size = file.seek(0, os.SEEK_END)
                    file.seek(max(0, size - count))
                    return file.read(), size
            except FileNotFoundError:
                return None

    def _make_folder(self) -> None:
        """Makes the folder, and syncs all above it once: another process may have made them, and
        may have been killed before it synced."""
        self._folder.mkdir(parents=True, exist_ok=True)
        found = self._folder.stat()
        if self._synced == (found.st_dev, found.st_ino):
            return
        for path in reversed(self._folder.resolve().parents):
            try:
                _sync(path)
            except OSError as reason:
                # A folder that this user may not read was made by another one.
                if reason.errno not in _NOT_OURS:
                    raise
        self._synced = (found.st_dev, found.st_ino)

    def _sync(self, name: str) -> None:
        _sync(self._folder)
        self._unsynced.discard(name)

    def _sweep(self, names: Iterator[str]) -> None:
        for name in names:
            path = self._folder / name
            with contextlib.suppress(OSError):
                opened = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                finally:
                    os.close(opened)

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as reason:
            remedy = _REMEDIES.get(reason.errno or 0)
            if remedy is None:
                raise TransientError(f"cannot {what} in {self.place}: {reason}") from reason
            why = reason.strerror
            raise StoreRefusedError(
                f"cannot {what} in {self.place}: {why}; {remedy}, then flush() tries again",
                key=what,
                remedy=remedy,
            ) from reason


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
