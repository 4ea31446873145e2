"""Each wrong first input of a newcomer is answered by one line with cause and remedy, and the right exit code.

The inputs and their answers are in wrong_first_inputs.py. `python tests/py/test_wrong_first_inputs.py` prints
what the programs answer now.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import batchweave
import pytest
from site_of_daemons import BINARIES, ROOT, Site, eventually, get
from wrong_first_inputs import (
    CLIENTS,
    COMMANDS,
    CONSUMER,
    PRODUCER,
    Client,
    Command,
    Daemon,
    Values,
)

KEYS = {"AWS_ACCESS_KEY_ID": "batchweave", "AWS_SECRET_ACCESS_KEY": "batchweave-secret"}
LIMIT = 300
CONFIG = 64


@dataclass
class Place:
    """The folder of the inputs, an S3 server, and a consumer that serves."""

    folder: Path
    endpoint: str
    socket: Path

    def text(self, text: str) -> str:
        """Put the paths into a text of the table."""
        return text.replace("DIR", str(self.folder)).replace("SOCKET", str(self.socket))

    def answer(self, text: str) -> str:
        """Take the paths out of an answer."""
        for path, name in [
            (str(self.socket), "SOCKET"),
            (str(self.folder), "DIR"),
            (str(ROOT), "HERE"),
            (self.endpoint, "S3"),
        ]:
            text = text.replace(path, name)
        return text

    def run(self, command: list[str], env: Values) -> tuple[int, list[str]]:
        """Run a command; return its exit code and its lines on standard error."""
        whole = {name: value for name, value in os.environ.items() if name[:3] != "AWS"}
        whole |= KEYS | {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": self.endpoint}
        whole |= {"AWS_EC2_METADATA_DISABLED": "true", "NO_COLOR": "1", "HOME": str(self.folder)}
        whole["PYTHONPATH"] = str(Path(batchweave.__file__).parents[1])
        for name, value in env.items():
            whole.pop(name, None)
            if value is not None:
                whole[name] = value
        ended = subprocess.run(
            command,
            env=whole,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
        )
        lines = self.answer(ended.stderr).strip().splitlines()
        return ended.returncode, lines or [""]

    def daemon(self, case: Daemon, *more: str) -> tuple[int, list[str]]:
        """Run a daemon with the configuration of a case."""
        path = self.folder / f"{case.program.split('-')[1]}.toml"
        path.write_text(self.text(case.text or toml(BASE[case.program] | case.changes)))
        command = [str(BINARIES / case.program), "--config", str(path), *more]
        return self.run(command, case.env)


BASE: dict[str, Values] = {
    "batchweave-producer": {
        "store.url": '"file://DIR/new"',
        "producer.name": '"tokens-0"',
        "source.paths": '["DIR/good.jsonl"]',
        "tokenizer.kind": '"bytes"',
        "stream.slices": "1",
        "stream.rows_per_slice": "1",
        "stream.seq_len": "32",
    },
    "batchweave-consumer": {
        "store.url": '"file://DIR/made"',
        "socket.path": '"DIR/other.sock"',
        "arena.bytes": '"4MiB"',
        "arena.segment_bytes": '"1MiB"',
        "prefetch.bytes": '"1MiB"',
        "admin.listen": '"off"',
    },
}


def toml(values: Values) -> str:
    """Write a configuration file."""
    return "".join(f"{key} = {value}\n" for key, value in values.items() if value is not None)


def inputs(folder: Path) -> None:
    """Make the wrong inputs, and one that is right."""
    good = "".join(json.dumps({"text": f"document {n} " * 9}) + "\n" for n in range(50))
    (folder / "empty").mkdir()
    (folder / "data").mkdir()
    (folder / "data" / "notes.txt").write_text("notes")
    for name, text in {
        "good.jsonl": good,
        "empty.jsonl": "",
        "list.jsonl": '{"text": ["a", "b"]}\n',
        "array.jsonl": '[{"text": "a"}, {"text": "b"}]\n',
        "text.jsonl": "Once upon a time\n",
        "text.parquet": "Once upon a time\n" * 9,
        "other.json": '{"vocab_size": 50257}',
        "broken.jinja": "{% for message in messages %}{{ message }}",
        "chat.jinja": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
    }.items():
        (folder / name).write_text(text)
    whole = gzip.compress(os.urandom(1 << 16).hex().encode())
    (folder / "cut.jsonl.gz").write_bytes(whole[:9000])


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """Make the inputs, an S3 server, a stream, and a consumer of another stream."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        inputs(folder)
        (folder / "site").mkdir()
        site = Site(folder / "site")
        command = [str(BINARIES / "batchweave"), "dev-s3", "--listen", "127.0.0.1:0", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout
                started = json.loads(server.stdout.readline())
                KEYS["AWS_ACCESS_KEY_ID"] = started.get("access_key", "batchweave")
                KEYS["AWS_SECRET_ACCESS_KEY"] = started.get("secret_key", "batchweave-secret")
                place = Place(folder, started["endpoint"], site.socket)
                made = Daemon("made", "batchweave-producer", {"store.url": '"file://DIR/made"'}, 0, "")
                assert place.daemon(made)[0] == 0
                site.start("batchweave-producer", "--config", str(site.producer_config()))
                only = 'job.name = "training"\njob.open = true\n'
                config = site.consumer_config().read_text()
                config = config.replace('job = { name = "training", open = true }', only)
                site.start("batchweave-consumer", "--config", str(site.config("consumer", config)))
                ready = lambda: get(site.consumer_port, "/readyz")[0] == 200  # noqa: E731
                eventually("a consumer that is ready", ready, output=site.logs)
                yield place
            finally:
                site.end()
                server.kill()


def same(expected: str, found: str) -> bool:
    """Compare an answer; `*` stands for any text."""
    pattern = ".*".join(re.escape(part) for part in expected.split("*"))
    return re.fullmatch(pattern, found) is not None


def check(expected: tuple[int, str], found: tuple[int, list[str]]) -> None:
    """Compare an exit code and the last line of an answer."""
    code, lines = found
    assert (code, same(expected[1], lines[-1])) == (expected[0], True), f"{code}: {lines}"


@pytest.mark.parametrize("case", [*PRODUCER, *CONSUMER], ids=lambda case: case.name)
def test_a_daemon_answers_a_wrong_configuration(place: Place, case: Daemon) -> None:
    check((case.exit, f"{case.program}: {case.answer}"), place.daemon(case))
    if case.check is not None:
        answer = case.check or case.answer
        check((CONFIG, f"{case.program}: *{answer}"), place.daemon(case, "--check"))


@pytest.mark.parametrize("case", COMMANDS, ids=lambda case: case.name)
def test_a_program_answers_a_wrong_command_line(place: Place, case: Command) -> None:
    check((case.exit, case.answer), command(place, case))


@pytest.mark.parametrize("case", CLIENTS, ids=lambda case: case.name)
def test_the_python_client_answers_a_wrong_argument(place: Place, case: Client) -> None:
    check((1, case.answer), client(place, case))


def test_there_are_enough_of_them() -> None:
    answers = [case.answer for case in [*PRODUCER, *CONSUMER, *COMMANDS, *CLIENTS]]
    assert len(answers) >= 30 and all("\n" not in answer for answer in answers)
    assert all(4 < len(answer) < 400 for answer in answers)


def command(place: Place, case: Command) -> tuple[int, list[str]]:
    """Run the command line of a case."""
    program, *arguments = shlex.split(place.text(case.arguments))
    code, lines = place.run([str(BINARIES / program), *arguments], case.env)
    # clap shows the usage below its error.
    return code, [line for line in lines if line.strip()][:1]


def client(place: Place, case: Client) -> tuple[int, list[str]]:
    """Run the line of Python of a case."""
    line = f"import batchweave; batchweave.{place.text(case.line)}"
    return place.run([sys.executable, "-c", line], case.env)


def show() -> None:
    """Print what the programs answer now."""
    fixture = place.__wrapped__()  # type: ignore[attr-defined]
    here = next(fixture)
    for case in [*PRODUCER, *CONSUMER]:
        print(f"\n{case.program} {case.name}\n  {here.daemon(case)}\n  {here.daemon(case, '--check')}")
    for each in COMMANDS:
        print(f"\n{each.name}\n  {command(here, each)}")
    for one in CLIENTS:
        code, lines = client(here, one)
        print(f"\n{one.name}\n  {code} {lines[-1]}")
    fixture.close()


if __name__ == "__main__":
    show()
