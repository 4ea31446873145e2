"""The callback for Lightning of docs/reports.md reports the steps that Lightning trains.

`make test-frameworks` runs this; see conftest.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from fake_daemon import FakeDaemon
from reports_page import Page, means, trainer_of
from test_reports import covered, taking

__all__ = ["taking"]

# Of Lightning's own use of torch.
pytestmark = pytest.mark.filterwarnings("default")


def test_lightning(taking: FakeDaemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BATCHWEAVE_SOCKET", str(taking.path))
    lightning: Any = importlib.import_module("lightning")
    taking.end = 12
    page = Page()
    names = page.run("### Lightning")
    trainer = lightning.Trainer(
        **{"accelerator": "cpu", "max_epochs": 1, "logger": False, "barebones": False},
        **{"enable_checkpointing": False, "enable_progress_bar": False},
        **{"enable_model_summary": False, "default_root_dir": str(tmp_path)},
        callbacks=[names["Losses"]()],
    )
    trainer.fit(names["Module"](page.model))
    peer = trainer_of(taking)
    assert covered(peer) == set(range(12))
    assert len(means(peer)) == 12
