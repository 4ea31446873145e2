"""Slurm's prolog and epilog, with stand-ins for systemd and srun: what they start and refuse."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from site_of_daemons import BINARIES, ROOT, Site, eventually, free_port

SLURM = ROOT / "deploy" / "slurm"
# Starts and stops the daemon of an instance as the unit does, and writes each call down.
SYSTEMCTL = """#!/bin/sh
folder={folder}
echo "$*" >>$folder/systemctl.log
for unit; do :; done
instance=${{unit#batchweave-consumer@}}
case "$1" in
start)
    mkdir -p $folder/run/batchweave-$instance
    config=$folder/etc/consumer-$instance.toml
    {binaries}/batchweave-consumer --config $config 2>>$folder/daemon.log &
    echo $! >$folder/daemon.pid ;;
stop)
    kill "$(cat $folder/daemon.pid)"
    while kill -0 "$(cat $folder/daemon.pid)" 2>/dev/null; do sleep 0.1; done ;;
esac
"""
# The tasks of one step, on one node; `python` is the test's.
SRUN = """#!/bin/sh
export SLURM_NTASKS=2 SLURM_STEP_ID=0
for rank in 0 1; do SLURM_PROCID=$rank {python} "$2" & last="$last $!"; done
for one in $last; do wait "$one" || exit 1; done
"""
TRAIN = """
import os, batchweave
with batchweave.connect(job="pretrain", connect_timeout=60) as reader:
    for batch in reader:
        if batch.step == 49:
            break
print("rank", os.environ["SLURM_PROCID"], "step", batch.step, flush=True)
"""


class Cluster:
    """One node: the configuration folder, the stand-ins, and the variables that Slurm sets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.etc = folder / "etc"
        self.etc.mkdir()
        programs = folder / "bin"
        programs.mkdir()
        logger = f'#!/bin/sh\necho "$3" >>{folder}/journal\n'
        for name, text in {
            "systemctl": SYSTEMCTL.format(folder=folder, binaries=BINARIES),
            "srun": SRUN.format(python=sys.executable),
            "logger": logger,
        }.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self.environment = {
            "PATH": f"{programs}:/usr/bin:/bin",
            "BATCHWEAVE_CONFIG_DIRECTORY": str(self.etc),
            "SLURM_JOB_ID": "1234567",
            "SLURM_JOB_UID": str(os.getuid()),
        }

    def run(self, script: str, comment: str | None = "batchweave:corpus:pretrain") -> None:
        """Run prolog or epilog as slurmd does; a failure would drain the node."""
        given = {} if comment is None else {"SLURM_JOB_COMMENT": comment}
        subprocess.run([SLURM / script], env=self.environment | given, check=True, timeout=60)

    def text(self, name: str) -> str:
        """Return the content of a file, or nothing."""
        file = self.folder / name
        return file.read_text() if file.exists() else ""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.end()


def test_a_job_between_prolog_and_epilog(site: Site, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    producer = site.start("batchweave-producer", "--config", str(site.producer_config()))
    template = (SLURM / "consumer.toml").read_text()
    here = template.replace("s3://my-bucket/my-stream", site.url).replace(
        "/run/", f"{tmp_path}/run/"
    )
    here = here.replace('"1GiB"', '"16MiB"\nsegment_bytes = "8MiB"')
    (cluster.etc / "slurm-corpus.toml").write_text(here.replace("@PORT@", str(free_port())))
    cluster.run("prolog")
    made = cluster.etc / "consumer-slurm-1234567.toml"
    assert made.stat().st_mode & 0o777 == 0o640
    assert "@" not in made.read_text().split("[store]")[1]
    # The example, with this node's folder and stand-in.
    (tmp_path / "train.py").write_text(TRAIN)
    example = (SLURM / "train.sbatch").read_text().replace("/run/", f"{tmp_path}/run/")
    job = subprocess.run(
        ["bash", "-c", example],
        cwd=tmp_path,
        env=cluster.environment | {"PYTHONPATH": str(ROOT / "python" / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert job.returncode == 0, job.stderr + cluster.text("daemon.log")
    assert sorted(job.stdout.splitlines()) == ["rank 0 step 49", "rank 1 step 49"]
    cluster.run("epilog")
    assert not made.exists()
    calls = [line.split()[0] for line in cluster.text("systemctl.log").splitlines()]
    assert calls == ["start", "stop", "reset-failed"]
    assert "--no-block" in cluster.text("systemctl.log")
    eventually("the daemon has ended", lambda: "stopped" in cluster.text("daemon.log"))
    assert producer.poll() is None


@pytest.mark.parametrize(
    ("comment", "said"),
    [
        (None, ""),
        ("", ""),
        ("a note of mine", ""),
        ("batchweave:corpus", "expected batchweave:STREAM:JOB"),
        ("batchweave:corpus:", "expected batchweave:STREAM:JOB"),
        ("batchweave:corpus:a:b", "expected batchweave:STREAM:JOB"),
        ("batchweave:corpus:a/e;id", "expected batchweave:STREAM:JOB"),
        ("batchweave:../corpus:a", "expected batchweave:STREAM:JOB"),
        ("batchweave:nothing:a", "slurm-nothing.toml is missing"),
    ],
)
def test_other_comments_start_nothing_and_drain_no_node(
    tmp_path: Path, comment: str | None, said: str
) -> None:
    cluster = Cluster(tmp_path)
    (cluster.etc / "slurm-corpus.toml").write_text((SLURM / "consumer.toml").read_text())
    before = sorted(cluster.etc.iterdir())
    cluster.run("prolog", comment)
    cluster.run("epilog", comment)
    assert sorted(cluster.etc.iterdir()) == before
    assert cluster.text("systemctl.log") == ""
    journal = cluster.text("journal").splitlines()
    assert len(journal) == (1 if said else 0), journal
    assert all(said in line and "job 1234567" in line for line in journal)
