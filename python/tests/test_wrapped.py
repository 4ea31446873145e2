"""Loaders that leave out or join steps are refused by name, with stand-ins for their libraries."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import fake_accelerate
import fake_torch
import pytest
from conftest import eventually
from fake_daemon import FakeDaemon

import batchweave
from batchweave.errors import WrappedLoaderError

REAL_TORCH = importlib.util.find_spec("torch") is not None
STEPS = 6
Wrap = Callable[[Any], Any]

accelerate: Any = fake_accelerate.module("accelerate.data_loader")
transformers: Any = fake_accelerate.module("transformers.trainer_pt_utils")
torch_data: Any = fake_accelerate.fetching("torch.utils.data")
torchdata: Any = fake_accelerate.fetching("torchdata.stateful_dataloader")
unrelated: Any = fake_accelerate.module("somewhere.else")


@pytest.fixture
def dataset_class(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`batchweave.torch.Dataset`, over a stand-in of torch where there is none."""
    if not REAL_TORCH:
        data: Any = ModuleType("torch.utils.data")
        data.IterableDataset, data.get_worker_info = object, lambda: None
        for name, module in {**fake_torch.modules(), data.__name__: data}.items():
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setitem(sys.modules, "batchweave._dataset", sys)
        monkeypatch.delitem(sys.modules, "batchweave._dataset")
    found = importlib.import_module("batchweave._dataset").Dataset
    monkeypatch.setattr(found, "_item", lambda _, batch: batch.step)
    return found


