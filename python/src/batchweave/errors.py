"""The errors, one class per name of docs/socket.md.

Every message states the failure, its place, its cause and a remedy. Catch `BatchWeaveError` for
all, or one class for one cause; `error.name` is the name in the daemon's log and metrics.
"""

from __future__ import annotations

from typing import Any, ClassVar


class BatchWeaveError(Exception):
    """The base of all errors of this package."""

    name: ClassVar[str] = "error"
    code: ClassVar[int | None] = None
    """The number on the wire; None for errors that only this client raises."""

    def __init__(
        self,
        message: str,
        *,
        step: int | None = None,
        key: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message)
        self.step = step
        self.key = key
        self.remedy = remedy
        """The remedy, which is part of the message, too."""

    def __str__(self) -> str:
        return f"{self.args[0]} [{self.name}]"


class ProtocolVersionError(BatchWeaveError):
    """Client and daemon speak different protocols."""

    name, code = "protocol_version", 1


class BadMessageError(BatchWeaveError):
    """One side sent a message that breaks the protocol."""

    name, code = "bad_message", 2


class BadHelloError(BatchWeaveError):
    """The arguments of `connect` contradict one another, the environment or the stream."""

    name, code = "bad_hello", 3


class NotAllowedError(BatchWeaveError):
    """This user may not connect to the daemon."""

    name, code = "not_allowed", 4


class UnknownJobError(BatchWeaveError):
    """The daemon does not serve this job."""

    name, code = "unknown_job", 5


class BadMeshError(BatchWeaveError):
    """The number of data-parallel ranks does not divide the stream's slices."""

    name, code = "bad_mesh", 6


class DuplicateCoordinateError(BatchWeaveError):
    """Another live reader has the same data-parallel rank."""

    name, code = "duplicate_coordinate", 7


class OtherStreamError(BatchWeaveError):
    """The state belongs to another stream."""

    name, code = "other_stream", 8


class AttemptSupersededError(BatchWeaveError):
    """A newer attempt of the job has begun: this rank must stop, its job runs elsewhere."""

    name, code = "attempt_superseded", 9


class AttemptDisagreesError(BatchWeaveError):
    """The start step or dp_size of this rank differs from its attempt's."""

    name, code = "attempt_disagrees", 10


class AttemptNotOpenedError(BatchWeaveError):
    """Global rank 0 did not open the attempt in time."""

    name, code = "attempt_not_opened", 11


class StepReclaimedError(BatchWeaveError):
    """The step is below the watermark."""

    name, code = "step_reclaimed", 12


class StepQuarantinedError(BatchWeaveError):
    """The step was quarantined after the attempt began."""

    name, code = "step_quarantined", 13


class StreamEndedError(BatchWeaveError):
    """The start lies beyond the stream's end."""

    name, code = "stream_ended", 14


class CorruptDataError(BatchWeaveError):
    """A slice fails its checksum or identity, even when fetched again."""

    name, code = "corrupt_data", 15


class MissingDataError(BatchWeaveError):
    """A committed object is not in the store."""

    name, code = "missing_data", 16


class LogUnreadableError(BatchWeaveError):
    """A record of the log cannot be read."""

    name, code = "log_unreadable", 17


class StoreUnavailableError(BatchWeaveError):
    """The store did not answer the daemon within its deadline."""

    name, code = "store_unavailable", 18


class ArenaTooSmallError(BatchWeaveError):
    """One slice does not fit in the daemon's arena."""

    name, code = "arena_too_small", 19


class TooManySessionsError(BatchWeaveError):
    """More readers than the daemon's limit."""

    name, code = "too_many_sessions", 20


class InternalError(BatchWeaveError):
    """The daemon has a bug."""

    name, code = "internal", 21


class NoAttemptError(BatchWeaveError):
    """The ranks of a job need one attempt's id, and this rank does not have it."""

    name, code = "no_attempt", 22


class JobNotOpenError(BatchWeaveError):
    """The job was not opened in time."""

    name, code = "job_not_open", 23


class JobClosedError(BatchWeaveError):
    """The job was closed while the rank read."""

    name, code = "job_closed", 24


class MarkRefusedError(BatchWeaveError):
    """A checkpoint is not a restart point; the base of the reasons. Reading continues."""


class MarkBadStateError(MarkRefusedError):
    """The state does not belong to this stream and step."""

    name, code = "mark_bad_state", 25


class MarkOtherAttemptError(MarkRefusedError):
    """The state was captured in another attempt, or lies before this one's start."""

    name, code = "mark_other_attempt", 26


