"""A job that writes into an inbox: the files of its task attempts, and the list that counts.

    <inbox>/<name>/part-<task, 6 digits>-<attempt>[-<k>].parquet    files of an attempt
    <inbox>/<name>/commit.json                                      create-only, by the driver

A task that runs again may make other rows, so an attempt's files count only when the list names
them. Nothing here imports Ray.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from batchweave.inbox._files import encode_table
from batchweave.inbox._local import LocalFolder
from batchweave.inbox._once import insist, put_once
from batchweave.inbox._rows import Rows, table_of
from batchweave.inbox._store import COMMIT, END, ExistsError, Store
from batchweave.inbox.errors import (
    BadRowError,
    InboxArgumentError,
    InboxDamagedError,
    InboxError,
    NameTakenError,
    StoreRefusedError,
)

FORMAT = 1
FILES_MAX = 100_000
_PROBE = ".job-"
"""Producers leave out names that begin with a dot."""


class File(NamedTuple):
    """A stored file of a task attempt."""

    name: str
    rows: int


class Written(NamedTuple):
    """The files of one task attempt, and the types of their columns by name."""

    task: int
    files: tuple[File, ...]
    columns: dict[str, str]


def write_task(
    folder: Store,
    name: str,
    task: int,
    rows: Iterable[Mapping[str, Any]],
    *,
    file_bytes: int,
    deadline: float,
) -> Written:
    """Stores the rows of one task attempt in files that no other attempt has.

    Raises a BadRowError for a row of another form than the first one.
    """
    attempt = secrets.token_hex(8)
    waiting = Rows(file_bytes)
    files: list[File] = []
    columns: dict[str, str] = {}

    def store() -> None:
        count = waiting.count
        kinds, values = waiting.take()
        columns.update((column, str(kind)) for column, kind in kinds.items())
        more = f"-{len(files)}" if files else ""
        file = File(f"part-{task:06}-{attempt}{more}.parquet", count)
        data = encode_table(table_of(kinds, values), {"writer": name, "rows": str(count)})
        if not put_once(folder, file.name, data, deadline):
            raise InboxDamagedError(
                f"{file.name} in {folder.place} has another content: an earlier answer of the "
                "store was wrong; run the job again",
                key=file.name,
            )
        files.append(file)

    for row in rows:
        converted, size = waiting.converted(row)
        if waiting.count and waiting.bytes + size > file_bytes:
            store()
        waiting.add(converted, size)
    if waiting.count:
        store()
    return Written(task, tuple(files), columns)


def check_free(folder: Store, name: str, deadline: float) -> None:
    """Raises a NameTakenError where the folder has the rows of a job or of a writer."""
    listing = insist(lambda: folder.numbers(None), deadline)
    if not listing.numbers and not listing.ended:
        return
    if insist(lambda: folder.tail(COMMIT, 1), deadline) is not None:
        raise taken_by_job(folder, name)
    found = f"{len(listing.numbers)} numbered files" if listing.numbers else f"the object {END}"
    raise NameTakenError(
        f"{folder.place} has {found}: {name} is the name of a writer; give the job another name",
        key=name,
    )


def taken_by_job(folder: Store, name: str) -> NameTakenError:
    """Returns the error of a second job of this name."""
    return NameTakenError(
        f"{folder.place} has a {COMMIT}: a job of the name {name} has written its rows, which are "
        "kept; nothing was added. Give another run another name, or take this one's rows as they "
        "are",
        key=name,
    )


def check_store(folder: Store, deadline: float) -> None:
    """Raises a StoreRefusedError for an object store that replaces existing objects."""
    if isinstance(folder, LocalFolder):
        return
    probe, data = f"{_PROBE}{secrets.token_hex(8)}", b"a job began\n"
    put_once(folder, probe, data, deadline)

    def is_refused() -> bool:
        try:
            folder.create(probe, data)
        except ExistsError:
            return True
        return False

    if not insist(is_refused, deadline):
        raise StoreRefusedError(
            f"the store of {folder.place} replaces existing objects in a create-only PUT "
            "(If-None-Match: *): two jobs could overwrite each other's rows; use a store that "
            "honours it",
            remedy="use a store that honours If-None-Match: *",
        )


def commit(folder: Store, name: str, tasks: Iterable[Written], rows: int, deadline: float) -> None:
    """Makes the rows of these task attempts the job's, all at once.

    `rows`: the number of rows that the engine has counted.
    """
    ordered = sorted((task for task in tasks if task.files), key=lambda task: task.task)
    check_columns(folder, ordered)
    files = [file for task in ordered for file in task.files]
    if (listed := sum(file.rows for file in files)) != rows:
        raise InboxError(
            f"the files of the job {name} have {listed:,} rows, and the engine has counted "
            f"{rows:,}: nothing was committed to {folder.place}; please report it"
        )
    if len(files) > FILES_MAX:
        raise InboxArgumentError(
            f"the job {name} has written {len(files):,} files into {folder.place}, at most "
            f"{FILES_MAX:,}: give it fewer and larger tasks (dataset.repartition), or divide it "
            "into several jobs"
        )
    if isinstance(folder, LocalFolder):
        _check_shared(folder, files, deadline)
    # Once more: a writer of this name may have begun, and an empty dataset has no start.
    check_free(folder, name, deadline)
    if not put_once(folder, COMMIT, encode_commit(files), deadline):
        raise taken_by_job(folder, name)


def encode_commit(files: Iterable[File]) -> bytes:
    """Returns the content of a job's list."""
    listed = [{"name": file.name, "rows": file.rows} for file in files]
    text = json.dumps({"format": FORMAT, "files": listed}, separators=(",", ":"))
    return text.encode() + b"\n"


def check_columns(folder: Store, tasks: Iterable[Written]) -> None:
    """Raises a BadRowError where the files of two tasks have other columns."""
    first: Written | None = None
    for task in tasks:
        first = first or task
        if task.columns == first.columns:
            continue
        mine, other = first.columns, task.columns
        name = next(n for n in (*mine, *other) if mine.get(n) != other.get(n))
        has, instead = (c.get(name, "absent") for c in (mine, other))
        raise BadRowError(
            f"the columns of a job's files differ: {name!r} is {has} in {first.files[0].name} and "
            f"{instead} in {task.files[0].name}, in {folder.place}; nothing was committed: give "
            "all rows the same columns and types, for example by a cast in dataset.map_batches",
            key=task.files[0].name,
        )


def _check_shared(folder: LocalFolder, files: Iterable[File], deadline: float) -> None:
    """Raises an InboxArgumentError where a task's node has another folder of this path."""
    for file in files:
        if insist(lambda file=file: folder.tail(file.name, 4), deadline) is None:  # type: ignore[misc]
            raise InboxArgumentError(
                f"{folder.place} on the driver lacks {file.name}, which a task has written: with "
                "several nodes the folder must be a shared file system, or take s3://"
            )
