"""aws-cli and boto3, the common clients, work against `batchweave dev-s3`."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import ClientError  # type: ignore[import-untyped]
from site_of_daemons import BINARIES

BINARY = BINARIES / "batchweave"
BUCKET = "batchweave"
MIB = 1024 * 1024


class DevS3:
    """A server process, and the parameters that a client needs."""

    def __init__(self, *arguments: str) -> None:
        command = [str(BINARY), "dev-s3", "--listen", "127.0.0.1:0", "--json", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"{command} ended with {self.process.wait()}"
        self.ready = json.loads(line)
        self.endpoint: str = self.ready["endpoint"]

    def environment(self) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.ready["access_key"],
            "AWS_SECRET_ACCESS_KEY": self.ready["secret_key"],
            "AWS_REGION": self.ready["region"],
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self, secret: str | None = None, **config: Any) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.ready["region"],
            aws_access_key_id=self.ready["access_key"],
            aws_secret_access_key=secret or self.ready["secret_key"],
            config=Config(retries={"total_max_attempts": 1}, **config),
        )

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


@pytest.fixture(scope="module")
def server() -> Iterator[DevS3]:
    server = DevS3("--seed", "1")
    yield server
    assert server.stop() == 0, "SIGTERM must end it cleanly"


@pytest.fixture
def start() -> Iterator[Callable[..., DevS3]]:
    started: list[DevS3] = []

    def start(*arguments: str) -> DevS3:
        started.append(DevS3(*arguments))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


class Aws:
    """The AWS CLI with the credentials of a server."""

    def __init__(self, server: DevS3) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("aws_commands.py"))],
            env=server.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str) -> str:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(arguments) + "\n")
        self.process.stdin.flush()
        code, output, errors = json.loads(self.process.stdout.readline())
        assert code == 0, f"aws {' '.join(arguments)}: {output}{errors}"
        return str(output)


@pytest.fixture
def aws(server: DevS3) -> Iterator[Aws]:
    aws = Aws(server)
    with aws.process:
        yield aws


def code(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])


def random_bytes(count: int) -> bytes:
    """Return bytes that do not repeat, the same in every run."""
    return hashlib.shake_256(b"dev-s3").digest(count)


def test_put_get_range_head_delete(server: DevS3) -> None:
    s3 = server.client()
    put = s3.put_object(
        Bucket=BUCKET,
        Key="a/b c+ü.txt",
        Body=b"hello world",
        Metadata={"who": "me"},
        ContentType="text/plain",
    )
    assert put["ETag"].endswith('0b-1"')
    other = s3.put_object(Bucket=BUCKET, Key="other", Body=b"hello worlds")
    assert other["ETag"] != put["ETag"]
    digest = hashlib.md5(b"hello world")
    sent = base64.b64encode(digest.digest()).decode()
    with_md5 = s3.put_object(Bucket=BUCKET, Key="other", Body=b"hello world", ContentMD5=sent)
    assert with_md5["ETag"] == f'"{digest.hexdigest()}"'
    got = s3.get_object(Bucket=BUCKET, Key="a/b c+ü.txt")
    assert got["Body"].read() == b"hello world"
    assert got["Metadata"] == {"who": "me"}
    assert got["ContentType"] == "text/plain"
    part = s3.get_object(Bucket=BUCKET, Key="a/b c+ü.txt", Range="bytes=6-8")
    assert part["Body"].read() == b"wor"
    assert part["ContentRange"] == "bytes 6-8/11"
    assert part["ResponseMetadata"]["HTTPStatusCode"] == 206
    assert (
        s3.get_object(Bucket=BUCKET, Key="a/b c+ü.txt", Range="bytes=-3")["Body"].read() == b"rld"
    )
    with pytest.raises(ClientError) as error:
        s3.get_object(Bucket=BUCKET, Key="a/b c+ü.txt", Range="bytes=11-")
    assert code(error) == "InvalidRange"
    assert s3.head_object(Bucket=BUCKET, Key="a/b c+ü.txt")["ContentLength"] == 11
    s3.delete_object(Bucket=BUCKET, Key="a/b c+ü.txt")
    s3.delete_object(Bucket=BUCKET, Key="a/b c+ü.txt")
    with pytest.raises(ClientError) as error:
        s3.get_object(Bucket=BUCKET, Key="a/b c+ü.txt")
    assert code(error) == "NoSuchKey"
    with pytest.raises(ClientError) as error:
        s3.get_object(Bucket="no-such-bucket", Key="x")
    assert code(error) == "NoSuchBucket"


def test_conditional_puts(server: DevS3) -> None:
    s3 = server.client()
    first = s3.put_object(Bucket=BUCKET, Key="once", Body=b"1", IfNoneMatch="*")
    with pytest.raises(ClientError) as error:
        s3.put_object(Bucket=BUCKET, Key="once", Body=b"2", IfNoneMatch="*")
    assert code(error) == "PreconditionFailed"
    s3.put_object(Bucket=BUCKET, Key="once", Body=b"3", IfMatch=first["ETag"])
    with pytest.raises(ClientError) as error:
        s3.put_object(Bucket=BUCKET, Key="once", Body=b"4", IfMatch=first["ETag"])
    assert code(error) == "PreconditionFailed"
    assert s3.get_object(Bucket=BUCKET, Key="once")["Body"].read() == b"3"


CHECK_INPUT = b"123456789"
CHECK_VALUES = {
    "CRC32": (0xCBF43926).to_bytes(4, "big"),
    "CRC32C": (0xE3069283).to_bytes(4, "big"),
    "CRC64NVME": (0xAE8B14860A799888).to_bytes(8, "big"),
    "SHA1": hashlib.sha1(CHECK_INPUT).digest(),
    "SHA256": hashlib.sha256(CHECK_INPUT).digest(),
}


@pytest.mark.parametrize("algorithm", sorted(CHECK_VALUES))
def test_checksums_are_verified_and_returned(server: DevS3, algorithm: str) -> None:
    s3 = server.client()
    field, value = f"Checksum{algorithm}", base64.b64encode(CHECK_VALUES[algorithm]).decode()
    put = s3.put_object(Bucket=BUCKET, Key="sum", Body=CHECK_INPUT, **{field: value})
    assert put[field] == value
    assert s3.head_object(Bucket=BUCKET, Key="sum", ChecksumMode="ENABLED")[field] == value
    with pytest.raises(ClientError) as error:
        s3.put_object(Bucket=BUCKET, Key="sum", Body=b"123456788", **{field: value})
    assert code(error) == "BadDigest"


def test_checksums_in_trailers(server: DevS3) -> None:
    """A body of unknown checksum is sent in signed chunks with the checksum after it."""
    s3 = server.client()
    put = s3.put_object(
        Bucket=BUCKET, Key="trailer", Body=io.BytesIO(CHECK_INPUT), ChecksumAlgorithm="CRC32"
    )
    assert base64.b64decode(put["ChecksumCRC32"]) == CHECK_VALUES["CRC32"]
    got = s3.get_object(Bucket=BUCKET, Key="trailer", ChecksumMode="ENABLED")
    assert got["ChecksumCRC32"] == put["ChecksumCRC32"]
    assert got["Body"].read() == CHECK_INPUT


def test_listing_by_pages_and_folders(server: DevS3) -> None:
    s3 = server.client()
    keys = {f"list/{folder}/{n:02}" for folder in "abc" for n in range(9)} | {"list/top&<>"}
    for key in keys:
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"")
    pages = list(
        s3.get_paginator("list_objects_v2").paginate(
            Bucket=BUCKET, Prefix="list/", PaginationConfig={"PageSize": 4}
        )
    )
    assert len(pages) == 7
    listed = [entry["Key"] for page in pages for entry in page["Contents"]]
    assert listed == sorted(keys)
    folders = s3.list_objects_v2(Bucket=BUCKET, Prefix="list/", Delimiter="/")
    assert [entry["Prefix"] for entry in folders["CommonPrefixes"]] == [
        "list/a/",
        "list/b/",
        "list/c/",
    ]
    assert [entry["Key"] for entry in folders["Contents"]] == ["list/top&<>"]
    after = s3.list_objects_v2(Bucket=BUCKET, Prefix="list/", StartAfter="list/c/07")
    assert [entry["Key"] for entry in after["Contents"]] == ["list/c/08", "list/top&<>"]
    assert len(s3.list_objects(Bucket=BUCKET, Prefix="list/a/")["Contents"]) == 9
    answer = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in keys]})
    assert len(answer["Deleted"]) == len(keys)
    assert s3.list_objects_v2(Bucket=BUCKET, Prefix="list/")["KeyCount"] == 0


def test_unordered_listing_is_complete(start: Callable[..., DevS3]) -> None:
    s3 = start("--unordered-list", "--seed", "3").client()
    keys = [f"k{n:03}" for n in range(50)]
    for key in keys:
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"")
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket=BUCKET, PaginationConfig={"PageSize": 7}
    )
    listed = [entry["Key"] for page in pages for entry in page["Contents"]]
    assert sorted(listed) == keys
    assert listed != keys


def test_multipart_upload(server: DevS3, tmp_path: Path) -> None:
    s3 = server.client()
    body = random_bytes(40 * MIB)
    (tmp_path / "large").write_bytes(body)
    s3.upload_file(str(tmp_path / "large"), BUCKET, "large")
    head = s3.head_object(Bucket=BUCKET, Key="large")
    assert head["ContentLength"] == len(body)
    assert head["ETag"].endswith('-5"')
    s3.download_file(BUCKET, "large", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == body

    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="large")["UploadId"]
    part = s3.upload_part(Bucket=BUCKET, Key="large", UploadId=upload, PartNumber=1, Body=b"end")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    assert len(s3.list_parts(Bucket=BUCKET, Key="large", UploadId=upload)["Parts"]) == 1
    assert s3.list_multipart_uploads(Bucket=BUCKET)["Uploads"][0]["UploadId"] == upload
    with pytest.raises(ClientError) as error:
        s3.complete_multipart_upload(
            Bucket=BUCKET, Key="large", UploadId=upload, MultipartUpload=parts, IfNoneMatch="*"
        )
    assert code(error) == "PreconditionFailed"
    s3.abort_multipart_upload(Bucket=BUCKET, Key="large", UploadId=upload)
    with pytest.raises(ClientError) as error:
        s3.list_parts(Bucket=BUCKET, Key="large", UploadId=upload)
    assert code(error) == "NoSuchUpload"
    s3.copy_object(Bucket=BUCKET, Key="copy", CopySource={"Bucket": BUCKET, "Key": "large"})
    assert s3.head_object(Bucket=BUCKET, Key="copy")["ContentLength"] == len(body)


def test_signatures_are_checked(server: DevS3) -> None:
    with pytest.raises(ClientError) as error:
        server.client(secret="wrong").list_objects_v2(Bucket=BUCKET)
    assert code(error) == "SignatureDoesNotMatch"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{server.endpoint}/{BUCKET}/once")
    assert refused.value.code == 403


def test_presigned_urls(server: DevS3) -> None:
    s3 = server.client(signature_version="s3v4")
    where = {"Bucket": BUCKET, "Key": "presigned"}
    request = urllib.request.Request(
        s3.generate_presigned_url("put_object", where), data=b"by url", method="PUT"
    )
    assert urllib.request.urlopen(request).status == 200
    assert (
        urllib.request.urlopen(s3.generate_presigned_url("get_object", where)).read() == b"by url"
    )


def test_virtual_hosted_style(server: DevS3) -> None:
    s3 = server.client(signature_version="s3v4", s3={"addressing_style": "virtual"})
    port = server.endpoint.rsplit(":", 1)[1]
    s3.put_object(Bucket=BUCKET, Key="virtual", Body=b"v")
    named = boto3.client(
        "s3",
        endpoint_url=f"http://localhost:{port}",
        region_name=server.ready["region"],
        aws_access_key_id=server.ready["access_key"],
        aws_secret_access_key=server.ready["secret_key"],
        config=Config(signature_version="s3v4", s3={"addressing_style": "virtual"}),
    )
    url = named.generate_presigned_url("get_object", {"Bucket": BUCKET, "Key": "virtual"})
    host = f"{BUCKET}.localhost:{port}"
    assert host in url, url
    request = urllib.request.Request(url.replace(host, f"127.0.0.1:{port}"), headers={"Host": host})
    assert urllib.request.urlopen(request).read() == b"v"


def test_aws_cli(aws: Aws, tmp_path: Path) -> None:
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "one").write_bytes(b"one")
    large = random_bytes(40 * MIB)
    (tmp_path / "in" / "sub" / "large").write_bytes(large)
    aws("s3", "mb", "s3://cli")
    assert "cli" in aws("s3", "ls")
    aws("s3", "cp", str(tmp_path / "in" / "one"), "s3://cli/one", "--quiet")
    aws("s3", "sync", str(tmp_path / "in"), "s3://cli/tree", "--quiet")
    assert "PRE tree/" in aws("s3", "ls", "s3://cli/")
    assert "sub/large" in aws("s3", "ls", "s3://cli/tree/", "--recursive")
    aws("s3", "sync", "s3://cli/tree", str(tmp_path / "out"), "--quiet")
    assert (tmp_path / "out" / "sub" / "large").read_bytes() == large
    assert aws("s3", "sync", str(tmp_path / "in"), "s3://cli/tree", "--dryrun") == ""
    aws("s3", "mv", "s3://cli/one", "s3://cli/two", "--quiet")
    assert aws("s3", "cp", "s3://cli/two", "-") == "one"
    url = aws("s3", "presign", "s3://cli/two").strip()
    assert urllib.request.urlopen(url).read() == b"one"
    aws("s3", "rm", "s3://cli/", "--recursive", "--quiet")
    aws("s3", "rb", "s3://cli")
    assert "cli" not in aws("s3", "ls")


def test_a_folder_survives_a_killed_server(start: Callable[..., DevS3], tmp_path: Path) -> None:
    first = start("--dir", str(tmp_path / "data"))
    first.client().put_object(Bucket=BUCKET, Key="kept", Body=b"x" * MIB, Metadata={"a": "b"})
    first.process.kill()
    first.process.wait()
    second = start("--dir", str(tmp_path / "data"))
    got = second.client().get_object(Bucket=BUCKET, Key="kept")
    assert got["Body"].read() == b"x" * MIB
    assert got["Metadata"] == {"a": "b"}


def test_lost_answers_are_deeds_done(start: Callable[..., DevS3]) -> None:
    server = start("--faults", "put.lost=1", "--seed", "1")
    s3 = server.client()
    with pytest.raises(Exception, match=r"(?i)connection|reset"):
        s3.put_object(Bucket=BUCKET, Key="k", Body=b"done", IfNoneMatch="*")
    assert s3.get_object(Bucket=BUCKET, Key="k")["Body"].read() == b"done"


def test_the_banner_says_what_it_is_for() -> None:
    command = [str(BINARY), "dev-s3", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if "Ctrl-C" in line:
            break
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0
    text = "".join(lines)
    assert "Not for production" in text
    assert "export AWS_ENDPOINT_URL=http://127.0.0.1:" in text


def test_a_wrong_specification_is_explained() -> None:
    command = [str(BINARY), "dev-s3", "--faults", "lsot=0.1"]
    result = subprocess.run(command, text=True, capture_output=True, check=False)
    assert result.returncode != 0
    assert "unknown fault `lsot`" in result.stderr
