"""Ranks that train by accelerate and by a transformers Trainer: for test_torch_trainers.

    torch_wrapped.py SOCKET FOLDER CASE...

Each case runs in real gloo groups of two ranks, or of one if its name begins with "one". Prints,
by case and rank, the trained steps and the error, as one line of JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch_worlds import ranks

import batchweave

torch: Any = importlib.import_module("torch")
accelerate: Any = importlib.import_module("accelerate")
transformers: Any = importlib.import_module("transformers")
data: Any = importlib.import_module("torch.utils.data")

STEPS, SAVED, WIDTH = 12, 4, 16
PAGE = Path(__file__).parents[2] / "docs" / "pytorch.md"
SECTION = PAGE.read_text().split("## Accelerate and Trainer")[1].split("\n## ")[0]
BLOCKS = [text.split("```")[0] for text in SECTION.split("```python\n")[1:]]
BY_HAND, BY_TRAINER = BLOCKS


class Model(transformers.GPT2LMHeadModel):  # type: ignore[misc, unused-ignore]
    """A real model, which records the rows that it is trained on."""

    def __init__(self) -> None:
        super().__init__(
            transformers.GPT2Config(
                vocab_size=1 << 16, n_positions=WIDTH, n_embd=8, n_layer=1, n_head=1
            )
        )
        self.trained: list[int] = []

    def forward(self, input_ids: Any = None, labels: Any = None, **_: Any) -> Any:
        # A loader that divides batches or joins them is seen by the rows that arrive.
        rows, targets = input_ids.reshape(-1, WIDTH), labels.reshape(-1, WIDTH)
        self.trained += rows[:, 0].tolist()
        return super().forward(input_ids=rows, labels=targets)


Body = Callable[[Model, Path], None]


def prepared(model: Model, loader: Any, **settings: Any) -> None:
    """A usual loop of accelerate, with a prepared loader."""
    configured = accelerate.DataLoaderConfiguration(**settings)
    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=configured)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for step in loader:
        accelerator.backward(wrapped(**step).loss)
        optimizer.step()
        optimizer.zero_grad()


def loader(job: str | None = "pretrain", batch_size: int | None = None) -> Any:
    return data.DataLoader(batchweave.torch.Dataset(job=job, copy=True), batch_size=batch_size)


def dispatched(model: Model, _: Path) -> None:
    prepared(model, loader())


def evaluated(model: Model, _: Path) -> None:
    prepared(model, loader(None))


def sharded(model: Model, _: Path) -> None:
    # With batch_size=None accelerate fails by itself.
    prepared(model, loader(batch_size=1), dispatch_batches=False)


def skipped(model: Model, _: Path) -> None:
    for step in accelerate.skip_first_batches(loader(None), SAVED):
        model(**step)


def by_hand(model: Model, _: Path) -> None:
    """The loop of the page."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    exec(BY_HAND, {**page(), "model": model, "optimizer": optimizer})


def arguments(folder: Path, **more: Any) -> Any:
    given = {"output_dir": str(folder), "use_cpu": True, "report_to": "none", "disable_tqdm": True}
    given.update(max_steps=STEPS, save_steps=SAVED, logging_steps=100)
    return transformers.TrainingArguments(**{**given, **more})


def trained(model: Model, folder: Path) -> None:
    """A Trainer that is given a Dataset, and nothing else."""
    dataset = batchweave.torch.Dataset(job="pretrain", copy=True)
    # Of two ranks that share the steps of one, each has half of them.
    more = {"per_device_train_batch_size": 1, "save_strategy": "no", "max_steps": STEPS // 2}
    transformers.Trainer(model, arguments(folder, **more), train_dataset=dataset).train()


def stops(model: Model, folder: Path, **more: Any) -> None:
    """The Trainer of the page, with this test's settings; it begins at its last checkpoint."""

    def settings(output_dir: str, **given: Any) -> Any:
        return arguments(Path(output_dir), **{**given, **more})

    names = {**page(), "model": model, "folder": str(folder), "steps": STEPS}
    block = BY_TRAINER.replace("TrainingArguments(", "settings(")
    exec(block, {**names, "settings": settings})


def first_half(model: Model, folder: Path) -> None:
    stops(model, folder, max_steps=2 * SAVED)


def second_half(model: Model, folder: Path) -> None:
    stops(model, folder.with_name(folder.name.replace("second", "first")))


def fast_forward(model: Model, folder: Path) -> None:
    """As the page's, without its setting that a resumed Dataset needs."""
    before = folder.with_name(folder.name.split("-")[0] + "-first_half")
    stops(model, before, ignore_data_skip=False)


def page() -> dict[str, Any]:
    return {"__name__": "page", "batchweave": batchweave, "DataLoader": data.DataLoader}


CASES: dict[str, Body] = {
    each.__name__: each
    for each in (
        *(dispatched, sharded, by_hand, trained, first_half, fast_forward, second_half),
        *(evaluated, skipped),
    )
}


def running(case: str, folder: Path, world: int) -> Callable[[int], Any]:
    """A rank that records the steps it trained on, and the error that ended it."""

    def body(rank: int) -> Any:
        names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
        # Without a launcher's variables, one rank is one process to accelerate.
        os.environ.update({name: str(value) for name, value in names.items() if world > 1})
        os.environ["ACCELERATE_USE_CPU"] = "true"
        torch.set_num_threads(1)
        model, error = Model(), None
        try:
            CASES[case.split("-")[1]](model, folder / case)
        except batchweave.BatchWeaveError as refused:
            error = [refused.name, str(refused)]
        return {"rows": model.trained, "error": error}

    return body


def main() -> None:
    """All named cases, one after another."""
    socket, folder = sys.argv[1], Path(sys.argv[2])
    os.environ["BATCHWEAVE_SOCKET"] = socket
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    found: dict[str, Any] = {}
    for case in sys.argv[3:]:
        world = 1 if case.startswith("one") else 2
        (folder / case).mkdir(exist_ok=True)
        found[case] = ranks(world, folder / f"{case}.group", running(case, folder, world))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
