"""The wrong first inputs of a newcomer, each with the line that answers it.

In a line, DIR is the folder of the test, HERE the working folder, S3 the server's address, and `*` stands for
the text of another program.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Values = dict[str, str | None]


@dataclass(frozen=True)
class Daemon:
    """A daemon's configuration: changes of one that works, as TOML values by key; None removes one."""

    name: str
    program: str
    changes: Values
    exit: int
    answer: str
    text: str = ""
    """A whole configuration file instead of changes."""
    check: str | None = ""
    """The answer of --check, which ends with 64, where it is another; None where it finds nothing."""
    env: Values = field(default_factory=dict)


@dataclass(frozen=True)
class Command:
    """A command line."""

    name: str
    arguments: str
    exit: int
    answer: str
    env: Values = field(default_factory=dict)


@dataclass(frozen=True)
class Client:
    """A line of Python that connects."""

    name: str
    line: str
    answer: str
    env: Values = field(default_factory=dict)


def producer(name: str, changes: Values, exit_code: int, answer: str, **more: object) -> Daemon:
    """A case of the producer."""
    return Daemon(name, "batchweave-producer", changes, exit_code, answer, **more)  # type: ignore[arg-type]


def consumer(name: str, changes: Values, exit_code: int, answer: str, **more: object) -> Daemon:
    """A case of the consumer."""
    return Daemon(name, "batchweave-consumer", changes, exit_code, answer, **more)  # type: ignore[arg-type]