class MarkNoSuchRankError(MarkRefusedError):
    """The attempt has no such data coordinate."""

    name, code = "mark_no_such_rank", 27


class MarkInFutureError(MarkRefusedError):
    """The stream has no such step yet."""

    name, code = "mark_in_future", 28


class MarkNotDeliveredError(MarkRefusedError):
    """This rank has not received the steps below the mark."""

    name, code = "mark_not_delivered", 29


class MarkNotStoredError(MarkRefusedError):
    """The mark could not be stored; marking again may work."""

    name, code = "mark_not_stored", 30


class StreamRewoundError(BatchWeaveError):
    """This rank has received steps that the log lacks, or has with other batches."""

    name, code = "stream_rewound", 31


class AttemptRunningError(BatchWeaveError):
    """This node's ranks of the job's current attempt are alive, and nobody asked to end them.

    The message has their process ids. To look at the data, use `batchweave.open(url)`.
    """

    name, code = "attempt_running", 32


class ForgottenStateError(BatchWeaveError):
    """The job has restart points, and this start of it states neither a position nor `fresh=True`.

    `step` is the newest restart point.
    """

    name, code = "forgotten_state", 33


class UnknownError(BatchWeaveError):
    """An error of a newer daemon without a class here; the message is the daemon's."""

    name = "unknown"


class NoDaemonError(BatchWeaveError):
    """No daemon served the socket within the timeout of `connect`."""

    name = "no_daemon"


class DaemonGoneError(BatchWeaveError):
    """The daemon disconnected and did not return in time."""

    name = "daemon_gone"


class StepTimeoutError(BatchWeaveError):
    """A step did not arrive in time; the message names the cause."""

    name = "timeout"


class FramesHeldError(StepTimeoutError):
    """A step could not be delivered because this rank holds all its credits, as listed."""

    name = "frames_held"


class BadStateError(BatchWeaveError):
    """A saved state that is invalid, or of a newer format."""

    name = "bad_state"


class BadReportError(BatchWeaveError, ValueError):
    """A report of a step that this reader did not return, with a wrong reason or wrong losses."""

    name = "bad_report"


class WrappedLoaderError(BatchWeaveError):
    """A loader would leave out or join steps of this rank, or save wrong positions."""

    name = "wrapped_loader"


class BadShapeError(BatchWeaveError):
    """The views of an array cannot be made, or differ in shape where one array is asked for."""

    name = "bad_shape"


class NoTokenizerError(BatchWeaveError):
    """The tokens cannot be decoded here: a file, a package or a newer daemon is missing."""

    name = "no_tokenizer"


class ClosedError(BatchWeaveError):
    """The reader is closed."""

    name = "closed"


class Stopped(BatchWeaveError):  # noqa: N818 - the outcome that `stop()` asked for
    """`stop()` has ended the wait; `step` is the one that the next call reads."""

    name = "stopped"


class OneThreadError(BatchWeaveError):
    """Two threads read with one reader at the same time; no step is lost."""

    name = "one_thread"


class StreamNotOpenedError(BatchWeaveError):
    """`batchweave.open` cannot read the stream: the message is that of the program it started."""

    name = "stream_not_opened"


class NoProgramError(BatchWeaveError):
    """A program of this project, or a package, that a call needs is not installed."""

    name = "no_program"


class NoSourcesError(BatchWeaveError):
    """The documents of a batch are unknown: not stored, or not read through `batchweave.open`."""

    name = "no_sources"


class ForkedError(ClosedError):
    """The reader was inherited by a forked process, which must connect itself."""


class SystemRefusedError(BatchWeaveError):
    """The operating system refused a call, such as opening the socket or mapping memory."""

    name = "system"


BY_CODE: dict[int, type[BatchWeaveError]] = {
    cls.code: cls
    for base in (BatchWeaveError, MarkRefusedError)
    for cls in base.__subclasses__()
    if cls.code is not None
}


def from_fault(fault: dict[str, Any]) -> BatchWeaveError:
    """Returns the exception for the body of an `error` message."""
    cls = BY_CODE.get(fault["code"], UnknownError)
    text = str(fault["message"])
    if cls is UnknownError:
        text = f"{fault['name']}: {text}"
    if fault["step"] is not None:
        text += f" (step {fault['step']})"
    if fault["key"] is not None:
        text += f" ({fault['key']})"
    if fault["remedy"]:
        text += f"; {fault['remedy']}"
    return cls(text, step=fault["step"], key=fault["key"], remedy=fault["remedy"] or None)
