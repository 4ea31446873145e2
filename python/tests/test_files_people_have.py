"""Files as people have them: read as other libraries read them, or refused by name."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import boto3  # type: ignore[import-untyped]
import pytest
from inbox_world import DEV_S3, DevS3
from real_daemons import BINARIES, MARKS

import batchweave

pytestmark = [*MARKS, *DEV_S3]

NAMES = [
    "a b.jsonl",
    "a+b.jsonl",
    "a%b.jsonl",
    "a%2Fb.jsonl",
    "a:b~c'd.jsonl",
    "(x)!*.jsonl",
    "&$;=@,.jsonl",
    "q?r#s.jsonl",
    "[1].jsonl",
    "\u00e4.jsonl",
    "a\u0308.jsonl",
    "\u65e5\u672c \U0001f600.jsonl",
    "tab\tx.jsonl",
    "line\nbreak.jsonl",
    "c\x01\x7fd.jsonl",
    '"q"<x>\\y|z^`{}.jsonl',
    "dt=2024-01-01 00%3A00%3A00/part-0.jsonl",
    "n" * 200 + ".jsonl",
]
OF_S3 = [
    "/lead.jsonl",
    "two//slashes.jsonl",
    "up/../x.jsonl",
    "./dot.jsonl",
    "end./x.jsonl",
    "\u2028.jsonl",
]
LEFT_OUT = ["_SUCCESS", ".x.jsonl", "README.md", "dt=1/_temporary/0.jsonl"]


def run(
    config: str, folder: Path, *more: str, s3: DevS3 | None = None, seq_len: int = 512
) -> tuple[int, str]:
    """Run a producer to its end."""
    path = folder / "producer.toml"
    path.write_text(
        f"""store.url = "file://{folder}/stream"