PRODUCER = [
    producer("no such file", {"source.paths": '["DIR/lost.jsonl"]'}, 65, "?"),
    producer("a pattern without a match", {"source.paths": '["DIR/*.json"]'}, 65, "?"),
    producer("an empty folder", {"source.paths": '["DIR/empty"]'}, 65, "?"),
    producer("a string instead of a list", {"source.paths": '"DIR/good.jsonl"'}, 64, "?"),
    producer("an empty file", {"source.paths": '["DIR/empty.jsonl"]'}, 0, "?"),
    producer("the field has another name", {"source.field": '"content"'}, 65, "?"),
    producer("the field is a list", {"source.paths": '["DIR/list.jsonl"]'}, 65, "?"),
    producer("a JSON array instead of lines", {"source.paths": '["DIR/array.jsonl"]'}, 65, "?"),
    producer("text called .jsonl", {"source.paths": '["DIR/text.jsonl"]'}, 65, "?"),
    producer("text called .parquet", {"source.paths": '["DIR/text.parquet"]'}, 65, "?"),
    producer("a truncated .gz", {"source.paths": '["DIR/cut.jsonl.gz"]'}, 65, "?"),
    producer("no input", {"source.paths": None}, 64, "?"),
    producer("no name", {"producer.name": None}, 64, "?"),
    producer("a name with spaces", {"producer.name": '"my producer"'}, 64, "?"),
    producer("no store", {"store.url": None}, 64, "?"),
    producer("a relative path as store", {"store.url": '"streams/one"'}, 64, "?"),
    producer("two slashes", {"store.url": '"file://streams/one"'}, 64, "?"),
    producer("a file as store", {"store.url": '"DIR/good.jsonl"'}, 64, "?"),
    producer("a folder that is not ours", {"store.url": '"/proc/stream"'}, 69, "?"),
    producer("a folder with other files", {"store.url": '"DIR/data"'}, 73, "?"),
    producer("no bucket in the URL", {"store.url": '"s3://"'}, 64, "?"),
    producer("a bucket that is absent", {"store.url": '"s3://absent/x"'}, 69, "?"),
    producer("another cloud", {"store.url": '"gs://bucket/x"'}, 64, "?"),
    producer("seq_length", {"stream.seq_length": "128"}, 64, "?"),
    producer("sequence_length", {"stream.sequence_length": "128"}, 64, "?"),
    producer("batch_size", {"batch_size": "32"}, 64, "?"),
    producer("shuffle", {"shuffle": "true"}, 64, "?"),
    producer("seq_len = 0", {"stream.seq_len": "0"}, 64, "?"),
    producer("seq_len = a string", {"stream.seq_len": '"2048"'}, 64, "?"),
    producer("seq_len = 2048.0", {"stream.seq_len": "2048.0"}, 64, "?"),
    producer("seq_len = -1", {"stream.seq_len": "-1"}, 64, "?"),
    producer("a size without a unit", {"upload.memory": "256"}, 64, "?"),
    producer("a word that is not known", {"packing.mode": '"bestfit"'}, 64, "?"),
    producer("a key twice", {}, 64, "?", text="[store]\nurl = 'a'\nurl = 'b'\n"),
    producer("no quotes", {"store.url": "s3://bucket/x"}, 64, "?"),
    producer("YAML", {}, 64, "?", text="store:\n  url: s3://bucket/x\n"),
    producer("tokenizer = gpt2", {"tokenizer.kind": None, "tokenizer": '"gpt2"'}, 64, "?"),
    producer(
        "a model's name as encoding",
        {"tokenizer.kind": None, "tokenizer.name": '"meta-llama/Llama-3.1-8B"'},
        64,
        "?",
    ),
    producer(
        "a model's name as path",
        {"tokenizer.kind": '"file"', "tokenizer.path": '"meta-llama/Llama-3.1-8B"'},
        64,
        "?",
    ),
    producer(
        "gpt2 as path", {"tokenizer.kind": '"file"', "tokenizer.path": '"gpt2"'}, 64, "?"
    ),
    producer(
        "a folder as tokenizer",
        {"tokenizer.kind": '"file"', "tokenizer.path": '"DIR/data"'},
        64,
        "?",
    ),
    producer(
        "a tokenizer that is absent",
        {"tokenizer.kind": '"file"', "tokenizer.path": '"DIR/tokenizer.json"'},
        64,
        "?",
    ),
    producer(
        "another JSON as tokenizer",
        {"tokenizer.kind": '"file"', "tokenizer.path": '"DIR/other.json"'},
        64,
        "?",
    ),
    producer("chat without a template", {"packing.mode": '"chat"'}, 64, "?"),
    producer(
        "a template that is broken",
        {"packing.mode": '"chat"', "chat.template": '"DIR/broken.jinja"'},
        64,
        "?",
    ),
    producer(
        "chat over texts",
        {"packing.mode": '"chat"', "chat.template": '"DIR/chat.jinja"'},
        65,
        "?",
    ),
    producer("an index beyond", {"producer.index": "2", "producer.of": "2"}, 64, "?"),
    producer("one name twice", {"stream.producers": '["tokens-0", "tokens-0"]'}, 64, "?"),
    producer("a port that is a name", {"admin.listen": '"localhost:9464"'}, 64, "?"),
    producer(
        "credentials are missing",
        {"store.url": '"s3://batchweave/x"'},
        69,
        "?",
        env={"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None},
    ),
    producer(
        "a wrong secret key",
        {"store.url": '"s3://batchweave/x"'},
        69,
        "?",
        env={"AWS_SECRET_ACCESS_KEY": "wrong"},
    ),
    producer(
        "an endpoint without a scheme",
        {"store.url": '"s3://batchweave/x"', "store.endpoint": '"localhost:9000"'},
        69,
        "?",
    ),
    producer(
        "other parameters than the stream's", {"store.url": '"DIR/made"', "stream.seq_len": "64"}, 73, "?"
    ),
]

CONSUMER = [
    consumer("no folder", {"store.url": '"DIR/lost"'}, 69, "?"),
    consumer("a relative path as store", {"store.url": '"streams/one"'}, 64, "?"),
    consumer("no store", {"store.url": None}, 64, "?"),
    consumer("a bucket that is absent", {"store.url": '"s3://absent/x"'}, 69, "?"),
    consumer("a socket path that is too long", {"socket.path": f'"/run/{"x" * 120}"'}, 64, "?"),
    consumer("a relative socket", {"socket.path": '"consumer.sock"'}, 64, "?"),
    consumer("a socket in no folder", {"socket.path": '"DIR/lost/c.sock"'}, 64, "?"),
    consumer("a file as socket", {"socket.path": '"DIR/good.jsonl"'}, 64, "?"),
    consumer("an arena beyond the memory", {"arena.bytes": '"1024TiB"'}, 64, "?"),
    consumer(
        "an arena below one segment", {"arena.bytes": '"1MiB"', "arena.segment_bytes": '"4MiB"'}, 64, "?"
    ),
    consumer("a job with spaces", {"job.name": '"my job"'}, 64, "?"),
    consumer("a job without a name", {"job.open": "true"}, 64, "?"),
    consumer("the producer's file", {"producer.name": '"tokens-0"'}, 64, "?"),
    consumer("megabytes", {"arena.bytes": '"64M"'}, 64, "?"),
]

COMMANDS = [
    Command("no file", "batchweave-producer --config DIR/lost.toml", 64, "?"),
    Command("no --config", "batchweave-producer DIR/producer.toml", 64, "?"),
    Command("a folder as file", "batchweave-consumer --config DIR", 64, "?"),
    Command("no store", "batchweave status", 64, "?"),
    Command("no stream", "batchweave status --store file://DIR/empty", 73, "?"),
    Command("no folder", "batchweave status --store file://DIR/lost", 69, "?"),
    Command("a mistyped verb", "batchweave statsu", 64, "?"),
    Command("a mistyped option", "batchweave status --stor x", 64, "?"),
    Command("a step that is absent", "batchweave show 9999 --store DIR/made", 1, "?"),
    Command("a step that is a word", "batchweave show last --store DIR/made", 64, "?"),
    Command("a job that is absent", "batchweave job show pretrain --store DIR/made", 1, "?"),
    Command("a job with spaces", "batchweave job open 'my job' --store DIR/made", 64, "?"),
    Command("a deletion without a terminal", "batchweave delete DIR/made --apply", 64, "?"),
    Command("an endpoint that is closed", "batchweave status --store s3://batchweave/x --endpoint http://127.0.0.1:9", 69, "?"),
    Command("a shell that is not known", "batchweave completions powershell", 64, "?"),
    Command("no daemon for top", "batchweave top --listen 127.0.0.1:9", 64, "?"),
]

CLIENTS = [
    Client("no daemon", "connect(socket='DIR/lost.sock', connect_timeout=0.2)", "?"),
    Client("a socket that is too long", "connect(socket='/run/' + 'x' * 120)", "?"),
    Client("start as a string", "connect(socket='SOCKET', start='5')", "?"),
    Client("start as a fraction", "connect(socket='SOCKET', start=5.5)", "?"),
    Client("an argument that is not known", "connect(socket='SOCKET', rank=0)", "?"),
    Client("a rank out of range", "connect(socket='SOCKET', dp_rank=2, dp_size=2)", "?"),
    Client("a rank without a size", "connect(socket='SOCKET', dp_rank=0)", "?"),
    Client("more ranks than slices", "connect(socket='SOCKET', dp_rank=0, dp_size=16)", "?"),
    Client("another seq_len", "connect(socket='SOCKET', seq_len=2048)", "?"),
    Client("a path as state", "connect(socket='SOCKET', state='checkpoint.pt')", "?"),
    Client("another dict as state", "connect(socket='SOCKET', state={'model': 1})", "?"),
    Client("a job with spaces", "connect(socket='SOCKET', job='my job')", "?"),
    Client("another job than the daemon's", "connect(socket='SOCKET', job='other', connect_timeout=2)", "?"),
    Client("an attempt that is no id", "connect(socket='SOCKET', job='training', attempt='run-1')", "?"),
    Client("a timeout as a string", "connect(socket='SOCKET', timeout='60')", "?"),
    Client("credits = 1", "connect(socket='SOCKET', credits=1)", "?"),
    Client("the world of the launcher", "connect(socket='SOCKET')", "?", {"RANK": "0", "WORLD_SIZE": "two"}),
]
