"""The producers as an Indexed Job: names and indexes, and exit codes that the Job acts on."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from manifests import KUBERNETES
from site_of_daemons import BINARIES, ROOT, eventually
from test_kubernetes import resources


def named(kind: str, name: str, overlay: str = "indexed") -> dict[str, Any]:
    found = [
        one for one in resources(overlay) if one["kind"] == kind and one["metadata"]["name"] == name
    ]
    assert len(found) == 1, (kind, name)
    return found[0]


JOB: dict[str, Any] = named("Job", "tokens")["spec"]
POD: dict[str, Any] = JOB["template"]["spec"]


def configuration() -> str:
    maps = [one for one in resources("indexed") if one["kind"] == "ConfigMap"]
    return next(str(one["data"]["producer.toml"]) for one in maps if "producer.toml" in one["data"])


def value(configuration: str, key: str) -> Any:
    """Return the value of a key that is in a configuration once: a text, a number or a list."""
    (found,) = re.findall(rf"^{key} = (.*?)(?: #.*)?$", configuration, re.MULTILINE)
    return json.loads(found)


def shell(script: str, folder: Path, index: int = 0) -> subprocess.Popen[bytes]:
    """Start a container's script with the files of a folder, by this machine's shell."""
    here = script.replace("/bin/busybox ", "").replace("/etc/batchweave", str(folder))
    return subprocess.Popen(
        ["sh", "-c", here.replace("/run/config", str(folder / "run"))],
        env={"PATH": f"{BINARIES}:/usr/bin:/bin", "JOB_COMPLETION_INDEX": str(index)},
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    (tmp_path / "producer.toml").write_text(configuration())
    return tmp_path


def test_each_completion_is_one_of_the_producers_of_the_stream(folder: Path) -> None:
    names = []
    for index in range(JOB["completions"]):
        configure = shell(POD["initContainers"][0]["args"][0], folder, index)
        assert configure.wait() == 0
        made = (folder / "run" / "producer.toml").read_text()
        assert value(made, "index") == index
        assert value(made, "of") == JOB["completions"] == JOB["parallelism"]
        names.append(value(made, "name"))
    assert value(configuration(), "producers") == names
    assert len(set(names)) == len(names) > 1
    assert JOB["completionMode"] == "Indexed"


def test_a_wrong_configuration_ends_the_job_at_its_init_container(folder: Path) -> None:
    wrong = configuration().replace("[producer]", "[producer]\nnonsense = 1")
    (folder / "producer.toml").write_text(wrong)
    code = shell(POD["initContainers"][0]["args"][0], folder).wait()
    rule = JOB["podFailurePolicy"]["rules"][0]
    assert rule["action"] == "FailJob"
    assert "containerName" not in rule["onExitCodes"], "the rule holds for init containers, too"
    assert code in rule["onExitCodes"]["values"]


def test_the_job_fails_for_the_codes_after_which_the_unit_stays_down() -> None:
    """A unit and a Job agree, but 0 is the end of the input for both."""
    unit = (ROOT / "deploy" / "systemd" / "batchweave-producer@.service").read_text()
    stays_down = re.search(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)
    assert stays_down
    rules = JOB["podFailurePolicy"]["rules"]
    assert rules[0]["onExitCodes"]["operator"] == "In"
    assert rules[0]["onExitCodes"]["values"] == [int(code) for code in stays_down[1].split()]
    # A pod that a drained node stops is not counted; others are, up to a limit that is far.
    assert rules[1]["action"] == "Ignore"
    assert rules[1]["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert JOB["backoffLimitPerIndex"] >= 1000
    assert POD["restartPolicy"] == "Never", "a policy for failures needs it"


def run(folder: Path, more: str, shape: str = "seq_len = 8") -> subprocess.Popen[bytes]:
    (folder / "run" / "producer.toml").write_text(
        f"""
store.url = "file://{folder}/stream"
stream = {{ slices = 1, rows_per_slice = 1, {shape}, producers = ["p"] }}
producer.name = "p"
source.paths = ["{folder}/corpus/*.jsonl"]
tokenizer.kind = "bytes"
admin.listen = "off"
{more}
"""
    )
    (folder / "corpus").mkdir(exist_ok=True)
    (folder / "corpus" / "a.jsonl").write_text('{"text": "a document of some length"}\n')
    return shell(POD["containers"][0]["args"][0], folder)


def has_steps(folder: Path) -> bool:
    return any((folder / "stream" / "log").glob("*")) if (folder / "stream").exists() else False


def test_a_finished_producer_completes_its_index(folder: Path) -> None:
    assert run(folder, "").wait() == 0


def test_a_stopped_producer_does_not_complete_its_index(folder: Path) -> None:
    """Without the shell around it the code is 0, and the Job would not start it again."""
    follow = 'source.follow = true\nsource.settled_age = "0s"'
    for _ in range(2):
        process = run(folder, follow)
        eventually("the shell handles signals", partial(handles_sigterm, process.pid))
        eventually("the stream has a log", lambda: has_steps(folder))
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 143
    direct = subprocess.Popen(
        [str(BINARIES / "batchweave-producer"), "--config", str(folder / "run" / "producer.toml")]
    )
    eventually("the daemon handles signals", partial(handles_sigterm, direct.pid))
    direct.send_signal(signal.SIGTERM)
    assert direct.wait() == 0


def handles_sigterm(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def test_other_exit_codes_pass_through_the_shell(folder: Path) -> None:
    assert run(folder, "nonsense = 1").wait() == 64


def rest(mapping: dict[str, Any], without: set[str]) -> str:
    """Return a mapping as text, without some keys and the hashes of the files' contents."""
    kept = {name: value for name, value in mapping.items() if name not in without}
    return re.sub(
        r"batchweave-producer-[a-z0-9]{10}\b",
        "batchweave-producer",
        json.dumps(kept, sort_keys=True),
    )


def test_the_pod_is_that_of_the_stateful_set_but_for_its_name_and_its_end() -> None:
    """The pods differ in what a Job needs, so that a change of one is made to the other."""
    other = named("StatefulSet", "tokens", "aws")["spec"]["template"]["spec"]
    own = {"containers", "initContainers", "restartPolicy"}
    assert rest(POD, own) == rest(other, own)
    for kind in ("containers", "initContainers"):
        for mine, its in zip(POD[kind], other[kind], strict=True):
            differ = {"command", "args", "env"}
            assert rest(mine, differ) == rest(its, differ)
    aws = {(one["kind"], one["metadata"]["name"]) for one in resources("aws")}
    ours = {(one["kind"], one["metadata"]["name"]) for one in resources("indexed")}
    gone = {each for each in aws - ours if each[0] != "ConfigMap"}
    assert gone == {
        ("StatefulSet", "tokens"),
        ("Service", "tokens"),
        ("PodDisruptionBudget", "tokens"),
    }
    assert (KUBERNETES / "overlays" / "indexed").is_dir()
