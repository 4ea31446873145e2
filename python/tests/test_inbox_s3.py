"""Writers on a real S3 server: arguments, permissions, faults, many files, no credentials."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from inbox_world import DEV_S3, DevS3, read_as_producer, stored

from batchweave import inbox
from batchweave.inbox import _drive
from batchweave.inbox._core import Listing
from batchweave.inbox._drive import Backoff
from batchweave.inbox._objects import ObjectFolder
from batchweave.inbox._remedies import S3
from batchweave.inbox._store import WINDOW

pytestmark = DEV_S3
LOCATION = "s3://batchweave/some/inbox"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_drive, "BACKOFF", Backoff(0.001, 0.05, 3.0))


@pytest.fixture
def start() -> Iterator[Callable[..., DevS3]]:
    started: list[DevS3] = []

    def start(*arguments: str) -> DevS3:
        started.append(DevS3(*arguments))
        return started[-1]

    yield start
    for server in started:
        server.end()


@pytest.fixture
def s3(start: Callable[..., DevS3]) -> DevS3:
    return start()


def write(writer: inbox.Writer, *texts: str) -> None:
    for text in texts:
        writer.put({"text": text})
        writer.flush()


def test_rows_are_below_the_inbox_and_go_on(s3: DevS3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    with inbox.open(f"{LOCATION}/", "w") as writer:
        write(writer, "a", "b")
    with inbox.open(LOCATION, "w") as writer:
        assert writer.next_row == 2
        write(writer, "c")
        writer.finish()
    with inbox.open(LOCATION, "w") as writer:
        assert writer.ended
    files = s3.files("some/inbox/w/")
    assert sorted(files) == [*(f"{number:020}.parquet" for number in range(3)), "end"]
    assert [row["text"] for row in read_as_producer(stored(files))] == ["a", "b", "c"]


def test_names_that_begin_alike_are_kept_apart(s3: DevS3) -> None:
    for name in ("w", "w1", "w-1"):
        with inbox.open(LOCATION, name, **s3.arguments) as writer:
            assert writer.next_row == 0
            write(writer, name)
    with inbox.open(LOCATION, "w", **s3.arguments) as writer:
        assert writer.next_row == 1


@pytest.mark.parametrize("fault", ["lost", "error", "slow", "conflict", "reset"])
def test_faults_of_puts_are_resolved(start: Callable[..., DevS3], fault: str) -> None:
    s3 = start("--faults", f"put.{fault}=0.5,list.error=0.3,get.reset=0.3", "--seed", "11")
    texts = [str(number) for number in range(8)]
    with inbox.open(LOCATION, "w", **s3.arguments) as writer:
        write(writer, *texts)
        writer.finish()
    rows = read_as_producer(stored(s3.files("some/inbox/w/")))
    assert [row["text"] for row in rows] == texts


def test_a_server_that_is_gone_is_named(s3: DevS3) -> None:
    s3.process.kill()
    s3.process.wait()
    with pytest.raises(inbox.StoreNotAnsweringError) as failed:
        inbox.open(LOCATION, "w", deadline=0.1, **s3.arguments)
    assert "cannot list the files in s3://batchweave/some/inbox/w/" in str(failed.value)
    assert "check the store, its endpoint and the network" in str(failed.value)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"secret_key": "wrong"}, "check the secret key"),
        ({"access_key": "nobody"}, "check the access key"),
    ],
)
def test_wrong_keys_are_named(s3: DevS3, change: dict[str, str], why: str) -> None:
    with pytest.raises(inbox.StoreRefusedError) as refused:
        inbox.open(LOCATION, "w", **{**s3.arguments, **change})
    assert why in str(refused.value)
    assert s3.arguments["secret_key"] not in str(refused.value)


def test_a_missing_bucket_is_named(s3: DevS3) -> None:
    with pytest.raises(inbox.StoreRefusedError, match="create the bucket, or correct its name"):
        inbox.open("s3://no-such-bucket/inbox", "w", **s3.arguments)


BUCKET, OBJECTS = "arn:aws:s3:::batchweave", "arn:aws:s3:::batchweave/*"
MAY = {
    "list": {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": BUCKET},
    "put": {"Effect": "Allow", "Action": "s3:PutObject", "Resource": OBJECTS},
    "get": {"Effect": "Allow", "Action": "s3:GetObject", "Resource": OBJECTS},
}


def limited(start: Callable[..., DevS3], tmp_path: Path, *may: str) -> tuple[DevS3, dict[str, Any]]:
    policy = {"Version": "2012-10-17", "Statement": [MAY[name] for name in may]}
    (tmp_path / "policy.json").write_text(json.dumps(policy))
    s3 = start("--policy", f"limited={tmp_path / 'policy.json'}")
    return s3, {**s3.arguments, "access_key": "limited"}


def test_no_permission_to_list_is_named_at_the_start(
    start: Callable[..., DevS3], tmp_path: Path
) -> None:
    s3, arguments = limited(start, tmp_path, "put", "get")
    with pytest.raises(inbox.StoreRefusedError, match=r"allow s3:ListBucket"):
        inbox.open(LOCATION, "w", **arguments)
    assert s3.files("some/") == {}


def test_no_permission_to_put_is_named_and_loses_nothing(
    start: Callable[..., DevS3], tmp_path: Path
) -> None:
    s3, arguments = limited(start, tmp_path, "list", "get")
    writer = inbox.open(LOCATION, "w", **arguments)
    writer.put({"text": "a"})
    with pytest.raises(inbox.StoreRefusedError, match=r"allow s3:PutObject") as refused:
        writer.flush()
    assert str(refused.value.remedy).startswith("allow s3:PutObject")
    with pytest.raises(inbox.StoreRefusedError):
        writer.close()
    assert writer.durable_rows == 0
    assert s3.files("some/") == {}


def test_no_permission_to_read_is_named(start: Callable[..., DevS3], tmp_path: Path) -> None:
    s3, arguments = limited(start, tmp_path, "list", "put")
    with inbox.open(LOCATION, "w", **s3.arguments) as writer:
        write(writer, "a")
    with pytest.raises(inbox.StoreRefusedError, match=r"allow s3:GetObject"):
        inbox.open(LOCATION, "w", **arguments)


@pytest.mark.parametrize("newest", [(999, 1000, 1001), (2999,), (4321,)])
def test_the_newest_of_many_files_is_found(s3: DevS3, newest: tuple[int, ...]) -> None:
    """Finds the newest file; of several numbers, each in turn is the newest."""
    import obstore
    from obstore.store import S3Store

    with inbox.open(LOCATION, "w", **s3.arguments) as writer:
        write(writer, "a")
    (data,) = s3.files("some/inbox/w/").values()
    store = S3Store(
        "batchweave",
        prefix="some/inbox/w",
        config={"access_key_id": "batchweave", "secret_access_key": s3.ready["secret_key"]},
        endpoint=s3.ready["endpoint"],
        region="us-east-1",
        client_options={"allow_http": True},
    )
    put = max(1, newest[0] - 1500)
    for last in newest:
        for number in range(put, last):
            obstore.put(store, f"{number:020}.parquet", b"")
        obstore.put(store, f"{last:020}.parquet", data)
        # It is the file of number 0 under another number, which the message names.
        with pytest.raises(inbox.InboxDamagedError, match="it was written as file 0") as damaged:
            inbox.open(LOCATION, "w", **s3.arguments)
        assert damaged.value.key == f"{last:020}.parquet"
        put = last


class ManyFiles(ObjectFolder):
    """A folder of files from a number to another one, and the number of LIST requests."""

    def __init__(self, first: int, newest: int) -> None:
        super().__init__(None, "inbox/w/", "many", S3)
        self.first, self.newest, self.lists = first, newest, 0

    def _list(self, after: int, *, whole: bool = True) -> Listing:
        first = max(self.first, after + 1)
        there = range(first, self.newest + 1)
        self.lists += 1 + max(0, len(there) - 1) // WINDOW if whole else 1
        return Listing(tuple(there if whole else there[:WINDOW]), False)


@pytest.mark.parametrize("newest", [*range(997, 1004), 123_456, 999_999, 2**40])
def test_the_start_lists_little_of_many_files(newest: int) -> None:
    for first in (0, max(0, newest - 2500)):
        folder = ManyFiles(first, newest)
        numbers = folder.numbers(None).numbers
        assert numbers[-1] == newest
        assert len(numbers) >= min(WINDOW, newest - first + 1)
        assert folder.lists <= 2 * newest.bit_length()


def test_an_obstore_store_of_the_caller_is_used(s3: DevS3) -> None:
    from obstore.store import S3Store

    store = S3Store(
        "batchweave",
        endpoint=s3.ready["endpoint"],
        access_key_id=s3.ready["access_key"],
        secret_access_key=s3.ready["secret_key"],
        region="us-east-1",
        client_options={"allow_http": True},
    )
    with inbox.open(LOCATION, "w", store=store) as writer:
        write(writer, "a")
    assert len(s3.files("some/inbox/w/")) == 1
