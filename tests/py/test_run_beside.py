"""`batchweave run` beside others: on a fresh home, twice at a time, for several jobs, its page."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import batchweave
import pytest
from site_of_daemons import BINARIES, eventually
from test_run import STEPS, Run


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    try:
        yield run
    finally:
        end(run)


def end(run: Run) -> None:
    if run.process and run.process.poll() is None:
        run.process.kill()
        run.process.wait()


def write(run: Run, url: str, extra: str = "") -> None:
    """Write the file with this root, and with a relative path to the input."""
    run.configure(extra)
    text = run.file.read_text().replace(f"file://{run.folder}/root/stream", url)
    run.file.write_text(text)


def verb(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BINARIES / "batchweave"), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def row(run: Run, name: str) -> str:
    """Return a row of the first lines, once it is printed."""
    run.waits("connect   ")
    found = re.search(rf"^{name} +(.+)$", run.output(), re.MULTILINE)
    return found[1] if found else ""


def connect(run: Run, job: str = "train") -> batchweave.Reader:
    """Connect by the printed line."""
    line = row(run, "connect").split(" or ")[0]
    found = re.fullmatch(r'batchweave\.connect\((?:"([^"]+)", )?job="[^"]+"\)', line)
    assert found, line
    return batchweave.connect(found[1] or default_socket(), job=job)


def default_socket() -> str:
    user = os.getuid()
    places = ["/run/batchweave", f"/run/user/{user}/batchweave", f"/tmp/batchweave-{user}"]
    sockets = [f"{place}/consumer.sock" for place in places]
    eventually("a socket", lambda: any(Path(path).exists() for path in sockets))
    return next(path for path in sockets if Path(path).exists())


def read(run: Run, job: str = "train") -> int:
    """Read to the end of the stream as the only rank of a job."""
    with connect(run, job) as reader:
        return sum(1 for _ in reader)


@pytest.mark.parametrize(
    "root", ["./root/stream", "FOLDER/root/stream", "file://FOLDER/root/stream"]
)
def test_a_check_is_the_first_command_on_a_fresh_home(run: Run, root: str) -> None:
    write(run, root.replace("FOLDER", str(run.folder)))
    home = run.folder / "home"
    before = sorted(run.folder.iterdir())
    checked = subprocess.run(
        run.command("--check"),
        cwd=run.folder,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert checked.returncode == 0, checked
    url = f"file://{run.folder}/root/stream"
    assert f"{url}: a start creates this folder" in checked.stdout
    assert f"{url}: no folder yet: a producer creates it" in checked.stdout
    assert checked.stdout.endswith(f"{run.file}: ok\n")
    assert sorted(run.folder.iterdir()) == before
    assert not home.exists()


def test_a_plain_path_names_the_stream_everywhere(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.folder)
    write(run, "./root/stream")
    run.start()
    assert row(run, "stream") == f"file://{run.folder}/root/stream"
    assert run.train() == STEPS
    assert run.ends() == 0, run.everything()
    for words in [
        ["status", "--store", "./root/stream"],
        ["verify", "--job", "train", "--store", f"{run.folder}/root/stream"],
        ["--store", "root/../root/stream", "log"],
    ]:
        ran = verb(run.folder, *words)
        refused = words[1].startswith("root")
        assert ran.returncode == (64 if refused else 0), ran
        assert ("write ./root/../root/stream" in ran.stderr) == refused, ran
    with batchweave.open("./root/stream") as stream:
        assert len(stream) == STEPS


def test_two_runs_of_one_user_do_not_collide(tmp_path: Path) -> None:
    runs = []
    try:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            run = Run(tmp_path / name)
            run.environment = lambda: {  # type: ignore[method-assign]
                name: value for name, value in os.environ.items() if name != "BATCHWEAVE_SOCKET"
            }
            runs.append(run)
        # Both choose their places at the same time.
        for run in runs:
            run.start()
        # Of two that choose the usual port of the status page, one moves, with a line that says so.
        for name in ("connect", "producer", "ui"):
            assert row(runs[0], name) != row(runs[1], name), name
        for run in runs:
            run.waits("the producer has finished")
        # Both train at the same time.
        with ThreadPoolExecutor() as ranks:
            assert list(ranks.map(read, runs)) == [STEPS, STEPS]
        for run in runs:
            assert run.ends() == 0, run.everything()
            assert "WARN" not in run.output(), run.output()
    finally:
        for run in runs:
            end(run)


def test_one_run_serves_several_jobs(run: Run) -> None:
    run.configure('job.names = ["pretrain", "probe"]')
    run.start()
    line = row(run, "connect")
    assert '(job="pretrain") or batchweave' in line.replace(f'"{run.socket}", ', ""), line
    with pytest.raises(batchweave.BatchWeaveError, match="serves jobs pretrain, probe"):
        batchweave.connect(str(run.socket), job="train", connect_timeout=60)
    taken: dict[str, int] = {}

    def rank(job: str) -> None:
        taken[job] = read(run, job)

    rank("pretrain")
    run.waits("the producer has finished")
    # The other job has taken nothing yet, so the run goes on.
    assert run.process
    assert run.process.poll() is None, run.everything()
    run.waits("no rank is connected; not all steps: job probe")
    thread = threading.Thread(target=rank, args=("probe",))
    thread.start()
    thread.join()
    assert taken == {"pretrain": STEPS, "probe": STEPS}
    assert run.ends() == 0, run.everything()
    assert f"done: jobs pretrain, probe have taken all {STEPS} steps" in run.output()
    for job in taken:
        proof = verb(run.folder, "verify", "--job", job, "--store", f"{run.folder}/root/stream")
        assert proof.returncode == 0, proof
        assert f"proved: steps 0..{STEPS - 1}" in proof.stdout, proof


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ('job.name = "a"\njob.names = ["b"]', "give job.name for one job or job.names for several"),
        ('job.names = ["c d"]', '"c d" is not a valid name'),
        ('job.names = ["b", "b"]', '"b" is listed twice'),
    ],
)
def test_names_of_jobs_are_checked(run: Run, keys: str, problem: str) -> None:
    run.configure(keys)
    failed = run.complete("--check")
    assert failed.returncode == 64, failed
    assert f"job.names: {problem}" in failed.stderr, failed


def copied(run: Run) -> Run:
    """Return a run of a copy of the file."""
    folder = run.folder / "copy"
    folder.mkdir()
    other = Run(folder)
    shutil.copy(run.file, other.file)
    return other


def test_a_second_run_of_a_copied_file_is_refused(run: Run) -> None:
    run.configure("ahead.max_steps = 10")
    run.start()
    eventually("a hold", lambda: "held back" in run.log("producer"), output=run.everything)
    other = copied(run)
    second = other.complete()
    assert second.returncode == 1, second
    words = f"producer tokens-0 of file://{run.folder}/root/stream is at work already"
    assert words in second.stderr, second
    assert run.process
    assert f"`batchweave run`, process {run.process.pid}" in second.stderr
    assert len(second.stderr.splitlines()) == 1, second
    assert "fenced" not in run.everything()
    assert run.train() == STEPS
    assert run.ends() == 0, run.everything()


def test_a_producer_that_was_started_by_hand_is_not_fenced(run: Run) -> None:
    run.configure("ahead.max_steps = 10")
    text = run.file.read_text().replace("arena.bytes", "# arena.bytes")
    text = text.replace("stream = {", "stream = { producers = ['tokens-0'],")
    config = run.folder / "producer.toml"
    config.write_text(f"{text}\nproducer.name = 'tokens-0'\nadmin.listen = 'off'\n")
    with (run.folder / "hand.log").open("wb") as log:
        hand = subprocess.Popen(
            [str(BINARIES / "batchweave-producer"), "--config", str(config)], stderr=log
        )
    try:
        said = run.folder / "hand.log"
        eventually("a hold", lambda: "held back" in said.read_text(), output=said.read_text)
        second = run.complete()
        assert second.returncode == 1, second
        assert f"is at work already (process {hand.pid})" in second.stderr, second
        assert hand.poll() is None
    finally:
        hand.kill()
        hand.wait()
    # It was killed, so the run takes over at once.
    run.start()
    assert run.train() == STEPS
    assert run.ends() == 0, run.everything()


def test_a_run_that_was_killed_is_continued_at_once(run: Run) -> None:
    run.configure("ahead.max_steps = 10")
    process = run.start()
    eventually("a hold", lambda: "held back" in run.log("producer"), output=run.everything)
    eventually("serving", lambda: "serving" in run.log("consumer"), output=run.everything)
    process.kill()
    process.wait()
    run.start()
    assert run.train() == STEPS
    assert run.ends() == 0, run.everything()


def page(url: str) -> dict[str, object]:
    with urllib.request.urlopen(f"{url}stream.json", timeout=30) as answer:
        shown: dict[str, object] = json.load(answer)
        return shown


def test_a_run_has_one_page_which_never_ends_it(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = f"127.0.0.1:{taken.getsockname()[1]}"
        run.start("--until", "stopped", "--ui", busy)
        url = row(run, "ui")
        assert busy not in url
        assert f"the page of --ui cannot listen on {busy}" in run.output()
        assert f"it is at {url} instead" in run.output()
        run.waits("the producer has finished")

        def shown() -> bool:
            try:
                daemons = page(url)["daemons"]
            except OSError:
                return False
            assert isinstance(daemons, list)
            return [one["status"] is not None for one in daemons][-1:] == [True]

        eventually("both daemons on the page", shown, output=run.everything)
        stream = page(url)["stream"]
        assert isinstance(stream, dict)
        assert stream["root"] == f"file://{run.folder}/root/stream"
    end(run)
    run.start("--until", "stopped", "--ui", "off")
    assert row(run, "ui") == ""
    wrong = run.complete("--ui", "here")
    assert wrong.returncode == 64, wrong
    assert 'invalid address "here"' in wrong.stderr
