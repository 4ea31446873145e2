"""`packing.fields = ["source_ids"]` with real daemons: each token has the number of its document's
source, in every mode, through kills and where a source joins later.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import batchweave
import numpy as np
import pytest
from probes import run
from site_of_daemons import BINARIES
from test_fork import corpus

PRODUCER = """
store.url = "file://{root}"
stream = {{ slices = 2{shape} }}
producer.name = "a"
tokenizer.kind = "bytes"
packing = {{ mode = "{mode}", last_batch = "pad", fields = {fields}{packing} }}
commit = {{ max_batches = 2, linger = "20ms" }}
admin.listen = "off"
"""
SOURCE = """
[[sources]]
name = "{name}"
paths = ["{folder}/{name}.jsonl"]
weight = {weight}
shuffle = {{ seed = 3, window = "1MiB" }}
"""
ROWS = ", rows_per_slice = 2, seq_len = 200"
BINS = ", balanced = { tokens = 4096, micro_batches = 2, window = 2 }"
FIELDS = '["source_ids", "document_ids"]'
MODES = {"concat": (ROWS, ""), "best_fit": (ROWS, ""), "balanced": ("", BINS)}


def config(folder: Path, mode: str, sources: dict[str, float]) -> Path:
    """Return the configuration of a producer of these sources with their weights."""
    shape, packing = MODES[mode]
    text = PRODUCER.format(
        root=folder / "stream", shape=shape, mode=mode, fields=FIELDS, packing=packing
    )
    for name, weight in sources.items():
        text += SOURCE.format(name=name, folder=folder, weight=weight)
    path = folder / "producer.toml"
    path.write_text(text)
    return path


def produce(path: Path, kills: int) -> None:
    """Run a producer to its end, killed some times before."""
    for kill in range(kills):
        command = [str(BINARIES / "batchweave-producer"), "--config", str(path)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as daemon:
            time.sleep(0.04 + 0.03 * kill)
            daemon.kill()
    done = run("batchweave-producer", "--config", path)
    assert done.code == 0, done


def check(folder: Path, order: list[str]) -> set[int]:
    """Compare each token's source with that of its document's file; return the sources seen."""
    seen: set[int] = set()
    with batchweave.open(f"file://{folder}/stream") as stream:
        files = {
            number: order.index(Path(name).stem)
            for number, name in enumerate(listed(folder / "stream"))
        }
        for step in stream.steps:
            for piece in stream[step].slices:
                sources, documents = piece["source_ids"], piece["document_ids"]
                assert sources.dtype == np.uint16
                assert sources.shape == documents.shape == piece["tokens"].shape
                real = documents >= 0
                wanted = [files[int(file)] for file in documents[real] >> 40]
                assert sources[real].tolist() == wanted, step
                assert not sources[~real].any(), step
                seen |= set(wanted)
    return seen


def listed(root: Path) -> list[str]:
    """Return the files of the producer's input list, by number."""
    links = [json.loads(link.read_text()) for link in sorted((root / "inputs").rglob("*.json"))]
    return list(dict.fromkeys(pin["name"] for link in links for pin in link["files"]))


@pytest.mark.parametrize("mode", MODES)
def test_each_token_has_its_source_through_kills(tmp_path: Path, mode: str) -> None:
    corpus(tmp_path)
    produce(config(tmp_path, mode, {"web": 0.6, "code": 0.4}), kills=3)
    assert check(tmp_path, ["web", "code"]) == {0, 1}


def produce_up_to(path: Path, steps: int) -> None:
    """Run a producer that waits there, or one before where an object has two, and stop it."""
    text = path.read_text()
    path.write_text(text.replace("admin.listen", f"ahead.max_steps = {steps}\nadmin.listen"))
    command = [str(BINARIES / "batchweave-producer"), "--config", str(path)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as daemon:
        while made(path.parent) < steps - 1:
            assert daemon.poll() is None
            time.sleep(0.02)
        daemon.terminate()


def made(folder: Path) -> int:
    if not (folder / "stream" / "stream.json").exists():
        return 0
    shown = run("batchweave", "status", "--store", f"file://{folder}/stream", "--json")
    return int(json.loads(shown.out)["head"]["steps"]) if shown.code == 0 else 0


def test_a_source_that_joins_gets_the_next_number(tmp_path: Path) -> None:
    corpus(tmp_path)
    lines = (json.dumps({"text": f"late {n} " * 30}) + "\n" for n in range(60))
    (tmp_path / "late.jsonl").write_text("".join(lines))
    produce_up_to(config(tmp_path, "concat", {"web": 0.6, "code": 0.4}), 8)
    three = {"web": 0.6, "code": 0.4, "late": 0}
    produce_up_to(config(tmp_path, "concat", three), 12)
    weights = ["web=0.3", "code=0.3", "late=0.4"]
    root = f"file://{tmp_path}/stream"
    done = run("batchweave", "mixture", "set", "--after", "2", *weights, "--store", root)
    assert done.code == 0, done
    produce(config(tmp_path, "concat", three), kills=2)
    assert check(tmp_path, ["web", "code", "late"]) == {0, 1, 2}
