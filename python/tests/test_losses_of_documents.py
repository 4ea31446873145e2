"""Losses of documents from a rank to the table: each is that of the document which it names.

The loss of a label is the line of its document in the corpus, so a document that is counted in
another's place shows.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from loss_device import reporter
from real_daemons import ATTEMPTS, MARKS, ROWS, SEQ_LEN, SLICES, Daemons

import batchweave
from batchweave.batch import Batch

pytestmark = [*MARKS, pytest.mark.usefixtures("programs")]

STEPS = 150
BALANCED = f"""
mode = "balanced"
fields = ["document_ids", "loss_mask"]
balanced.tokens = {4 * SEQ_LEN}
balanced.micro_batches = {ROWS}
"""
FORMS = {
    "concat": 'mode = "concat"\nfields = ["document_ids", "source_ids"]',
    "concat by segments": 'mode = "concat"\nfields = ["document_ids", "segment_ids"]',
    "best_fit": 'mode = "best_fit"\nfields = ["document_ids", "segment_ids", "loss_mask"]',
    "balanced": BALANCED,
}


def configure(file: Path, form: str) -> None:
    text = file.read_text() + f"[packing]\n{FORMS[form]}\n"
    if form == "balanced":
        for line in (f"rows_per_slice = {ROWS}\n", f"seq_len = {SEQ_LEN}\n"):
            text = text.replace(line, "")
    file.write_text(text)


def lines(batch: Batch) -> Any:
    """The line of each label's document, from 1; anything for padding."""
    if "bins" in batch:
        return [micro["document_ids"][1:] + 1.0 for micro in batch.micro_batches()]
    return batch["document_ids"][:, 1:] + 1.0


def learned(batch: Batch) -> int:
    if "bins" in batch:
        return sum(int(micro.loss_mask.sum()) for micro in batch.micro_batches())
    return int(batch.loss_mask.sum())


def trained(root: Path) -> int:
    """Trains some steps; returns the number of labels."""
    more: dict[str, Any] = {"timeout": 60, "job": "t", "attempt": ATTEMPTS[0]}
    labels = 0
    with batchweave.connect(root / "s.sock", **more) as reader:
        report = reporter(reader, every=7, detail="document")
        for batch in reader:
            report(batch, lines(batch))
            labels += learned(batch)
            if batch.step == STEPS - 1:
                reader.checkpoint(batch.state_dict())
                break
        assert reader.info.slices == SLICES
    assert reader.dropped_losses == (0, 0, 0)
    return labels


@pytest.mark.parametrize("form", FORMS)
def test_each_document_has_its_own_loss(daemons: Daemons, tmp_path: Path, form: str) -> None:
    configure(tmp_path / "producer.toml", form)
    assert daemons("producer").wait(60) == 0
    consumer = daemons("consumer")
    labels = trained(tmp_path)
    consumer.send_signal(signal.SIGTERM)
    assert consumer.wait(60) == 0
    with batchweave.open(f"file://{tmp_path}/stream", memory="16MiB") as stream:
        found = stream.losses("t", by="document").to_pylist()
        steps = stream.losses("t", range(5, 8)).to_pylist()
    assert [row["step"] for row in steps] == [5, 6, 7]
    for row in found:
        (name,) = row["documents"].splitlines()
        assert not row["of_row"]
        assert row["loss"] == pytest.approx(int(name.rpartition(":")[2])), row
    assert sum(row["tokens"] for row in found) == labels > 100_000
