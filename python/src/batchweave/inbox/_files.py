"""Files of an inbox: Parquet, with the writer's numbers in the metadata of the footer."""

from __future__ import annotations

import io
import json
from typing import Any

from batchweave.inbox._core import File, Takeover
from batchweave.inbox._store import Store, file_name, package
from batchweave.inbox.errors import InboxDamagedError

PREFIX = "batchweave."
_TAIL = 64 * 1024
_FOOTER_END = 8
"""The length of the footer, and the magic number."""
_MAGIC = b"PAR1"


def encode(table: Any, writer: str, file: File, step_rows: int = 0) -> bytes:
    """Returns a numbered file of a writer.

    `step_rows`: the rows of each step, for a file of whole steps; 0 for one of rows.
    """
    metadata = {
        "writer": writer,
        "number": str(file.number),
        "first_row": str(file.first_row),
        "rows": str(file.rows),
        "instance": file.instance,
        "state": file.state,
        "state_row": str(file.state_row),
        "takeovers": json.dumps(file.takeovers, separators=(",", ":")),
    }
    if step_rows:
        metadata["step_rows"] = str(step_rows)
    return encode_table(table, metadata)


def encode_table(table: Any, metadata: dict[str, str]) -> bytes:
    """Returns a Parquet file of one row group, compressed with zstd."""
    parquet = package("pyarrow.parquet")
    sink = io.BytesIO()
    # Dictionaries cost time and help texts and tokens little.
    with parquet.ParquetWriter(
        sink, table.schema, compression="zstd", compression_level=1, use_dictionary=False
    ) as to:
        to.write_table(table, row_group_size=max(1, table.num_rows))
        to.add_key_value_metadata({PREFIX + name: value for name, value in metadata.items()})
    return sink.getvalue()


class Footer:
    """The footer of a stored file: its numbers, its schema, and the rows of a step or 0."""

    def __init__(self, file: File, schema: Any, step_rows: int) -> None:
        self.file, self.schema, self.step_rows = file, schema, step_rows


def read_footer(store: Store, writer: str, number: int) -> Footer | None:
    """Reads the footer of a file, None where there is no such file.

    Raises an InboxDamagedError for a file that is not this writer's.
    """
    name = file_name(number)
    if (tail := store.tail(name, _TAIL)) is None:
        return None
    data, size = tail
    needed = _FOOTER_END + int.from_bytes(data[-8:-4], "little")
    if data[-4:] == _MAGIC and len(data) < needed <= size:
        if (tail := store.tail(name, needed)) is None:
            return None
        data, _ = tail
    try:
        parsed = package("pyarrow.parquet").read_metadata(io.BytesIO(data))
    except package("pyarrow").ArrowException as reason:
        raise _damaged(store, name, f"it is not a Parquet file ({reason})") from None
    return _checked(store, writer, number, parsed)


def _checked(store: Store, writer: str, number: int, parsed: Any) -> Footer:
    name = file_name(number)
    found = {key.decode(errors="replace"): value for key, value in (parsed.metadata or {}).items()}

    def text(key: str) -> str:
        if (value := found.get(PREFIX + key)) is None:
            raise _damaged(store, name, f"its metadata lacks {PREFIX}{key}: no writer made it")
        return bytes(value).decode(errors="replace")

    def whole(key: str) -> int:
        value = text(key)
        if not (value.isascii() and value.isdigit() and len(value) <= 20):
            raise _damaged(store, name, f"{PREFIX}{key} is {value!r}, expected a number")
        return int(value)

    file = File(
        number, whole("first_row"), whole("rows"), text("instance"), text("state"),
        whole("state_row"), _takeovers(found.get(PREFIX + "takeovers")),
    )  # fmt: skip
    if text("writer") != writer:
        raise _damaged(store, name, f"it belongs to the writer {text('writer')!r}")
    if whole("number") != number:
        raise _damaged(store, name, f"it was written as file {whole('number')}")
    if file.rows != parsed.num_rows:
        raise _damaged(store, name, f"it has {parsed.num_rows} rows, its metadata {file.rows}")
    step_rows = whole("step_rows") if PREFIX + "step_rows" in found else 0
    if step_rows and file.rows % step_rows:
        raise _damaged(store, name, f"it has {file.rows} rows, and steps of {step_rows}")
    try:
        json.loads(file.state)
    except ValueError:
        raise _damaged(store, name, f"{PREFIX}state is not JSON") from None
    return Footer(file, parsed.schema.to_arrow_schema().remove_metadata(), step_rows)


def _takeovers(value: bytes | None) -> tuple[Takeover, ...]:
    """Returns the instances that a file names; none for a file of an earlier release, or of others.

    They only tell late files from missing ones, so a list that is none makes no file bad.
    """
    try:
        found = json.loads(value or b"[]")
        takeovers = tuple(Takeover(int(first), str(instance)) for first, instance in found)
    except (ValueError, TypeError):
        return ()
    return takeovers if list(takeovers) == sorted(takeovers) else ()


def _damaged(store: Store, name: str, why: str) -> InboxDamagedError:
    return InboxDamagedError(
        f"cannot use {name} in {store.place}: {why}; take away the foreign file, or write under a "
        "name of its own",
        key=name,
    )
