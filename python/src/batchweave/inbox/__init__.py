"""Writes samples into an inbox: a folder of the store that producers follow.

    with batchweave.inbox.open("s3://bucket/inbox", "rollouts-0") as inbox:
        inbox.put({"tokens": tokens, "loss_mask": mask, "reward": 0.5})

Needs `pip install "batchweave[inbox]"`. A row is durable, and will be read once, when
`durable_rows` counts it. docs/inbox.md is the page.
"""

from __future__ import annotations

import os
import secrets
from typing import Any

from batchweave._names import names_checked
from batchweave.inbox import errors as errors
from batchweave.inbox._core import Core
from batchweave.inbox._drive import Driver
from batchweave.inbox._lag import lag_of
from batchweave.inbox._local import LocalFolder
from batchweave.inbox._location import folder_of
from batchweave.inbox._steps import check_newest, step_shape
from batchweave.inbox._store import package
from batchweave.inbox._writer import Writer
from batchweave.inbox.errors import (
    BadRowError,
    InboxArgumentError,
    InboxDamagedError,
    InboxError,
    InboxExtraError,
    InboxRewoundError,
    LagUnknownError,
    RowTooLargeError,
    StoreNotAnsweringError,
    StoreRefusedError,
    WriterClosedError,
    WriterEndedError,
    WriterFencedError,
)

# Without open: `from batchweave.inbox import *` must not hide the real one.
__all__ = [
    "BadRowError",
    "InboxArgumentError",
    "InboxDamagedError",
    "InboxError",
    "InboxExtraError",
    "InboxRewoundError",
    "LagUnknownError",
    "RowTooLargeError",
    "StoreNotAnsweringError",
    "StoreRefusedError",
    "Writer",
    "WriterClosedError",
    "WriterEndedError",
    "WriterFencedError",
]

_FILE_BYTES_MAX = 1 << 30


@names_checked
def open(
    location: str | os.PathLike[str],
    name: str,
    *,
    file_bytes: int = 8 << 20,
    linger: float = 0.5,
    slices: int | None = None,
    rows_per_slice: int | None = None,
    stream: str | os.PathLike[str] | None = None,
    max_lag_steps: int | None = None,
    rows_per_step: int | None = None,
    writers: int = 1,
    deadline: float = 120.0,
    at_least: int = 0,
    allow_gaps: bool = False,
    endpoint: str | None = None,
    region: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
    session_token: str | None = None,
    store: Any = None,
) -> Writer:
    """Opens a writer of an inbox, at the row after the newest durable one.

    `location`: the inbox: s3://bucket/inbox, file:///data/inbox, a path, or gs:// and az://, which
    are not tested. `name`: the writer's, as a producer's; one process at a time writes under it.
    `file_bytes`: the size of a file before compression, and the largest row, in bytes. `linger`:
    seconds after which a row is uploaded in any case. `deadline`: seconds for which a request is
    repeated before the call fails.
    `slices`, `rows_per_slice`: for a writer of whole steps by `put_step`, as the stream has them.
    `stream`: the root of the stream that the rows go to, as s3://bucket/stream or a path, so that
    `lag` can be read. `max_lag_steps`: the most steps that are trained before the row that `put`
    adds; it waits while there are more. `rows_per_step`: for a lag without `slices`, the most rows
    that a step takes. `writers`: the number of writers that put alike into this inbox.
    `at_least`: rows that the caller knows to be durable; an inbox with fewer, as a restored backup
    has, is an `InboxRewoundError`. `allow_gaps`: whether files may be missing between others.
    `endpoint`, `region`, `access_key`, `secret_key`, `session_token`: of S3; default: the AWS
    environment variables, then the machine's role. `store`: instead, an obstore store of the
    bucket.
    Raises an `InboxDamagedError` for a folder that is not as writers leave it, a
    `StoreRefusedError` and a `StoreNotAnsweringError`.
    """
    if not isinstance(file_bytes, int) or not 1 <= file_bytes <= _FILE_BYTES_MAX:
        raise InboxArgumentError(
            f"file_bytes={file_bytes!r}: give bytes from 1 to {_FILE_BYTES_MAX:,}"
        )
    for what, seconds in (("linger", linger), ("deadline", deadline)):
        if not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
            raise InboxArgumentError(f"{what}={seconds!r}: give seconds, for example {what}=0.5")
    shape = step_shape(slices, rows_per_slice)
    package("pyarrow")
    s3 = {
        "endpoint": endpoint,
        "region": region,
        "access_key": access_key,
        "secret_key": secret_key,
        "session_token": session_token,
    }
    folder = folder_of(location, name, store, file_bytes, **s3)
    step_rows = shape.rows if shape else rows_per_step
    lag = lag_of(location, name, stream, s3, step_rows, writers, max_lag_steps, deadline)
    probes = not isinstance(folder, LocalFolder)
    core = Core(secrets.token_hex(8), allow_gaps=allow_gaps, probes=probes)
    driver = Driver(folder, name, core, deadline)
    driver.run()
    if driver.core.rows < at_least:
        raise InboxRewoundError(
            f"{folder.place} holds {driver.core.rows} rows of this writer, and {at_least} were "
            "durable (at_least=): it was restored from an older backup, or is another inbox; "
            "producers may have read rows that are gone, so write on under another name"
        )
    check_newest(shape, driver.step_rows, folder.place)
    return Writer(
        driver, folder.place, name, file_bytes=file_bytes, linger=linger, shape=shape, lag=lag
    )
