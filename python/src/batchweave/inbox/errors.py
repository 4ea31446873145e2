"""The errors of writers. Every message states the failure, its place, its cause and a remedy."""

from __future__ import annotations

from batchweave.errors import BatchWeaveError


class InboxError(BatchWeaveError):
    """The base of all errors of writers.

    A row counts as written when `durable_rows` says so. After an error, other rows may be stored or
    not; the next `open` of the writer finds out, and its `next_row` is exact.
    """

    name = "inbox"


class InboxExtraError(InboxError):
    """A package of the extra `batchweave[inbox]` is not installed."""

    name = "inbox_extra"


class InboxArgumentError(InboxError, ValueError):
    """An argument of `open` is wrong: a name, a location, a size."""

    name = "inbox_argument"


class BadRowError(InboxError, ValueError):
    """A row cannot be stored: a value without a type, another schema, a state that is too large.

    The writer goes on without that row.
    """

    name = "bad_row"


class RowTooLargeError(BadRowError):
    """A row is larger than `file_bytes`; the writer goes on without it."""

    name = "row_too_large"


class WriterFencedError(InboxError):
    """Another process writes under this writer's name: this one must stop.

    No row that this writer reported as durable is lost.
    """

    name = "writer_fenced"


class WriterEndedError(InboxError):
    """The writer's `end` is in the inbox: it takes no more rows."""

    name = "writer_ended"


class InboxDamagedError(InboxError):
    """The inbox is not as writers leave it: a file is missing, or is not of this writer."""

    name = "inbox_damaged"


class InboxRewoundError(InboxDamagedError):
    """The inbox holds fewer rows than the caller knows to be durable, as a restored backup does."""

    name = "inbox_rewound"


class StoreRefusedError(InboxError):
    """The store refuses: permissions, credentials, no such bucket, a full disk, no create-only PUT.

    The rows stay in memory, and `flush()` tries again.
    """

    name = "store_refused"


class StoreNotAnsweringError(InboxError):
    """The store did not answer within the writer's deadline.

    The rows stay in memory, and `flush()` tries again.
    """

    name = "store_not_answering"


class LagUnknownError(InboxError):
    """The lag of a writer could not be read within its deadline; the row was not put."""

    name = "lag_unknown"


class WriterClosedError(InboxError):
    """The writer is closed."""

    name = "writer_closed"
