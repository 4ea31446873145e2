"""The wrappers of accelerate and transformers, as far as they iterate and leave out items.

Written from their sources (accelerate 1.15, transformers 5.23), for machines without them: the
same names, attributes and calls, in modules of these names.
"""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

_PROGRAM = '''
class IterableDatasetShard:
    """Takes its part of each group of `num_processes` items."""

    def __init__(self, dataset, num_processes=1, process_index=0):
        self.dataset, self.num_processes = dataset, num_processes
        self.process_index = process_index

    def __iter__(self):
        for number, element in enumerate(self.dataset):
            if number % self.num_processes == self.process_index:
                yield element


class DataLoaderAdapter:
    """Has the attributes of its loader."""

    def __init__(self, base_dataloader, skip_batches=0):
        self.base_dataloader, self.skip_batches = base_dataloader, skip_batches

    def __getattr__(self, name):
        if name == "base_dataloader":
            raise AttributeError()
        return getattr(self.base_dataloader, name)


class DataLoaderShard(DataLoaderAdapter):
    """Fetches one item ahead, and leaves out the first ones."""

    def __iter__(self):
        items = self.base_dataloader.__iter__()
        try:
            current = next(items)
        except StopIteration:
            return
        number = 0
        for following in items:
            if number >= self.skip_batches:
                yield current
            number, current = number + 1, following
        if number >= self.skip_batches:
            yield current


class DataLoaderDispatcher(DataLoaderAdapter):
    """Only the first process takes items; all others receive parts of them."""

    def __init__(self, base_dataloader, num_processes=1, process_index=0, skip_batches=0):
        super().__init__(base_dataloader, skip_batches)
        self.state = SimpleNamespace(num_processes=num_processes, process_index=process_index)

    def __iter__(self):
        items = self.base_dataloader.__iter__()
        while True:
            try:
                if self.state.process_index == 0:
                    group = [next(items) for _ in range(self.state.num_processes)]
                else:
                    # In place of a broadcast that the first process never sends.
                    group = [None]
            except (StopIteration, RuntimeError):
                return
            yield group


class SkipDataLoader(DataLoaderAdapter):
    """Leaves out the first items."""

    def __iter__(self):
        for number, item in enumerate(self.base_dataloader.__iter__()):
            if number >= self.skip_batches:
                yield item
'''


def module(name: str) -> ModuleType:
    """The wrappers as a module of this name, such as `accelerate.data_loader`."""
    made = ModuleType(name)
    vars(made)["SimpleNamespace"] = SimpleNamespace
    exec(compile(_PROGRAM, f"<{name}>", "exec"), vars(made))
    return made


_FETCH = '''
class _BaseDatasetFetcher:
    def __init__(self, dataset, auto_collation):
        self.dataset, self.auto_collation = dataset, auto_collation


class _IterableDatasetFetcher(_BaseDatasetFetcher):
    """Takes items one by one, or joins a number of them."""

    def __init__(self, dataset, auto_collation):
        super().__init__(dataset, auto_collation)
        self.items = iter(dataset)

    def fetch(self, indices):
        if self.auto_collation:
            return [next(self.items) for _ in indices]
        return next(self.items)


class DataLoader:
    def __init__(self, dataset, batch_size=1):
        self.dataset, self.batch_size = dataset, batch_size

    def __iter__(self):
        fetcher = _IterableDatasetFetcher(self.dataset, self.batch_size is not None)
        while True:
            try:
                yield fetcher.fetch(range(self.batch_size or 1))
            except (StopIteration, RuntimeError):
                return
'''


def fetching(name: str) -> ModuleType:
    """The DataLoader of torch and its fetcher, as far as they join items, in this module."""
    made = ModuleType(name)
    exec(compile(_FETCH, f"<{name}>", "exec"), vars(made))
    return made
