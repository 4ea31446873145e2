"""A dataset's rows into an inbox, each once, all at once or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from batchweave.inbox import check_arguments
from batchweave.inbox._location import folder_of
from batchweave.inbox._store import COMMIT, Store
from batchweave.inbox.errors import InboxError
from batchweave.ray._job import Written, check_free, check_store, commit, write_task
from batchweave.ray._package import package
from batchweave.ray._rows import rows_of

_Datasink: Any = package("ray.data").Datasink


class Inbox(_Datasink):  # type: ignore[misc]
    """A Ray Data sink: the rows of one dataset, under a name in an inbox.

    `dataset.write_datasink(Inbox("s3://bucket/inbox", "job-7"))` returns when all rows are durable
    and counted; when it fails, none is. A name is for one job: a second one is refused with a
    `NameTakenError` before a task of it writes.
    """

    def __init__(
        self,
        location: str | os.PathLike[str],
        name: str,
        *,
        file_bytes: int = 64 << 20,
        deadline: float = 120.0,
        endpoint: str | None = None,
        region: str | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        session_token: str | None = None,
        store: Any = None,
    ) -> None:
        """Makes a sink; requests begin with the job.

        `location`: the inbox, as in `batchweave.inbox.open`; all nodes must reach it. `name`: the
        job's, as a writer's. `file_bytes`: the size of a file before compression, and the largest
        row, in bytes. `deadline`: seconds for which a request is repeated before its task fails.
        `endpoint`, `region`, `access_key`, `secret_key`, `session_token`: of S3; default: the AWS
        environment variables of each node, then its role. `store`: instead, an obstore store of
        the bucket. Ray sends all of them to the tasks.
        """
        check_arguments(file_bytes, deadline=deadline)
        self.place = os.fspath(location) if isinstance(location, os.PathLike) else location
        self.name = name
        self._file_bytes, self._deadline = file_bytes, deadline
        self._store = store
        self._s3 = {
            "endpoint": endpoint,
            "region": region,
            "access_key": access_key,
            "secret_key": secret_key,
            "session_token": session_token,
        }
        self._folder()

    def on_write_start(self, schema: Any = None) -> None:  # noqa: ARG002
        """Refuses a name that is taken; called on the driver, before tasks begin."""
        folder = self._folder()
        check_free(folder, self.name, self._deadline)
        check_store(folder, self._deadline)

    def write(self, blocks: Iterable[Any], ctx: Any) -> Written:
        """Stores the rows of one task attempt; called in the task."""
        return write_task(
            self._folder(),
            self.name,
            ctx.task_idx,
            _rows(blocks),
            file_bytes=self._file_bytes,
            deadline=self._deadline,
        )

    def on_write_complete(self, write_result: Any) -> None:
        """Lists the files of the attempts that won; called on the driver, after all tasks."""
        rows, tasks = int(write_result.num_rows), write_result.write_returns
        commit(self._folder(), self.name, tasks, rows, self._deadline)

    def on_write_failed(self, error: Exception) -> None:
        """Raises an error of a task without Ray's frames; called on the driver."""
        cause = getattr(error, "cause", None)
        if isinstance(cause, InboxError):
            # Ray appends its settings of retries in further lines.
            message = str(cause.args[0]).partition("\n")[0]
            raise type(cause)(message, key=cause.key, remedy=cause.remedy) from None

    def get_name(self) -> str:
        """Returns the name of the tasks in Ray's views."""
        return f"Inbox({self.name})"

    def __repr__(self) -> str:
        return f"<Inbox {self.name!r} in {self.place}: {COMMIT} when all tasks are done>"

    def _folder(self) -> Store:
        return folder_of(self.place, self.name, self._store, self._file_bytes, **self._s3)


def _rows(blocks: Iterable[Any]) -> Iterator[dict[str, Any]]:
    accessor = package("ray.data.block").BlockAccessor
    for block in blocks:
        yield from rows_of(accessor.for_block(block).to_arrow())
