"""Trains a tiny model on the batches of run.toml: a place for your own model and loop.

    batchweave run run.toml     in one terminal
    python train.py             in another; after Ctrl-C or a crash the same command continues

With PyTorch the model learns to predict each next token; without it, it counts tokens.
Written by `batchweave quickstart`: yours to change.
"""

from __future__ import annotations

import importlib
import importlib.util
import pickle
from pathlib import Path
from typing import Any

import batchweave

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
numpy: Any = importlib.import_module("numpy")

JOB = "train"  # job.name in run.toml
CHECKPOINT = Path(__file__).with_name("train.checkpoint")  # model and position in the data
SAVE_EVERY = 10  # steps
CHUNK = 2048  # tokens that the model takes at a time, which bounds its memory


class TorchModel:
    """Predicts the next token from one token, with PyTorch."""

    def __init__(self, vocabulary: int) -> None:
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        layers = [torch.nn.Embedding(vocabulary, 32), torch.nn.Linear(32, vocabulary)]
        self.net = torch.nn.Sequential(*layers).to(self.device)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-2)

    def step(self, inputs: Any, labels: Any, learned: Any) -> float:
        """Trains on one batch and returns its mean loss."""
        inputs, labels, learned = (self.tensor(one) for one in (inputs, labels, learned))
        total, mean = max(int(learned.sum()), 1), 0.0
        for at in range(0, labels.numel(), CHUNK):
            part = slice(at, at + CHUNK)
            losses = torch.nn.functional.cross_entropy(
                self.net(inputs[part]), labels[part], reduction="none"
            )
            loss = (losses * learned[part]).sum() / total
            loss.backward()
            mean += float(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return mean

    def tensor(self, array: Any) -> Any:
        """Returns a private copy on the device: a batch's arrays are views of shared memory."""
        return torch.from_numpy(array.astype("int64")).flatten().to(self.device)

    def state_dict(self) -> Any:
        """Returns the parameters and the state of the optimizer."""
        return {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Any) -> None:
        """Continues from there."""
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])


class CountingModel:
    """Predicts the next token from the counts of all tokens, with numpy alone."""

    def __init__(self, vocabulary: int) -> None:
        self.counts = numpy.ones(vocabulary)

    def step(self, _inputs: Any, labels: Any, learned: Any) -> float:
        """Trains on one batch and returns its mean loss."""
        tokens = labels[learned != 0]
        if not tokens.size:
            return 0.0
        loss = -numpy.log(self.counts[tokens] / self.counts.sum()).mean()
        self.counts += numpy.bincount(tokens, minlength=self.counts.size)
        return float(loss)

    def state_dict(self) -> Any:
        """Returns the counts."""
        return self.counts

    def load_state_dict(self, state: Any) -> None:
        """Continues with these counts."""
        self.counts = state


def save(path: Path, checkpoint: dict[str, Any]) -> None:
    """Saves a checkpoint: a crash leaves the old one or the new one."""
    fresh = path.with_suffix(".new")
    with fresh.open("wb") as out:
        if torch:
            torch.save(checkpoint, out)
        else:
            pickle.dump(checkpoint, out)
    fresh.replace(path)


def load(path: Path) -> dict[str, Any]:
    """Returns the last checkpoint; an empty one at the first start."""
    if not path.exists():
        return {}
    with path.open("rb") as file:
        found: dict[str, Any] = torch.load(file) if torch else pickle.load(file)
        return found


def main() -> None:
    """Trains until the data end."""
    saved = load(CHECKPOINT)
    steps = tokens = 0
    with batchweave.connect(job=JOB, state=saved.get("data")) as reader:
        vocabulary = reader.info.vocabulary or 1 << 17
        model = TorchModel(vocabulary) if torch else CountingModel(vocabulary)
        if saved:
            model.load_state_dict(saved["model"])
        for batch in reader:
            # Rows x tokens of this rank. Labels are the inputs shifted by one token; a loss mask of
            # 0 marks tokens that are not to be learned, such as padding and questions.
            loss = model.step(batch.inputs, batch.labels, batch.loss_mask)
            steps, tokens = steps + 1, tokens + batch.inputs.size
            if batch.step % SAVE_EVERY == SAVE_EVERY - 1:
                position = batch.state_dict()
                save(CHECKPOINT, {"model": model.state_dict(), "data": position})
                reader.checkpoint(position)  # durable: data that only earlier steps need may go
                print(f"step {batch.step}  loss {loss:.3f}  checkpoint", flush=True)
    print(f"trained on {tokens} tokens in {steps} steps")


if __name__ == "__main__":
    main()
