"""The few operations that a writer needs of a store, and their outcomes."""

from __future__ import annotations

import importlib
from typing import Any, Protocol

from batchweave.inbox._core import Listing
from batchweave.inbox.errors import InboxExtraError

WINDOW = 1000
"""At the start, gaps are looked for in this number of newest files."""
DIGITS = 20
FILE = ".parquet"
END = "end"
COMMIT = "commit.json"
"""The list of a job's files, in place of numbered ones; its folder takes no more rows."""
ENDS = (END, COMMIT)


class ExistsError(Exception):
    """A create-only PUT found its key taken, or was refused while another PUT was under way."""


class TransientError(Exception):
    """A request without a definite answer: it may have happened. To be repeated."""


class Store(Protocol):
    """One writer's folder. Methods raise TransientError, or a final error of `errors`."""

    place: str
    """The folder as a URL, for messages."""

    def create(self, name: str, data: bytes) -> None:
        """Stores an object durably under a new name; raises ExistsError where it is taken."""

    def numbers(self, after: int | None) -> Listing:
        """Lists numbers above `after`; None: the newest ones, without gaps in the newest 1,000."""

    def delete(self, name: str) -> None:
        """Deletes an object, which may be absent."""

    def tail(self, name: str, count: int) -> tuple[bytes, int] | None:
        """Returns the last `count` bytes of an object and its size; None where it is absent."""


def file_name(number: int) -> str:
    """Returns the name of a file in its writer's folder."""
    return f"{number:0{DIGITS}}{FILE}"


def number_of(name: str) -> int | None:
    """Returns the number of a file by its name, or None for any other name."""
    digits = name.removesuffix(FILE)
    is_file = len(digits) == DIGITS and digits.isascii() and digits.isdigit() and name != digits
    return int(digits) if is_file else None


def package(name: str) -> Any:
    """Imports a package of the extra."""
    try:
        return importlib.import_module(name)
    except ImportError as reason:
        raise InboxExtraError(
            f"writing into an inbox needs the package {name.partition('.')[0]}, which cannot be "
            f'imported ({reason}): pip install "batchweave[inbox]"'
        ) from None
