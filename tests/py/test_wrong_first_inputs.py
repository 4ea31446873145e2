"""Each wrong first input of a newcomer is answered by one line with cause and remedy, and the right
exit code. The inputs and their answers are in wrong_first_inputs.txt.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import batchweave
import pytest
from site_of_daemons import BINARIES, ROOT, Site, eventually, get
from wrong_first_inputs import Case, Values, cases

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

    def daemon(self, case: Case, *more: str) -> tuple[int, str]:
        """Run a daemon with the configuration of a case."""
        shutil.rmtree(self.folder / "new", ignore_errors=True)
        program, path = f"batchweave-{case.kind}", self.folder / f"{case.kind}.toml"
        path.write_text(self.text(case.text or toml(BASE[case.kind] | case.changes)))
        command = [str(BINARIES / program), "--config", str(path), *more]
        code, lines = self.run(command, case.env)
        # The log stands above the answer.
        first = [n for n, line in enumerate(lines) if line.startswith(program)]
        answer = " / ".join(line.strip() for line in lines[first[0] :]) if first else ""
        return code, answer.removeprefix(f"{program}: ")

    def command(self, case: Case) -> tuple[int, str]:
        """Run the command line of a case."""
        program, *arguments = shlex.split(self.text(case.line))
        code, lines = self.run([str(BINARIES / program), *arguments], case.env)
        # Below a wrong option or verb stand a tip and the usage.
        shown = [line.strip() for line in lines if line.strip() and "--help" not in line]
        return code, " / ".join(shown)

    def python(self, case: Case) -> tuple[int, str]:
        """Run the line of Python of a case."""
        line = f"import batchweave; batchweave.{self.text(case.line)}"
        code, lines = self.run([sys.executable, "-c", line], case.env)
        return code, lines[-1]


BASE: dict[str, Values] = {
    "producer": {
        "store.url": '"file://DIR/new"',
        "producer.name": '"tokens-0"',
        "source.paths": '["DIR/good.jsonl"]',
        "tokenizer.kind": '"bytes"',
        "stream.slices": "1",
        "stream.rows_per_slice": "1",
        "stream.seq_len": "32",
    },
    "consumer": {
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
                made = Case("producer", "made", {"store.url": '"file://DIR/made"'})
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


def test_a_second_producer_of_one_name_stops_the_first(place: Place) -> None:
    """Both are started with one file: the answer of the first names the second."""
    changes: Values = {
        "store.url": '"file://DIR/two"',
        "source.epochs": "0",
        "ahead.max_steps": "4",
    }
    changes |= {"ahead.when_no_job": '"wait"'}
    path = place.folder / "two.toml"
    path.write_text(place.text(toml(BASE["producer"] | changes)))
    command = [str(BINARIES / "batchweave-producer"), "--config", str(path)]
    null = subprocess.DEVNULL
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as first:
        assert first.stderr
        while "producing" not in first.stderr.readline():
            assert first.poll() is None
        code, checked = place.run([*command, "--check"], {})
        assert code == 0, checked
        with subprocess.Popen(command, stderr=null, stdout=null) as second:
            lines = first.stderr.read().strip().splitlines()
            second.kill()
        expected = (
            "batchweave-producer: fenced: producer tokens-0 was opened again, in term 2 by *, so "
            "this older instance stops; nothing is lost, the newer one continues from the last "
            "commit. If both were meant to run, give each its own producer.name"
        )
        check((75, expected), (first.wait(), lines[-1]))


def same(expected: str, found: str) -> bool:
    """Compare an answer; `*` stands for any text."""
    pattern = ".*".join(re.escape(part) for part in expected.split("*"))
    return re.fullmatch(pattern, found) is not None


def check(expected: tuple[int, str], found: tuple[int, str]) -> None:
    """Compare an exit code and an answer."""
    fits = found[0] == expected[0] and same(expected[1], found[1])
    assert fits, f"{found} is not {expected}"


@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case.kind}: {case.name}")
def test_a_wrong_first_input_is_answered(place: Place, case: Case) -> None:
    if case.kind == "command":
        check((case.exit, case.answer), place.command(case))
    elif case.kind == "python":
        check((case.exit, case.answer), place.python(case))
    else:
        if case.exit:
            check((case.exit, case.answer), place.daemon(case))
        answer = case.check or case.answer
        check((CONFIG, f"*{answer}"), place.daemon(case, "--check"))


def test_there_are_enough_of_them() -> None:
    kinds = [case.kind for case in cases()]
    assert len(kinds) >= 30
    assert set(kinds) == {"producer", "consumer", "command", "python"}
    assert all(case.answer or case.check for case in cases())
