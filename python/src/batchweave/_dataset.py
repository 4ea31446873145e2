"""A reader as torch's IterableDataset. Importing this module imports torch."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from batchweave._bins import no_rows
from batchweave._conventions import check_labels
from batchweave._loaders import check_joined, check_loader
from batchweave._micro_batches import MicroBatch
from batchweave._names import check_names
from batchweave._rows import is_balanced
from batchweave._stages import Stage
from batchweave._stopping import StopRequest, used_by_readers
from batchweave._tensors import model_inputs
from batchweave.batch import Batch
from batchweave.errors import BadMeshError, BadStateError, ForkedError
from batchweave.mesh import Place
from batchweave.reader import Reader
from batchweave.state import State
from batchweave.torch import Checkpointing
from batchweave.views import WHOLE, Share, check_share

_data: Any = importlib.import_module("torch.utils.data")


class Dataset(_data.IterableDataset):  # type: ignore[misc, unused-ignore]
    """One item per step: the tensors of a model's call, of all this rank's rows.

        dataset = batchweave.torch.Dataset(job="pretrain", attempt=batchweave.torch.attempt())
        for step in DataLoader(dataset, batch_size=None):
            loss = model(**step).loss

    Takes the arguments of `batchweave.connect` and connects at the first iteration, or at the
    position of `load_state_dict`. An item is a dict of `input_ids`, `labels`, and whichever the
    stream has of `position_ids`, `segment_ids`, `cu_seqlens`, and others. It has the rows of all
    slices of the rank, so a restart with another number of ranks changes only the number of rows;
    with `micro_batches=True` it always is a list of such dicts, one per slice.

    Balanced streams need `micro_batches=True`: an item is a list of their bins, in the order of
    `Batch.micro_batches`, each without padding, as `packed` makes it. They have what Hugging Face's
    `DataCollatorWithFlattening(return_flash_attn_kwargs=True)` returns, and `num_items_in_batch`,
    the learned tokens of the global batch: a model of Hugging Face divides its loss by that. An
    empty bin has one input of padding, since models fail without any.

    `labels`: "unshifted" (the default) is what models of Hugging Face expect, which shift them by
    themselves: labels are input_ids, with -100 where `loss_mask` is 0. "shifted" is for a loss of
    one's own: each label is the token after its input, and `loss_mask` is a part of the item.
    `batchweave.torch.packed` has the details. `cp` ("contiguous", "zigzag"): only this rank's part
    of each row, by the context dimension of `mesh=`; see `batchweave.views.context_parallel`.
    Labels are shifted before rows are divided, so they are "shifted" then.

    Integers are converted to `dtype` (int64), except for arrays of bytes; `dtype=None` shares the
    memory of a single slice with the daemon, and such tensors must not be written to.

    Without a job, iterating again after the last item begins a new pass at `start` or the last
    `seek`; a job's reader never repeats a step.

    Use it without a DataLoader, or with batch_size=None and num_workers=0: the daemon prefetches
    already. A DataLoader with a batch_size, which joins steps, and loaders of accelerate and
    transformers that leave out steps, are a `WrappedLoaderError`.
    It is Stateful: torchdata and torch.distributed.checkpoint can save it. Its state is the
    position after the last returned item. Where a trainer takes items ahead of training, save a
    `Checkpointing` instead, and pass it the trained batch (`last`).
    """

    def __new__(cls, *_: Any, **given: Any) -> Dataset:
        """Checks the names of the arguments before Python does, which suggests no other."""
        check_names("batchweave.torch.Dataset()", given, cls.__init__)
        made: Dataset = super().__new__(cls)
        return made

    def __init__(
        self,
        socket: str | os.PathLike[str] | None = None,
        *,
        job: str | None = None,
        dp_rank: int | None = None,
        dp_size: int | None = None,
        mesh: Place | None = None,
        shared: bool | None = None,
        split_rows: int = 1,
        global_rank: int | None = None,
        start: int | None = None,
        state: Mapping[str, str] | None = None,
        attempt: str | None = None,
        takeover: bool = False,
        resume: bool | Literal["latest"] | None = None,
        fresh: bool = False,
        credits: int = 4,
        copy: bool = False,
        timeout: float = 600.0,
        connect_timeout: float = 60.0,
        slices: int | None = None,
        seq_len: int | None = None,
        rows_per_slice: int | None = None,
        limit: int | None = None,
        on_stage: Callable[[Stage | None], object] | None = None,
        labels: str | None = None,
        dtype: Any = "int64",
        micro_batches: bool = False,
        cp: str = "full",
    ) -> None:
        given = {name: value for name, value in locals().items() if name in _OF_CONNECT}
        super().__init__()
        torch: Any = importlib.import_module("torch")
        self._dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype
        self._arguments = given
        self._micro_batches = micro_batches
        self._share = _share(cp, mesh)
        self._labels = _labels(labels, self._share)
        self._reader: Reader | None = None
        self._position: dict[str, str] | None = None
        self._finished = False
        self._stopping = StopRequest()
        self.last: Batch | None = None
        """The batch of the last item; it holds the daemon's memory until the next one."""
        if state is not None:
            self.load_state_dict(state)

    @property
    def reader(self) -> Reader:
        """The reader, connected at the first access."""
        worker = _data.get_worker_info()
        if worker is not None:
            raise ForkedError(
                f"a batchweave Dataset in DataLoader worker {worker.id}: the daemon reads ahead of "
                "training already, and workers would each read every batch; "
                "use DataLoader(dataset, batch_size=None, num_workers=0)"
            )
        if self._reader is None:
            import batchweave

            with used_by_readers(self._stopping):
                reader = batchweave.connect(**self._arguments, state=self._position)
            try:
                check_share(reader.info.seq_len, self._share)
            except BadMeshError:
                reader.close()
                raise
            self._reader = reader
        return self._reader

    def __iter__(self) -> Iterator[Any]:
        # Immediately, because some wrappers take items on one rank only and the others would wait.
        check_loader(self._arguments["job"])
        check_joined()
        return self._items()

    def _items(self) -> Iterator[Any]:
        # Again, because a wrapper may be around an iterator that was made before.
        check_loader(self._arguments["job"])
        check_joined()
        reader = self.reader
        if self._finished and self._arguments["job"] is None:
            reader.seek(reader.first_step)
        self._finished = False
        while True:
            # Its frames are released before the wait for the next batch.
            self.last = None
            batch = next(reader, None)
            if batch is None:
                self._finished = True
                return
            self.last = batch
            item = self._item(batch)
            del batch
            yield item
            del item

    def _item(self, batch: Batch) -> Any:
        form = (self._dtype, self._share, self._labels)
        if is_balanced(batch.slices[0]):
            if not self._micro_batches:
                raise no_rows(
                    f"step {batch.step}: a Dataset of whole steps",
                    "pass micro_batches=True, which makes each item a list of the bins' tensors",
                )
            micros = (_not_empty(micro, self._labels) for micro in batch.micro_batches())
            return [model_inputs(micro, *form) for micro in micros]
        if self._micro_batches:
            return [model_inputs(piece, *form) for piece in batch.slices]
        return model_inputs(batch, *form)

    def __len__(self) -> int:
        """Returns the number of items of a whole pass: see `Reader.__len__`."""
        return len(self.reader)

    def seek(self, step: int) -> None:
        """Moves to a step, from which `limit` counts; only without a job."""
        self.reader.seek(step)
        self._finished = False

    def __repr__(self) -> str:
        reader = "not connected" if self._reader is None else repr(self._reader)
        return f"<Dataset labels={self._labels!r}, {reader}>"

    def state_dict(self) -> dict[str, str]:
        """Returns the position after the last item: one constant key with a string."""
        if self._reader is not None:
            return self._reader.state_dict()
        return self._position or State("", 0).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Sets a saved position: before the first item, or at any time without a job."""
        found = Checkpointing(self._reader)
        found.load_state_dict(state)
        self._position = found.state_dict()

    def checkpoint(self, state: Mapping[str, str]) -> None:
        """Marks a durable model checkpoint with this state: see `Reader.checkpoint`."""
        if self._reader is None:
            raise BadStateError("checkpoint() before the first item: nothing was trained")
        self._reader.checkpoint(state)

    def stop(self) -> None:
        """Ends the wait for the next item with `Stopped`: see `Reader.stop`.

        Also the wait for a daemon at the first item. Iterate again to go on at the same step.
        """
        self._stopping.ask()

    def close(self) -> None:
        """Ends the session; tensors stay valid."""
        self.last = None
        if self._reader is not None:
            self._reader.close()

    def __getstate__(self) -> dict[str, Any]:
        # A batch belongs to this process; the reader connects again in the other one.
        return {**self.__dict__, "last": None}

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# The state is kept apart: it may come later.
_OF_CONNECT = frozenset(inspect.signature(Dataset.__init__).parameters) - {
    "self",
    "state",
    "labels",
    "dtype",
    "micro_batches",
    "cp",
}


def _not_empty(micro: MicroBatch, labels: str) -> MicroBatch:
    inputs = micro.tokens if labels == "unshifted" else micro.inputs
    return micro if inputs.size else micro.padded(1)


def _labels(labels: str | None, share: Share) -> str:
    divided = share[2] != "full"
    if labels is None:
        return "shifted" if divided else "unshifted"
    check_labels(labels)
    if divided and labels == "unshifted":
        raise BadMeshError(
            f'labels="unshifted" with cp={share[2]!r}: a model shifts the labels of its own part '
            "only, and a part's last label is in another rank's part; use labels=\"shifted\" and "
            "compute the loss from logits and labels as they are"
        )
    return labels


def _share(way: str, mesh: Place | None) -> Share:
    if way == "full":
        return WHOLE
    if mesh is None:
        raise BadMeshError(f"cp={way!r} needs mesh=, which has this rank's part of the rows")
    share = (mesh.cp_rank, mesh.cp_size, way)
    # Rows of length 0 have any share, so this checks only the arguments.
    check_share(0, share)
    return share
