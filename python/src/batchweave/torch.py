"""For trainers with PyTorch: datasets and tensors, copies to a device, the attempt's id, and the
data's position in checkpoints.

Importing this module does not import torch; its functions do when they are called.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from batchweave._device import in_flight, to_device
from batchweave._launch import broadcast_id, drawn_id, rank_and_world
from batchweave._loss_torch import LossReporter
from batchweave._packed import packed
from batchweave._ragged_tensors import nested, padded, ragged
from batchweave._tensors import tensor, tensors
from batchweave.errors import BadStateError, BatchWeaveError, NoAttemptError
from batchweave.state import KEY, State

if TYPE_CHECKING:
    from batchweave._dataset import Dataset
    from batchweave.batch import Batch
    from batchweave.reader import Reader

__all__ = [
    "Checkpointing",
    "Dataset",
    "LossReporter",
    "attempt",
    "in_flight",
    "nested",
    "packed",
    "padded",
    "ragged",
    "save",
    "tensor",
    "tensors",
    "to_device",
]

_log = logging.getLogger("batchweave")

# Longest wait at the end of a `with Checkpointing()` block for saves in the background.
_SAVES_SECONDS = 600.0


def __getattr__(name: str) -> Any:
    if name == "Dataset":
        return importlib.import_module("batchweave._dataset").Dataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


def attempt() -> str:
    """Returns an attempt's id, drawn by global rank 0 and broadcast: call it on all ranks.

    Call it at each start, after `torch.distributed.init_process_group` with any backend; a single
    rank needs none. With NCCL set the device first (`torch.cuda.set_device`), because objects are
    sent through it.
    """
    try:
        distributed: Any = importlib.import_module("torch.distributed")
    except ImportError as reason:
        raise NoAttemptError(f"batchweave.torch.attempt() needs PyTorch: {reason}") from reason
    if not distributed.is_available() or not distributed.is_initialized():
        if rank_and_world(None, None) == (0, 1):
            return drawn_id()
        raise NoAttemptError(
            "batchweave.torch.attempt() broadcasts over the default process group, but there is "
            "none: call torch.distributed.init_process_group() on all ranks first"
        )
    return broadcast_id(distributed)


def save(value: Any, path: str | os.PathLike[str]) -> None:
    """Saves like `torch.save`, durably: a crash leaves the old file or the new one.

    Mark the checkpoint afterwards, on all ranks: `reader.checkpoint(state)`.
    """
    pytorch: Any = importlib.import_module("torch")
    place = Path(path)
    fresh = place.with_name(f"{place.name}.{os.getpid()}.new")
    try:
        with fresh.open("wb") as out:
            pytorch.save(value, out)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(place)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Checkpointing:
    """The data's position as a part of a checkpoint, with `state_dict` and `load_state_dict`.

    Save and load it beside the model with `torch.distributed.checkpoint`, or pass it to
    `Accelerator.register_for_checkpointing`. A job's attempt begins at its checkpoint's position,
    so load first and connect afterwards:

        data = batchweave.torch.Checkpointing()
        dcp.load({"model": model, "data": data}, checkpoint_id=folder)  # if there is one
        reader = data.connect(job="pretrain", attempt=batchweave.torch.attempt())

    `after_save` and `after_async_save` mark restart points of the job. As a context manager it
    waits for saves in the background, then closes the reader.
    """

    def __init__(self, reader: Reader | None = None) -> None:
        self._reader = reader
        self._loaded: dict[str, str] | None = None
        self._trained: dict[str, str] | None = None
        self._failure: BatchWeaveError | None = None
        self._saving = 0
        self._changed = threading.Condition()

    def connect(self, *arguments: Any, **more: Any) -> Reader:
        """Calls `batchweave.connect` at the loaded position; without one, at `start` (0)."""
        import batchweave

        if self._reader is not None:
            raise BadStateError("this Checkpointing has a reader already; make another one")
        if self._loaded is not None:
            more["state"] = self._loaded
        self._reader = batchweave.connect(*arguments, **more)
        return self._reader

    def trained(self, batch: Batch) -> None:
        """Records that the model was trained on `batch`: later states are the position after it.

        Needed where batches are taken ahead of training (prefetch to a device, a DataLoader).
        Without it, states are the position after the last returned batch.
        """
        self._trained = batch.state_dict()

    def state_dict(self) -> dict[str, str]:
        """Returns the position to save: one constant key with a string."""
        if self._trained is not None:
            return self._trained
        if self._reader is not None:
            return self._reader.state_dict()
        # Before the first load: a valid shape, but not a valid position.
        return self._loaded or State("", 0).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Sets the saved position at which `connect` begins."""
        State.from_dict(state)
        loaded = {KEY: str(state[KEY])}
        if self._reader is not None:
            self._reader.load_state_dict(loaded)
        self._loaded, self._trained = loaded, None

    def after_save(self, state: Mapping[str, str]) -> None:
        """Marks a checkpoint with this state as durable; call it on all ranks.

        Raises the daemon's refusal of an earlier one (`MarkRefusedError`).
        """
        self._raise_failure()
        if self._reader is None:
            raise BadStateError("after_save() needs a reader: call connect() first")
        self._reader.checkpoint(state)

    def after_async_save(self, future: Any, state: Mapping[str, str]) -> None:
        """Marks a save in the background as durable once its future succeeds.

        `future` is the result of `torch.distributed.checkpoint.async_save`, or any
        `concurrent.futures.Future`. A failed save is not a restart point; that is logged.
        """
        self._raise_failure()
        with self._changed:
            self._saving += 1
        # Newer versions return an object with two futures: staged, and uploaded.
        durable = getattr(future, "upload_completion", future)
        durable.add_done_callback(lambda done: self._saved(done, state))

    def wait(self, timeout: float | None = None) -> None:
        """Waits for saves in the background, then raises a refusal of one."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._saving == 0, timeout):
                _log.warning("%d saves have not ended within %g s", self._saving, timeout)
        self._raise_failure()

    def _saved(self, done: Any, state: Mapping[str, str]) -> None:
        try:
            failure = "it was cancelled" if done.cancelled() else done.exception()
            if failure is not None:
                _log.warning("a checkpoint was not saved and is not a restart point: %s", failure)
            elif self._reader is not None:
                self._reader.checkpoint(state)
        except BatchWeaveError as error:
            _log.warning("a saved checkpoint is not a restart point: %s", error)
            self._failure = error
        finally:
            with self._changed:
                self._saving -= 1
                self._changed.notify_all()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def __enter__(self) -> Checkpointing:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        reader = self._reader or contextlib.nullcontext()
        with contextlib.ExitStack() as last:
            last.callback(reader.__exit__, kind, error, trace)
            if error is None:
                self.wait(_SAVES_SECONDS)
