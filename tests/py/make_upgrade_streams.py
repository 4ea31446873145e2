"""Makes the streams of tests/golden/upgrade with the programs of an older commit.

    PYTHONPATH=OLD/python/src:tests/py python tests/py/make_upgrade_streams.py PROGRAMS FOLDER

PROGRAMS is the folder of that commit's `batchweave`, `batchweave-producer` and
`batchweave-consumer`, and OLD its checkout. The streams in the repository were made by 22c131e6.
Each stream is one archive of FOLDER, with its input, its configuration and what was stored when its
producer was stopped in the middle. FOLDER/facts.json says what the same programs made of a copy of
each up to its end: the digests of all batches per producer, and the keys of all records.
`test_upgrade.py` compares today's programs with it. A stream without digests is made likewise:

    PYTHONPATH=tests/py python tests/py/make_upgrade_streams.py PROGRAMS FOLDER undigested

The one in the repository was made by 73bd7c8. Archives are never changed, only added.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import batchweave
from upgrade_catalogue import STREAMS, UNDIGESTED, Made
from upgrade_inputs import OLD, tar, words
from upgrade_stream import batches, committed, key_paths


class Maker:
    """The folder in which one stream is made, and the older programs."""

    def __init__(self, programs: Path, folder: Path, made: Made) -> None:
        self.programs, self.folder, self.made = programs, folder, made
        self.write(made.files)
        (folder / "stream").mkdir(parents=True)
        (folder / "producer.toml").write_text(made.config.lstrip("\n"))

    def write(self, files: dict[str, bytes]) -> None:
        """Write input files, old enough to be followed."""
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            os.utime(path, (OLD, OLD))

    def start(self, program: str, config: str) -> subprocess.Popen[bytes]:
        """Start a daemon in the folder, with the stream in it as its store."""
        path = self.folder / "used.toml"
        path.write_text(f'store.url = "file://{self.folder / "stream"}"\n{config}')
        with (self.folder / "log").open("ab") as log:
            words = [str(self.programs / program), "--config", path.name]
            return subprocess.Popen(words, cwd=self.folder, stdout=log, stderr=log)

    def ended(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the end of a daemon."""
        code = process.wait(timeout=120)
        assert code == 0, (code, (self.folder / "log").read_text())

    def finish(self) -> None:
        """Let the producer continue to the end of its input, and then a rank."""
        self.ended(self.start("batchweave-producer", self.made.config))
        if self.made.job:
            state = json.loads((self.folder / "state.json").read_text())
            self.receive(attempt="2" * 32, state=state)

    def stop_in_the_middle(self) -> None:
        """Stop the producer when it is held back after `stop` batches."""
        if self.made.rows:
            with batchweave.inbox.open(str(self.folder / "inbox"), "writer-0") as inbox:
                for number, text in enumerate(words(19, self.made.rows)):
                    inbox.put({"text": text})
                    if number % 20 == 19:
                        inbox.flush()
                inbox.finish()
        for other in self.made.before:
            self.ended(self.start("batchweave-producer", other))
        bound = f"ahead.max_steps = 100000\nahead.no_job_steps = {self.made.stop}\n"
        process = self.start("batchweave-producer", bound + self.made.config)
        self.eventually(lambda: "held back" in (self.folder / "log").read_text() and self.is_near())
        # The time to write a snapshot and the index.
        time.sleep(1.0)
        process.send_signal(signal.SIGTERM)
        self.ended(process)
        self.write(self.made.later)
        if self.made.mixture:
            self.batchweave("mixture", "set", *self.made.mixture)
        if self.made.job:
            self.receive(attempt="1" * 32, start=0, stop=self.made.job)

    def is_near(self) -> bool:
        """Return whether all but the last entry before the bound is committed."""
        return committed(self.folder / "stream") > self.made.stop - 4

    def receive(self, stop: int = 0, **place: Any) -> None:
        """Let a rank receive steps from a consumer daemon up to `stop`, or to the end of the
        stream, with a checkpoint every fourth."""
        path = self.folder / "daemon"
        config = f"""
job = {{ name = "training", open = true }}
arena = {{ bytes = "8MiB", segment_bytes = "4MiB" }}
prefetch = {{ bytes = "4MiB", steps = 16 }}
socket.path = "{path}"
reclaim.enabled = false
admin.listen = "off"
"""
        daemon = self.start("batchweave-consumer", config)
        self.eventually(path.exists)
        options: dict[str, Any] = {"socket": str(path), "dp_rank": 0, "dp_size": 1}
        with batchweave.connect(job="training", **options, **place) as reader:
            for batch in reader:
                if batch.step % 4 == 3:
                    reader.checkpoint(batch.state_dict())
                    state = json.dumps(batch.state_dict())
                    (self.folder / "state.json").write_text(state + "\n")
                if batch.step + 1 == stop:
                    break
        daemon.send_signal(signal.SIGTERM)
        self.ended(daemon)

    def batchweave(self, *verb: str) -> None:
        """Run a verb of the older command line on the stream."""
        store = f"file://{self.folder / 'stream'}"
        subprocess.run([self.programs / "batchweave", "--store", store, *verb], check=True)

    def eventually(self, done: Callable[[], bool]) -> None:
        """Wait for a condition."""
        deadline = time.monotonic() + 40
        while not done():
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.1)

    def archive(self, path: Path) -> None:
        """Write what a continuation needs into an archive."""
        left_out = {"used.toml", "log", "daemon"}
        files = {}
        for file in sorted(self.folder.rglob("*")):
            name = file.relative_to(self.folder)
            temporary = any(part.startswith(".batchweave-tmp") for part in name.parts)
            temporary |= "__pycache__" in name.parts or name.parts[0] in left_out
            if file.is_file() and not temporary:
                files[name.as_posix()] = file.read_bytes()
        path.write_bytes(gzip.compress(tar(files), mtime=0))


def make(programs: Path, folder: Path, streams: dict[str, Made]) -> dict[str, Any]:
    """Make the archives of streams, and return the facts of each."""
    facts: dict[str, Any] = {}
    work = Path(os.environ.get("TMPDIR", "/tmp")) / f"upgrade-{os.getpid()}"
    for name, made in streams.items():
        maker = Maker(programs, work / name, made)
        maker.stop_in_the_middle()
        maker.archive(folder / f"{name}.tar.gz")
        stream = work / name / "stream"
        at_stop = {one: len(digests) for one, digests in batches(stream).items()}
        maker.finish()
        whole = batches(stream)
        assert sum(map(len, whole.values())) > sum(at_stop.values()) + 2, (name, whole)
        facts[name] = {"at_stop": at_stop, "digests": whole, "keys": key_paths(stream)}
        print(name, at_stop, {one: len(digests) for one, digests in whole.items()}, flush=True)
    shutil.rmtree(work)
    return facts


def main() -> None:
    """Make all streams, or those that the command line names."""
    programs, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    everything = STREAMS | UNDIGESTED
    chosen = {name: everything[name] for name in sys.argv[3:] or STREAMS}
    path = folder / "facts.json"
    facts = json.loads(path.read_text()) if path.exists() else {}
    facts |= make(programs, folder, chosen)
    # One line per stream, so that an added one is an added line.
    entries = [f"{json.dumps(name)}: {json.dumps(one)}" for name, one in facts.items()]
    path.write_text("{\n" + ",\n".join(entries) + "\n}\n")


if __name__ == "__main__":
    main()