@pytest.fixture
def ended(path: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(path, end=STEPS) as daemon:
        yield daemon


class Loader:
    """A DataLoader: iterates its dataset, and has no other attribute of the wrappers."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        yield from self.dataset


class Own(accelerate.DataLoaderShard):  # type: ignore[misc, unused-ignore]
    """A class of the user's, over one of the library's."""

    def __iter__(self) -> Iterator[Any]:
        yield from super().__iter__()


def sharded(library: Any, number: int) -> Wrap:
    return lambda data: Loader(library.IterableDatasetShard(data, 2, number))


def dispatched(number: int) -> Wrap:
    return lambda data: accelerate.DataLoaderDispatcher(Eager(data), 2, number)


class Eager(Loader):
    """A DataLoader as torch's: begins to iterate its dataset when its iterator is made."""

    def __iter__(self) -> Iterator[Any]:
        return iter(self.dataset)


@pytest.mark.parametrize("job", [None, "j"])
@pytest.mark.parametrize(
    ("wrap", "text"),
    [
        (sharded(accelerate, 0), "IterableDatasetShard of accelerate divides steps among 2"),
        (sharded(transformers, 1), "IterableDatasetShard of transformers divides steps among 2"),
        (dispatched(0), "DataLoaderDispatcher of accelerate divides steps among 2 processes"),
        (dispatched(1), "DataLoaderDispatcher of accelerate divides steps among 2 processes"),
        (
            lambda data: accelerate.DataLoaderShard(sharded(accelerate, 0)(data)),
            "IterableDatasetShard of accelerate divides steps among 2 processes",
        ),
        (
            lambda data: accelerate.SkipDataLoader(Loader(data), 3),
            "SkipDataLoader of accelerate leaves out the first 3 steps",
        ),
        (
            lambda data: accelerate.DataLoaderDispatcher(Loader(data), skip_batches=3),
            "DataLoaderDispatcher of accelerate leaves out the first 3 steps",
        ),
        (lambda data: Own(Loader(data), 3), "Own of accelerate leaves out the first 3 steps"),
    ],
)
def test_a_loader_that_leaves_out_steps_is_refused(
    ended: FakeDaemon, path: Path, dataset_class: Any, job: str | None, wrap: Wrap, text: str
) -> None:
    dataset = dataset_class(path, job=job, dtype=None)
    with pytest.raises(WrappedLoaderError) as refused:
        next(iter(wrap(dataset)))
    assert str(refused.value).startswith(text)
    assert refused.value.remedy
    assert str(refused.value) == f"{refused.value.args[0]} [wrapped_loader]"
    assert refused.value.args[0].endswith(refused.value.remedy)
    assert not ended.peers, "no attempt was begun"
    with (
        batchweave.connect(path, job=job) as reader,
        pytest.raises(WrappedLoaderError, match=text),
    ):
        next(iter(wrap(reader)))


class Late(Loader):
    """A dataset that returns an iterator made before."""

    def __init__(self, dataset: Any) -> None:
        super().__init__(dataset)
        self.items: Iterator[Any] = iter(dataset)

    def __iter__(self) -> Iterator[Any]:
        return self.items


@pytest.mark.parametrize("wrap", [sharded(accelerate, 1), dispatched(0)])
def test_a_loader_of_an_iterator_made_before_is_refused(
    ended: FakeDaemon, path: Path, dataset_class: Any, wrap: Wrap
) -> None:
    with pytest.raises(WrappedLoaderError):
        next(iter(wrap(Late(dataset_class(path, job="j", dtype=None)))))
    assert not ended.peers


@pytest.mark.parametrize(
    "wrap",
    [
        lambda data: accelerate.DataLoaderShard(Loader(data)),
        lambda data: accelerate.DataLoaderDispatcher(Loader(data)),
        lambda data: Own(Loader(data)),
    ],
)
def test_a_loader_that_reads_ahead_is_refused_in_a_job(
    ended: FakeDaemon, path: Path, dataset_class: Any, wrap: Wrap
) -> None:
    with pytest.raises(WrappedLoaderError, match=r"a step ahead of training: .* in job 'j' would"):
        next(iter(wrap(dataset_class(path, job="j", dtype=None))))
    # An evaluation has no positions to save.
    with dataset_class(path, dtype=None) as dataset:
        found = [step[0] if isinstance(step, list) else step for step in wrap(dataset)]
        assert found == [*range(STEPS)]
    assert ended.peers


@pytest.mark.parametrize(
    "wrap",
    [
        Loader,
        Eager,
        lambda data: accelerate.SkipDataLoader(Loader(data)),
        lambda data: Loader(transformers.IterableDatasetShard(data)),
        lambda data: unrelated.DataLoaderShard(Loader(data)),
    ],
)
def test_other_loaders_have_every_step(
    ended: FakeDaemon, path: Path, dataset_class: Any, wrap: Wrap
) -> None:
    with dataset_class(path, job="j", dtype=None) as dataset:
        assert [*wrap(dataset)] == [*range(STEPS)]
    assert ended.peers


def test_the_search_keeps_no_batch_of_its_callers(daemon: FakeDaemon, path: Path) -> None:
    with batchweave.connect(path, credits=2) as reader:
        batch = next(reader)
        iter(reader)
        del batch
        gc.collect()
        next(reader)
        eventually(lambda: 1 in daemon.peers[0].released)


class Passing:
    """A dataset of the user's, around another one."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        yield from self.dataset


@pytest.mark.parametrize("job", [None, "j"])
@pytest.mark.parametrize("library", [torch_data, torchdata])
@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("around", [lambda data: data, Passing, Late])
def test_a_loader_that_joins_steps_is_refused(
    ended: FakeDaemon,
    path: Path,
    dataset_class: Any,
    job: str | None,
    library: Any,
    size: int,
    around: Wrap,
) -> None:
    dataset = dataset_class(path, job=job, dtype=None)
    loader = library.DataLoader(around(dataset), batch_size=size)
    with pytest.raises(WrappedLoaderError, match="joins that number of global steps") as refused:
        next(iter(loader))
    assert "DataLoader(dataset, batch_size=None)" in str(refused.value)
    assert not ended.peers, "no step was delivered"


def test_a_loader_without_a_batch_size_and_loaders_of_rows_are_served(
    ended: FakeDaemon, path: Path, dataset_class: Any
) -> None:
    assert not ended.peers
    with dataset_class(path, dtype=None) as dataset:
        assert [*torch_data.DataLoader(Passing(dataset), batch_size=None)] == [*range(STEPS)]
    # Rows of one's own, made of a reader's batches, may be joined.
    with batchweave.connect(path) as reader:
        rows = (int(sample["tokens"][0]) for batch in reader for sample in batch.samples())
        groups = [*torch_data.DataLoader(rows, batch_size=4)]
        assert [len(group) for group in groups] == [4] * STEPS