stream = {{ slices = 1, rows_per_slice = 1, seq_len = {seq_len} }}
producer.name = "p"
tokenizer.kind = "bytes"
packing.last_batch = "pad"
admin.listen = "off"
{config}"""
    )
    env = dict(os.environ) | (s3.environment if s3 else {})
    command = [str(BINARIES / "batchweave-producer"), "--config", str(path), *more]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    return done.returncode, done.stdout + done.stderr


def texts(folder: Path) -> list[str]:
    """Return all documents of the stream."""
    with batchweave.open(f"file://{folder}/stream") as stream:
        tokens = [int(token) for batch in stream for token in batch.inputs.flatten()]
    end, found, text = max([*tokens, 256]), [], bytearray()
    for token in tokens:
        if token == end:
            found.append(text.decode())
            text = bytearray()
        else:
            text.append(token)
    return [text for text in found if text]


def line(text: str) -> bytes:
    """Return a document as a line of JSON."""
    return json.dumps({"text": text}).encode() + b"\n"


@pytest.fixture
def s3() -> Iterator[DevS3]:
    """Run an S3 server."""
    server = DevS3()
    yield server
    server.end()


def test_keys_of_any_characters(s3: DevS3, tmp_path: Path) -> None:
    """The oracle is the listing of boto3."""
    client = boto3.client(
        "s3",
        endpoint_url=s3.ready["endpoint"],
        region_name=s3.ready["region"],
        aws_access_key_id=s3.ready["access_key"],
        aws_secret_access_key=s3.ready["secret_key"],
    )
    client.create_bucket(Bucket="corpus")
    for name in [*NAMES, *OF_S3, *LEFT_OUT]:
        client.put_object(Bucket="corpus", Key=f"m x/{name}", Body=line(name))
    client.put_object(Bucket="corpus", Key="m x/folder/", Body=b"")
    pages = client.get_paginator("list_objects_v2").paginate(Bucket="corpus", Prefix="m x/")
    listed = [found["Key"][4:] for page in pages for found in page["Contents"]]
    assert len(listed) == len(NAMES) + len(OF_S3) + len(LEFT_OUT) + 1
    expected = [name for name in listed if name not in LEFT_OUT and not name.endswith("/")]
    code, said = run('source.paths = ["s3://corpus/m x/"]', tmp_path, s3=s3)
    assert code == 0, said
    assert sorted(texts(tmp_path)) == sorted(expected)
    assert f"{len(LEFT_OUT)} names in s3://corpus/m x/ are left out, first" in said
    # By name, and by a pattern.
    (tmp_path / "two").mkdir()
    paths = json.dumps(
        [f"s3://corpus/m x/{name}" for name in ["a+b.jsonl", "[1].jsonl", "dt=*/", ".x.jsonl"]]
    )
    code, said = run(f"source.paths = {paths}", tmp_path / "two", s3=s3)
    assert code == 0, said
    assert texts(tmp_path / "two") == ["a+b.jsonl", "[1].jsonl", NAMES[16], ".x.jsonl"]


def test_file_names_of_any_characters(tmp_path: Path) -> None:
    """Local names are read, left out by a rule that is said, or refused."""
    data = tmp_path / "my data"
    for name in [*NAMES, *LEFT_OUT]:
        path = data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(line(name))
    code, said = run(f'source.paths = ["{data}"]', tmp_path)
    assert code == 0, said
    assert sorted(texts(tmp_path)) == sorted(NAMES)
    assert "4 names in" in said
    assert "left out" in said
    # Two names that no message could tell apart.
    for odd in [b"\xff.jsonl", b"\xfe.jsonl"]:
        (Path(os.fsdecode(os.fsencode(data) + b"/" + odd))).write_bytes(line("x"))
    for pattern in [str(data), f"{data}/*.jsonl"]:
        code, said = run(f'source.paths = ["{pattern}"]', tmp_path, "--check")
        assert code == 64, said
        assert "2 file names are not UTF-8, first" in said
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "_x.jsonl").write_bytes(line("x"))
    code, said = run(f'source.paths = ["{tmp_path}/none"]', tmp_path, "--check")
    assert code == 64, said
    assert "holds nothing to read: its 1 files are left out" in said
    assert f"{tmp_path}/none/_x.jsonl" in said


def test_forms_by_name_and_compressions_by_content(tmp_path: Path) -> None:
    """Ten forms give the same three documents."""
    three = line("alpha one") + line("beta two") + line("gamma three")
    files = {
        "c4-train.00000-of-00512.json.gz": gzip.compress(three),
        "a.json": three,
        "a.jl": three,
        "a.jsonlines": three,
        "a.ldjson": three,
        "a.jsonl.gzip": gzip.compress(three) + bytes(1000),
        "b.jsonl": gzip.compress(three[:26]) + gzip.compress(three[26:]),
        "c.jsonl.bz2": bz2.compress(three) + bz2.compress(b""),
        "d.jsonl.xz": lzma.compress(three),
        "e.ndjson": b"\xef\xbb\xbf" + three.replace(b"\n", b"\r\n"),
    }
    data = tmp_path / "data"
    data.mkdir()
    for name, content in files.items():
        (data / name).write_bytes(content)
    (data / "note.txt").write_text("one text\nof two lines")
    code, said = run(f'source.paths = ["{data}"]', tmp_path, "--check")
    assert code == 0, said
    assert "11 files, 10 JSON lines, 1 text, one document each" in said
    assert '"alpha one"' in said
    code, said = run(f'source.paths = ["{data}"]', tmp_path)
    assert code == 0, said
    assert texts(tmp_path) == ["alpha one", "beta two", "gamma three"] * 10 + [
        "one text\nof two lines"
    ]


REFUSED = [
    ("a.orc", b"ORC", "does not read DIR/a.orc: it has no reader"),
    ("a.csv", b"id,text,id\n1,x,2\n", 'the file has two columns "id"; give each a name'),
    ("a.json", b'[{"text": "x"}, {"text": "y"}]', "the file is a JSON array, not JSON lines"),
    ("a.json", b'[\n {"text": "x"}\n]', "the file is a JSON array, not JSON lines"),
    ("a.json", b'{\n "text": "x"\n}', "the object goes on in the next line"),
    ("a.data", b'{"text": "x"}\n', 'begins with a JSON object; set source.format to "jsonl"'),
    (
        "a",
        gzip.compress(b'{"text": "x"}\n'),
        'begins with a JSON object; set source.format to "jsonl"',
    ),
    ("a.txt", "hello".encode("utf-16"), "the file is in UTF-16; convert it, as `iconv"),
    ("a.txt", "hello".encode("utf-16-le"), "holds NUL bytes, as binary data and UTF-16 do"),
    ("a.jsonl", '{"text": "x"}'.encode("utf-16"), "the file is in UTF-16; convert it, as `iconv"),
    ("a.x", b"%PDF-1.7\n\xff\xff", "the file is a PDF, not text"),
    ("a.zip", b"PK\x03\x04", "it has no reader: unpack it, or compress with gzip or zstd"),
    ("a.jsonl", b"\x28\xb5\x2f\xfd\x00\xa8\xc5", "the zstd data ends early or is damaged here"),
]


def test_what_has_no_reader_is_refused_by_name(tmp_path: Path) -> None:
    """Each refusal names the file, the cause and the remedy."""
    for number, (name, content, words) in enumerate(REFUSED):
        data = tmp_path / str(number)
        data.mkdir()
        (data / name).write_bytes(content)
        code, said = run(f'source.paths = ["{data}"]', tmp_path, "--check")
        assert code != 0, f"{name} {content!r}: {said}"
        assert words.replace("DIR", str(data)) in said, f"{name} {content!r}"


def test_tables_are_read_as_python_reads_them(tmp_path: Path) -> None:
    """Random tables, as Python's csv writes them in several dialects, give what it reads."""
    seed = random.Random(4180)
    parts = ["x", "word ", ",", "\t", '"', "\n", "\r\n", "'", ";", "\u00e4", "\U0001f600", "\\"]
    columns = ["id", "text", "n"]
    data, wanted = tmp_path / "data", []
    data.mkdir()
    for number in range(40):
        ending, delimiter = seed.choice([("csv", ","), ("tsv", "\t")])
        rows = [
            {name: "".join(seed.choices(parts, k=seed.randrange(9))) for name in columns}
            for _ in range(seed.randrange(30))
        ]
        out = io.StringIO(newline="")
        writer = csv.DictWriter(
            out,
            columns,
            delimiter=delimiter,
            quoting=seed.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
            lineterminator=seed.choice(["\n", "\r\n"]),
        )
        writer.writeheader()
        writer.writerows(rows)
        mark = seed.choice(["", "\ufeff"])
        content = (mark + out.getvalue()).encode()
        packed = gzip.compress(content) if seed.random() < 0.5 else content
        (data / f"{number:02}.{ending}").write_bytes(packed)
        read = csv.DictReader(io.StringIO(out.getvalue(), newline=""), delimiter=delimiter)
        wanted += [row["text"] for row in read if row["text"]]
    code, said = run(f'source = {{ paths = ["{data}"], on_bad_document = "skip" }}', tmp_path)
    assert code == 0, said
    assert texts(tmp_path) == wanted


