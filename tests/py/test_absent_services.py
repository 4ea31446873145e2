"""What daemons, dev-s3 and the planner do not do, as the documents say (absent_features.toml)."""

from __future__ import annotations

import ctypes
import http.server
import itertools
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import batchweave
import boto3  # type: ignore[import-untyped]
import pytest
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import ClientError  # type: ignore[import-untyped]
from probes import make, outside, run
from site_of_daemons import BINARIES, Site, eventually, get


def test_a_plan_contacts_no_store() -> None:
    asked: list[str] = []

    class Denies(http.server.BaseHTTPRequestHandler):
        """Counts and refuses each request."""

        raw_requestline: bytes

        def parse_request(self) -> bool:
            asked.append(self.raw_requestline.decode())
            super().parse_request()
            self.send_error(403)
            return False

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Denies) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "AWS_ENDPOINT_URL")
        env = {**os.environ, **dict.fromkeys(names, address), "BATCHWEAVE_STORE": "s3://bucket/x"}
        env |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "here"}
        assert run("batchweave", "status", env=env).code != 0
        assert asked, "this server sees requests"
        asked.clear()
        load = ["--producers=2", "--rate=1", "--tgb-bytes=1MiB", "--nodes=2"]
        assert run("batchweave", "plan", *load, "--store=s3-standard", env=env).code == 0
        assert asked == []
        server.shutdown()


@pytest.fixture
def consumer(tmp_path: Path) -> Iterator[Site]:
    """Start a consumer that waits for its stream."""
    site = Site(tmp_path)
    try:
        site.start("batchweave-consumer", "--config", str(site.consumer_config()))
        eventually("its page", lambda: get(site.consumer_port, "/")[0] == 200, output=site.logs)
        yield site
    finally:
        site.end()


def test_the_admin_endpoint_asks_for_no_password(consumer: Site) -> None:
    for path in ("/", "/metrics", "/status.json"):
        assert get(consumer.consumer_port, path)[0] == 200, path
    assert get(consumer.consumer_port, "/readyz")[0] == 503, "it waits"


