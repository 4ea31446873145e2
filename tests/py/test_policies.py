"""Least privilege: every role works under its policy of deploy/iam, and needs all of it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import ClientError  # type: ignore[import-untyped]
from site_of_daemons import BINARIES, ROOT, Site, eventually

ROLES = ["producer", "consumer", "reclaimer", "operator", "reader"]
BUCKET = "batchweave"

# One request that only this statement allows: operation and key or prefix.
NEEDS: dict[tuple[str, str], tuple[str, str]] = {
    ("producer", "ReadStream"): ("get", "stream/log/1.json"),
    ("producer", "ListStream"): ("list", "stream/snapshots/"),
    ("producer", "MakeStream"): ("put", "stream/stream.json"),
    ("producer", "Commit"): ("put", "stream/log/1.json"),
    ("producer", "UploadData"): ("put", "stream/data/tokens-0/a"),
    ("producer", "UploadParts"): ("begin", "stream/data/tokens-0/a"),
    ("producer", "PinInput"): ("put", "stream/inputs/a"),
    ("producer", "StoreTokenizer"): ("put", "stream/tokenizers/a"),
    ("producer", "Announce"): ("put", "stream/intents/tokens-0/a"),
    ("producer", "Snapshot"): ("put", "stream/index/a"),
    ("producer", "TidyUp"): ("delete", "stream/intents/a"),
    ("producer", "GiveUpUploads"): ("abort", "stream/data/tokens-0/a"),
    ("producer", "ReadSource"): ("get", "corpus/a"),
    ("producer", "ListSource"): ("list", "corpus/"),
    ("consumer", "ReadStream"): ("get", "stream/data/a"),
    ("consumer", "ListStream"): ("list", "stream/jobs/"),
    ("consumer", "OpenJobs"): ("put", "stream/log/1.json"),
    ("consumer", "Checkpoint"): ("put", "stream/jobs/a"),
    ("consumer", "DropOldProgress"): ("delete", "stream/jobs/a"),
    ("reclaimer", "ReadStream"): ("get", "stream/log/1.json"),
    ("reclaimer", "ListStream"): ("list", "stream/data/"),
    ("reclaimer", "PublishWatermark"): ("put", "stream/log/1.json"),
    ("reclaimer", "Lease"): ("put", "stream/jobs/a"),
    ("reclaimer", "Reclaim"): ("delete", "stream/data/a"),
    ("reclaimer", "FindUnfinishedUploads"): ("uploads", ""),
    ("reclaimer", "GiveUpUploads"): ("abort", "stream/data/a"),
    ("operator", "ReadStream"): ("get", "stream/log/1.json"),
    ("operator", "ListStream"): ("list", "stream/data/"),
    ("operator", "MakeStream"): ("put", "stream/stream.json"),
    ("operator", "MakeFork"): ("put", "stream/fork.json"),
    ("operator", "WriteLog"): ("put", "stream/log/1.json"),
    ("operator", "Repair"): ("put", "stream/repairs/a"),
    ("operator", "RemoveProbe"): ("delete", "stream/probe/a"),
    ("reader", "ReadStream"): ("get", "stream/data/a"),
    ("reader", "ListStream"): ("list", "stream/data/"),
}
# No role may do these: the log is the audit trail.
NEVER = [
    ("delete", "stream/log/1.json"),
    ("delete", "stream/stream.json"),
    ("put", "other/stream.json"),
    ("put", "stream/data/tokens-1/a"),
    ("delete", "stream/tokenizers/a"),
    ("begin", "stream/data/tokens-1/a"),
    ("copy", "stream/jobs/a"),
    ("get", "other/log/1.json"),
]


def policy(role: str) -> dict[str, Any]:
    text = (ROOT / "deploy" / "iam" / f"{role}.json").read_text()
    names = {"my-bucket": BUCKET, "my-stream": "stream", "my-producer": "tokens-0"}
    for placeholder, name in names.items():
        text = text.replace(placeholder, name)
    return dict(json.loads(text))


def without_condition(whole: dict[str, Any], sid: str) -> dict[str, Any]:
    def changed(one: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in one.items() if key != "Condition"}

    statements = [changed(one) if one["Sid"] == sid else one for one in whole["Statement"]]
    return {**whole, "Statement": statements}


class Store:
    """dev-s3 with a key for each role, and one for each role without one of its statements."""

    def __init__(self, folder: Path) -> None:
        policies = {role: policy(role) for role in ROLES}
        for role, whole in list(policies.items()):
            for left_out in whole["Statement"]:
                rest = [one for one in whole["Statement"] if one is not left_out]
                policies[f"{role}-{left_out['Sid']}"] = {**whole, "Statement": rest}
                if left_out["Action"] == "s3:PutObject":
                    sid = left_out["Sid"]
                    policies[f"{role}-{sid}-any"] = without_condition(whole, sid)
        arguments = []
        for key, one in policies.items():
            (folder / f"{key}.json").write_text(json.dumps(one))
            arguments.append(f"--policy={key}={folder / f'{key}.json'}")
        self.log = folder / "dev-s3.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [BINARIES / "batchweave", "dev-s3", "--listen=127.0.0.1:0", "--json", *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "RUST_LOG": "batchweave_dev_s3=debug"},
                text=True,
            )
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.ready = json.loads(line)
        self.clients: dict[str, Any] = {}

    def environment(self, key: str) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.ready["endpoint"],
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": self.ready["secret_key"],
            "AWS_REGION": self.ready["region"],
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self, key: str) -> Any:
        if key not in self.clients:
            self.clients[key] = boto3.client(
                "s3",
                endpoint_url=self.ready["endpoint"],
                region_name=self.ready["region"],
                aws_access_key_id=key,
                aws_secret_access_key=self.ready["secret_key"],
                config=Config(retries={"total_max_attempts": 1}),
            )
        return self.clients[key]

    def allowed(self, key: str, deed: str, name: str) -> bool:
        """Return true if this key may; a missing object or upload counts as allowed."""
        s3 = self.client(key)
        try:
            if deed == "get":
                s3.get_object(Bucket=BUCKET, Key=name)
            elif deed == "put":
                nothing = {"IfMatch": '"nothing"', "IfNoneMatch": "*"}
                s3.put_object(Bucket=BUCKET, Key=name, Body=b"", **nothing)
            elif deed == "overwrite":
                s3.put_object(Bucket=BUCKET, Key=name, Body=b"", IfMatch='"nothing"')
            elif deed == "begin":
                upload = s3.create_multipart_upload(Bucket=BUCKET, Key=name)["UploadId"]
                whole = self.client(self.ready["access_key"])
                whole.abort_multipart_upload(Bucket=BUCKET, Key=name, UploadId=upload)
            elif deed == "copy":
                source = f"{BUCKET}/other/secret"
                s3.copy_object(Bucket=BUCKET, Key=name, CopySource=source)
            elif deed == "delete":
                s3.delete_object(Bucket=BUCKET, Key=f"{name}-not-there")
            elif deed == "abort":
                s3.abort_multipart_upload(Bucket=BUCKET, Key=name, UploadId="none")
            elif deed == "uploads":
                s3.list_multipart_uploads(Bucket=BUCKET)
            else:
                s3.list_objects_v2(Bucket=BUCKET, Prefix=name)
        except ClientError as refused:
            return str(refused.response["Error"]["Code"]) != "AccessDenied"
        return True


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store(tmp_path_factory.mktemp("store"))
    with store.process:
        yield store
        store.process.kill()


def statements() -> list[tuple[str, str]]:
    return [(role, one["Sid"]) for role in ROLES for one in policy(role)["Statement"]]


def test_every_statement_has_a_need() -> None:
    assert sorted(NEEDS) == sorted(statements())


@pytest.mark.parametrize(("role", "sid"), statements())
def test_without_a_statement_its_need_is_refused(store: Store, role: str, sid: str) -> None:
    deed, name = NEEDS[role, sid]
    assert store.allowed(role, deed, name)
    assert not store.allowed(f"{role}-{sid}", deed, name), "another statement grants it too"


@pytest.mark.parametrize(
    ("role", "sid"),
    [one for one in statements() if NEEDS[one][0] in ("put", "begin")],
)
def test_what_is_there_is_never_written_again(store: Store, role: str, sid: str) -> None:
    deed, name = NEEDS[role, sid]
    assert store.allowed(role, deed, name)
    assert not store.allowed(role, "overwrite", name)
    assert store.allowed(f"{role}-{sid}-any", "overwrite", name), "the condition does it"


@pytest.mark.parametrize("role", ROLES)
def test_no_role_may_touch_the_log_s_past_or_other_streams(store: Store, role: str) -> None:
    whole = store.client(store.ready["access_key"])
    whole.put_object(Bucket=BUCKET, Key="other/secret", Body=b"S")
    for deed, name in NEVER:
        assert not store.allowed(role, deed, name), (deed, name)


def test_every_daemon_works_under_its_own_policy(store: Store, tmp_path: Path) -> None:
    site = Site(tmp_path, f"s3://{BUCKET}/stream")
    whole = store.client(store.ready["access_key"])
    whole.upload_file(str(tmp_path / "corpus.jsonl"), BUCKET, "corpus/corpus.jsonl")
    before = len(store.log.read_text())
    config = site.producer_config()
    text = config.read_text().replace(str(tmp_path / "corpus.jsonl"), f"s3://{BUCKET}/corpus/")
    config.write_text(text)
    try:
        site.start(
            "batchweave-producer", "--config", str(config), env=store.environment("producer")
        )
        consumer = site.consumer_config().read_text()
        plain = site.config("consumer", consumer.replace("enabled = true", "enabled = false"))
        site.start("batchweave-consumer", "--config", str(plain), env=store.environment("consumer"))
        site.train()
        eventually("checkpoints", lambda: site.delivered > 300)
        for role, words in [
            ("reclaimer", ["reclaim", "--apply"]),
            ("reader", ["status"]),
            ("operator", ["seal", "--reason", "a test"]),
        ]:
            command = [str(BINARIES / "batchweave"), "--store", site.url, *words]
            result = subprocess.run(
                command,
                env={**os.environ, **store.environment(role)},
                text=True,
                capture_output=True,
                check=False,
                timeout=60,
            )
            assert result.returncode == 0, (words, result.stdout + result.stderr)
    finally:
        site.end()
    output = re.sub(r"\x1b\[[0-9;]*m", "", store.log.read_text()[before:])
    refused = [line for line in output.splitlines() if "refused by its policy" in line]
    assert not refused, "\n".join(refused[:5]) + site.log("batchweave-producer")
    used = set(re.findall(r'key="(\w+)" sid="(\w+)"', output))
    for need in [
        ("producer", "Commit"),
        ("producer", "UploadData"),
        ("producer", "ReadSource"),
        ("consumer", "OpenJobs"),
        ("consumer", "Checkpoint"),
        ("consumer", "DropOldProgress"),
        ("reclaimer", "Reclaim"),
        ("reader", "ListStream"),
    ]:
        assert need in used, (need, sorted(used))


# Requests that a lone producer of bytes or an undisturbed daemon never makes: only these are tried.
RARE = [
    ("producer", "UploadParts"),
    ("producer", "StoreTokenizer"),
    ("producer", "Announce"),
    ("producer", "TidyUp"),
    ("producer", "GiveUpUploads"),
    ("consumer", "DropOldProgress"),
]


@pytest.mark.parametrize(
    ("role", "sid"),
    [one for one in statements() if one[0] in ("producer", "consumer") and one not in RARE],
)
def test_a_daemon_without_a_statement_says_what_it_was_refused(
    store: Store, role: str, sid: str, tmp_path: Path
) -> None:
    whole = store.client(store.ready["access_key"])
    for old in whole.list_objects_v2(Bucket=BUCKET, Prefix="stream/").get("Contents", []):
        whole.delete_object(Bucket=BUCKET, Key=old["Key"])
    site = Site(tmp_path, f"s3://{BUCKET}/stream")
    whole.upload_file(str(tmp_path / "corpus.jsonl"), BUCKET, "corpus/corpus.jsonl")
    config = site.producer_config()
    text = config.read_text().replace(str(tmp_path / "corpus.jsonl"), f"s3://{BUCKET}/corpus/")
    if sid == "Snapshot":
        # An index segment needs more steps than a producer without a job may make.
        text = text.replace("ahead.max_steps = 200", "ahead.max_steps = 0")
    config.write_text(text)
    keys = {"producer": "producer", "consumer": "consumer"} | {role: f"{role}-{sid}"}
    daemon = f"batchweave-{role}"
    refused = rf"AccessDenied: User {role}-{sid} is not authorized to perform: s3:\w+ on resource"
    try:
        producer = store.environment(keys["producer"])
        site.start("batchweave-producer", "--config", str(config), env=producer)
        if role == "consumer":
            consumer = site.consumer_config().read_text()
            plain = site.config("consumer", consumer.replace("enabled = true", "enabled = false"))
            eventually("a stream", lambda: "producing" in site.log("batchweave-producer"))
            environment = store.environment(keys["consumer"])
            site.start("batchweave-consumer", "--config", str(plain), env=environment)
            if sid == "Checkpoint":
                site.train()
        eventually("a refusal", lambda: bool(re.search(refused, site.log(daemon))))
        assert "check the credentials and their permissions" in site.log(daemon)
    finally:
        site.end()


TOKENIZER = json.dumps(
    {
        "version": "1.0",
        "added_tokens": [
            {
                "id": 2,
                "content": "</s>",
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
        ],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": {"word": 0, "<unk>": 1}, "unk_token": "<unk>"},
    }
)


@pytest.mark.parametrize("key", ["producer", "producer-StoreTokenizer"])
def test_a_producer_works_whether_or_not_it_may_store_its_tokenizer(
    store: Store, key: str, tmp_path: Path
) -> None:
    whole = store.client(store.ready["access_key"])
    for old in whole.list_objects_v2(Bucket=BUCKET, Prefix="stream/").get("Contents", []):
        whole.delete_object(Bucket=BUCKET, Key=old["Key"])
    site = Site(tmp_path, f"s3://{BUCKET}/stream")
    file = tmp_path / "tokenizer.json"
    file.write_text(TOKENIZER)
    config = site.producer_config()
    named = f'tokenizer = {{ kind = "file", path = "{file}" }}'
    config.write_text(config.read_text().replace('tokenizer.kind = "bytes"', named))
    try:
        environment = store.environment(key)
        site.start("batchweave-producer", "--config", str(config), env=environment)
        eventually(
            "a stream",
            lambda: "producing" in site.log("batchweave-producer"),
            output=site.logs,
        )
        log = site.log("batchweave-producer")
        refused = "cannot store the tokenizer's file beside the stream" in log
        stored = whole.list_objects_v2(Bucket=BUCKET, Prefix="stream/tokenizers/")
        assert refused == (key != "producer"), log
        assert stored["KeyCount"] == (0 if refused else 1)
        if refused:
            assert "--tokenizer FILE" in log
            return
        digest = hashlib.sha256(TOKENIZER.encode()).hexdigest()
        assert stored["Contents"][0]["Key"] == f"stream/tokenizers/{digest}.json"
        eventually("a commit", lambda: shown(store, "reader", site).returncode == 0)
        result = shown(store, "reader", site)
        assert "word" in result.stdout or "<unk>" in result.stdout, result.stdout
    finally:
        # A request of a killed producer could land in the next test's empty root.
        for process in site.processes:
            process.terminate()
            process.wait(60)
        site.end()


def shown(store: Store, role: str, site: Site) -> subprocess.CompletedProcess[str]:
    """Decode the first step with the credentials of a role."""
    return subprocess.run(
        [str(BINARIES / "batchweave"), "--store", site.url, "show", "0", "--decode"],
        env={**os.environ, **store.environment(role)},
        text=True,
        capture_output=True,
        check=False,
        timeout=60,
    )