def messy(seed: random.Random, depth: int = 0) -> str:
    """Write a value as Python, JavaScript or a faulty tool would."""
    kinds = ["number", "number", "string", "string", "word", "odd"]
    kind = seed.choice(kinds + ["list", "object"] * (depth < 4))
    if kind == "number":
        return seed.choice(
            [
                "0",
                "-0",
                "1",
                "-17",
                "2.5",
                "1e5",
                "1E-7",
                "1e999",
                "123456789012345678901",
                "9" * 400,
            ]
        )
    if kind == "word":
        return seed.choice(["NaN", "Infinity", "-Infinity", "null", "true", "false"])
    if kind == "odd" and seed.random() < 0.1:
        return seed.choice(
            [
                "nan",
                "-NaN",
                "+1",
                "01",
                ".5",
                "1.",
                "'a'",
                "",
                "undefined",
                '"\t"',
                '"\\x41"',
                '"\\u12"',
            ]
        )
    if kind == "list":
        return "[" + " , ".join(messy(seed, depth + 1) for _ in range(seed.randrange(4))) + "]"
    if kind == "object":
        items = [
            f'"k{seed.randrange(3)}":{messy(seed, depth + 1)}' for _ in range(seed.randrange(4))
        ]
        return "{" + ",".join(items) + "}"
    parts = [
        "a",
        " ",
        "\\n",
        "\\u00e4",
        "\\ud83d",
        "\\ude00",
        "\\ud83d\\ude00",
        "\\uD800",
        "\u65e5",
        '\\"',
        "\\/",
        "NaN",
    ]
    return '"' + "".join(seed.choice(parts) for _ in range(seed.randrange(6))) + '"'


def test_json_is_read_as_python_reads_it(tmp_path: Path) -> None:
    """The oracle is json.loads, over random lines."""
    seed = random.Random(41)
    written, expected, refused = [], [], 0
    for _ in range(3000):
        text = messy(seed, 4) if seed.random() < 0.5 else '"plain"'
        rest = ",".join(
            f'"{key}": {messy(seed)}' for key in ["a", "text2", "b"][: seed.randrange(4)]
        )
        fields = [f'"text": {text}', rest] if seed.random() < 0.5 else [rest, f'"text": {text}']
        whole = "{" + ", ".join(field for field in fields if field) + "}"
        written.append(whole)
        try:
            value = json.loads(whole)["text"]
        except json.JSONDecodeError:
            value = None
        if not isinstance(value, str) or not value:
            refused += 1
            continue
        # Halves of surrogate pairs are one replacement each; json has joined the pairs.
        expected.append("".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in value))
    (tmp_path / "a.jsonl").write_text("\n".join(written) + "\n")
    config = f'source = {{ paths = ["{tmp_path}/a.jsonl"], on_bad_document = "skip" }}'
    code, said = run(config, tmp_path)
    assert code == 0, said
    found = texts(tmp_path)
    assert found == expected, (len(found), len(expected))
    assert len(expected) > 1500
    assert refused > 300
    assert said.count("documents have NaN or infinite numbers") == 1
    assert said.count("documents have halves of surrogate pairs") == 1