def test_a_status_page_loads_nothing_from_elsewhere(consumer: Site) -> None:
    page = get(consumer.consumer_port, "/")[1]
    assert "<title>" in page
    assert outside(page) == []
    assert "<script src" not in page


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Start a consumer of a copy of the stream, with one segment for all ranks."""
    site = Site(tmp_path_factory.mktemp("served"))
    made = make(tmp_path_factory.mktemp("made"))
    shutil.copytree(made.site.folder / "stream", site.folder / "stream", dirs_exist_ok=True)
    text = site.consumer_config().read_text()
    path = site.config("one", text.replace('segment_bytes = "4MiB"', 'segment_bytes = "8MiB"'))
    try:
        site.start("batchweave-consumer", "--config", str(path))
        eventually("a consumer", lambda: get(site.consumer_port, "/readyz")[0] == 200)
        yield site
    finally:
        site.end()


def test_a_loop_that_leaves_out_steps_is_not_detected(served: Site) -> None:
    with batchweave.connect(served.socket, job="training", start=0, dp_rank=0, dp_size=1) as reader:
        trained = []
        for batch in itertools.islice(reader, 0, 20, 2):
            trained.append(batch.step)
            if batch.step == 18:
                reader.checkpoint(batch.state_dict())
        assert trained == list(range(0, 20, 2))
        del batch
    ran = run("batchweave", "verify", "--job", "training", "--to", "18", "--store", served.url)
    assert ran.code == 0, ran
    assert "proved" in ran.out


def test_a_rank_can_read_the_whole_arena(served: Site) -> None:
    def arenas() -> set[tuple[int, int]]:
        lines = Path("/proc/self/maps").read_text().splitlines()
        places = [line.split()[0].split("-") for line in lines if "/memfd:" in line]
        return {(int(begin, 16), int(end, 16)) for begin, end in places}

    at: dict[str, Any] = {"socket": served.socket, "dp_size": 2, "credits": 2}
    with batchweave.connect(dp_rank=1, **at) as other:
        second = next(other)
        before = arenas()
        with batchweave.connect(dp_rank=0, **at) as reader:
            first = next(reader)
            mapped = [ctypes.string_at(begin, end - begin) for begin, end in arenas() - before]
            for batch in (first, second):
                tokens = batch["tokens"].tobytes()
                assert any(tokens in arena for arena in mapped)
            assert first["tokens"].tobytes() != second["tokens"].tobytes()
            del first, second, batch


class DevS3:
    """A `dev-s3`, and a client of it."""

    bucket = "batchweave"

    def __init__(self, *arguments: str | Path) -> None:
        command = [
            str(BINARIES / "batchweave"),
            "dev-s3",
            "--listen",
            "127.0.0.1:0",
            "--json",
        ]
        command += map(str, arguments)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        started = json.loads(self.process.stdout.readline())
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=started["endpoint"],
            region_name=started["region"],
            aws_access_key_id=started["access_key"],
            aws_secret_access_key=started["secret_key"],
            config=Config(retries={"total_max_attempts": 1}),
        )

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def dev_s3() -> Iterator[DevS3]:
    server = DevS3("--unordered-list")
    server.client.put_object(Bucket=DevS3.bucket, Key="k", Body=b"x")
    yield server
    server.end()


def code_of(request: Callable[..., Any], **arguments: Any) -> str:
    """Return the code with which a request is refused."""
    with pytest.raises(ClientError) as refused:
        request(Bucket=DevS3.bucket, **arguments)
    return str(refused.value.response["Error"]["Code"])


def test_dev_s3_has_no_versions_and_no_lifecycle_rules(dev_s3: DevS3) -> None:
    s3 = dev_s3.client
    assert "Status" not in s3.get_bucket_versioning(Bucket=DevS3.bucket)
    on = {"Status": "Enabled"}
    assert code_of(s3.put_bucket_versioning, VersioningConfiguration=on) == "NotImplemented"
    assert code_of(s3.list_object_versions) == "NotImplemented"
    none = code_of(s3.get_bucket_lifecycle_configuration)
    assert none == "NoSuchLifecycleConfiguration"


def test_dev_s3_lacks_what_its_page_says(dev_s3: DevS3) -> None:
    s3 = dev_s3.client
    upload = s3.create_multipart_upload(Bucket=DevS3.bucket, Key="m")["UploadId"]
    part = {
        "Key": "m",
        "UploadId": upload,
        "PartNumber": 1,
        "CopySource": f"{DevS3.bucket}/k",
    }
    for request, arguments in [
        (s3.get_object_acl, {"Key": "k"}),
        (s3.get_bucket_encryption, {}),
        (s3.get_object_tagging, {"Key": "k"}),
        (s3.upload_part_copy, part),
    ]:
        assert code_of(request, **arguments) == "NotImplemented"
    s3.put_object(Bucket=DevS3.bucket, Key="e", Body=b"x", ServerSideEncryption="AES256")
    assert "ServerSideEncryption" not in s3.head_object(Bucket=DevS3.bucket, Key="e")
    after = code_of(s3.list_objects_v2, StartAfter="a")
    assert after in ("InvalidArgument", "InvalidRequest", "NotImplemented"), after


def test_unfinished_uploads_end_with_dev_s3(tmp_path: Path) -> None:
    server = DevS3("--dir", tmp_path)
    server.client.put_object(Bucket=DevS3.bucket, Key="k", Body=b"x")
    upload = server.client.create_multipart_upload(Bucket=DevS3.bucket, Key="m")["UploadId"]
    server.client.upload_part(
        Bucket=DevS3.bucket, Key="m", UploadId=upload, PartNumber=1, Body=b"x"
    )
    server.end()
    server = DevS3("--dir", tmp_path)
    try:
        assert server.client.get_object(Bucket=DevS3.bucket, Key="k")["Body"].read() == b"x"
        assert code_of(server.client.list_parts, Key="m", UploadId=upload) == "NoSuchUpload"
    finally:
        server.end()
