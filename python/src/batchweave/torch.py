"""For trainers with PyTorch: datasets and tensors, copies to a device, the attempt's id, and the
data's position in checkpoints.

Importing this module imports nothing: torch is imported by what needs it, when it is called.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import secrets
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from batchweave._device import in_flight, to_device
from batchweave._launch import rank_and_world
from batchweave._packed import packed
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
    "attempt",
    "in_flight",
    "packed",
    "save",
    "tensor",
    "tensors",
    "to_device",
]

_log = logging.getLogger("batchweave")

# How long the end of a `with Checkpointing()` block waits for saves in the background.
_SAVES_SECONDS = 600.0


def __getattr__(name: str) -> Any:
    if name == "Dataset":
        return importlib.import_module("batchweave._dataset").Dataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def attempt() -> str:
    """An attempt's id, drawn by global rank 0 and broadcast: call it on all ranks, at each start.

    Needs `torch.distributed.init_process_group`, except where the launcher started one rank; any
    backend will do. With NCCL set the device first (`torch.cuda.set_device`), since objects travel
    through it.
    """
    try:
        distributed: Any = importlib.import_module("torch.distributed")
    except ImportError as reason:
        raise NoAttemptError(f"batchweave.torch.attempt() needs PyTorch: {reason}") from reason
    if not distributed.is_available() or not distributed.is_initialized():
        if rank_and_world(None, None) == (0, 1):
            return secrets.token_hex(16)
        raise NoAttemptError(
            "batchweave.torch.attempt() broadcasts over the default process group, and there is "
            "none: call torch.distributed.init_process_group() on all ranks before"
        )
    drawn = [secrets.token_hex(16) if distributed.get_rank() == 0 else None]
    distributed.broadcast_object_list(drawn, src=0)
    return str(drawn[0])


def save(value: Any, path: str | os.PathLike[str]) -> None:
    """`torch.save`, durable when it returns: a crash leaves the old file or the new one.

    Tell the reader afterwards, on all ranks: `reader.checkpoint(state)`.
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

    Put it beside the model in what `torch.distributed.checkpoint` saves and loads, or give it to
    `Accelerator.register_for_checkpointing`. A job's attempt begins where its checkpoint stands, so
    load first and connect afterwards:

        data = batchweave.torch.Checkpointing()
        dcp.load({"model": model, "data": data}, checkpoint_id=folder)  # if there is one
        reader = data.connect(job="pretrain", attempt=batchweave.torch.attempt())

    `after_save` and `after_async_save` tell the job what it can restart from. As a context manager
    it waits for saves in the background, then closes the reader.
    """

    def __init__(self, reader: Reader | None = None) -> None:
        self._reader = reader
        self._loaded: dict[str, str] | None = None
        self._trained: dict[str, str] | None = None
        self._failure: BatchWeaveError | None = None
        self._saving = 0
        self._changed = threading.Condition()

    def connect(self, *arguments: Any, **more: Any) -> Reader:
        """`batchweave.connect` at the loaded position; without one, at `start` (0)."""
        import batchweave

        if self._reader is not None:
            raise BadStateError("this Checkpointing has a reader already; make another one")
        if self._loaded is not None:
            more["state"] = self._loaded
        self._reader = batchweave.connect(*arguments, **more)
        return self._reader

    def trained(self, batch: Batch) -> None:
        """The model was trained on `batch`: states are the position after it from now on.

        Needed where batches are taken ahead of training (prefetch to a device, a DataLoader).
        Without it states count every batch that was handed out.
        """
        self._trained = batch.state_dict()

    def state_dict(self) -> dict[str, str]:
        """The position to save: always one constant key with a string."""
        if self._trained is not None:
            return self._trained
        if self._reader is not None:
            return self._reader.state_dict()
        # Before the first load: of the right shape, and refused as a position.
        return self._loaded or State("", 0).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes a saved position, for `connect` to begin at."""
        State.from_dict(state)
        loaded = {KEY: str(state[KEY])}
        if self._reader is not None:
            self._reader.load_state_dict(loaded)
        self._loaded, self._trained = loaded, None

    def after_save(self, state: Mapping[str, str]) -> None:
        """A checkpoint with this state is durable, on all ranks; call it on all ranks.

        Raises what the daemon refused about an earlier one (`MarkRefusedError`).
        """
        self._raise_failure()
        if self._reader is None:
            raise BadStateError("after_save() needs a reader: call connect() first")
        self._reader.checkpoint(state)

    def after_async_save(self, future: Any, state: Mapping[str, str]) -> None:
        """The same for a save in the background: counts when its future has resolved well.

        `future` is what `torch.distributed.checkpoint.async_save` returned, or any
        `concurrent.futures.Future`. A save that fails is no restart point; that is logged.
        """
        self._raise_failure()
        with self._changed:
            self._saving += 1
        # Newer versions give an object with two futures: staged, and uploaded.
        durable = getattr(future, "upload_completion", future)
        durable.add_done_callback(lambda done: self._saved(done, state))

    def wait(self, timeout: float | None = None) -> None:
        """Waits for saves in the background, then raises what was refused about one."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._saving == 0, timeout):
                _log.warning("%d saves have not ended within %g s", self._saving, timeout)
        self._raise_failure()

    def _saved(self, done: Any, state: Mapping[str, str]) -> None:
        try:
            failure = "it was cancelled" if done.cancelled() else done.exception()
            if failure is not None:
                _log.warning("a checkpoint was not saved and is no restart point: %s", failure)
            elif self._reader is not None:
                self._reader.checkpoint(state)
        except BatchWeaveError as error:
            _log.warning("a saved checkpoint is no restart point: %s", error)
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
