"""A reader as torch's IterableDataset. Importing this module imports torch."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

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
    """One item per step: the tensors of a model's call, over the daemon's memory.

        dataset = batchweave.torch.Dataset(job="pretrain", attempt=batchweave.torch.attempt())
        for step in DataLoader(dataset, batch_size=None):
            loss = model(step["input_ids"], step["labels"])

    Takes the arguments of `batchweave.connect` and connects at the first iteration, or at the
    position of `load_state_dict`. An item is a dict of `input_ids`, `labels`, and whichever the
    stream has of `position_ids`, `segment_ids`, `loss_mask`, `cu_seqlens`, and others. Where a rank
    has several slices per step, an item is a list of such dicts, its micro-batches;
    `micro_batches=True` always makes it a list. Integers are converted to `dtype` (int64);
    `dtype=None` shares all memory with the daemon, and such tensors must not be written to. `cp`
    ("contiguous", "zigzag"): only this rank's part of each row, by the context dimension of
    `mesh=`; see `batchweave.views.context_parallel`.

    Use it without a DataLoader, or with num_workers=0: the daemon prefetches already.
    It is Stateful: torchdata and torch.distributed.checkpoint can save it. Its state is the
    position after the last returned item. Where a trainer takes items ahead of training, save a
    `Checkpointing` instead, and pass it the trained batch (`last`).
    """

    def __init__(
        self,
        *arguments: Any,
        dtype: Any = "int64",
        micro_batches: bool = False,
        cp: str = "full",
        state: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__()
        torch: Any = importlib.import_module("torch")
        self._dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype
        self._arguments, self._more = arguments, more
        self._always_list = micro_batches
        self._share = _share(cp, more.get("mesh"))
        self._reader: Reader | None = None
        self._position: dict[str, str] | None = None
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

            state = {} if self._position is None else {"state": self._position}
            reader = batchweave.connect(*self._arguments, **{**self._more, **state})
            try:
                check_share(reader.info.seq_len, self._share)
            except BadMeshError:
                reader.close()
                raise
            self._reader = reader
        return self._reader

    def __iter__(self) -> Iterator[Any]:
        reader = self.reader
        while True:
            # Its frames are released before the wait for the next batch.
            self.last = None
            batch = next(reader, None)
            if batch is None:
                return
            self.last = batch
            items = model_inputs(batch, self._dtype, self._share)
            del batch
            yield items[0] if len(items) == 1 and not self._always_list else items
            del items

    def __len__(self) -> int:
        return len(self.reader)

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


def _share(way: str, mesh: Place | None) -> Share:
    if way == "full":
        return WHOLE
    if mesh is None:
        raise BadMeshError(f"cp={way!r} needs mesh=, which has this rank's part of the rows")
    share = (mesh.cp_rank, mesh.cp_size, way)
    # Rows of length 0 have any share, so this checks only the arguments.
    check_share(0, share)
    return share
