"""The least of torch that the package uses, for machines without it: same names, same behaviour.

`torch.distributed.checkpoint` flattens values by their keys, saves them one by one and puts them
back into what the caller's `state_dict()` gave; so only a constant shape comes back.
"""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

Flat = dict[tuple[str, str], Any]


class Ranks:
    """One broadcast of a process group of threads."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._local = threading.local()
        self._sent = threading.Event()
        self._value: Any = None

    def enter(self, rank: int) -> None:
        self._local.rank = rank

    def rank(self) -> int:
        return int(self._local.rank)

    def broadcast(self, objects: list[Any], src: int) -> None:
        if self.rank() == src:
            self._value = objects[0]
            self._sent.set()
        assert self._sent.wait(10)
        objects[0] = self._value


def modules(ranks: Ranks | None = None) -> dict[str, ModuleType]:
    """By the names to import them."""
    torch, distributed = ModuleType("torch"), ModuleType("torch.distributed")
    checkpoint = ModuleType("torch.distributed.checkpoint")
    vars(torch).update(save=_torch_save, load=_torch_load, distributed=distributed)
    vars(distributed).update(
        is_available=lambda: True,
        is_initialized=lambda: ranks is not None,
        checkpoint=checkpoint,
    )
    if ranks is not None:
        vars(distributed).update(
            get_rank=ranks.rank,
            get_world_size=lambda: ranks.size,
            broadcast_object_list=lambda objects, src: ranks.broadcast(objects, src),
        )
    vars(checkpoint).update(save=_save, load=_load, async_save=_async_save)
    return {each.__name__: each for each in (torch, distributed, checkpoint)}


def _torch_save(value: Any, out: Any) -> None:
    out.write(pickle.dumps(value))


def _torch_load(path: Path, weights_only: bool = True) -> Any:
    assert weights_only
    return pickle.loads(path.read_bytes())


def _flat(state: dict[str, Any]) -> Flat:
    parts = {
        name: part.state_dict() if hasattr(part, "state_dict") else part
        for name, part in state.items()
    }
    return {(name, key): value for name, part in parts.items() for key, value in part.items()}


def _save(state: dict[str, Any], *, checkpoint_id: Path) -> None:
    checkpoint_id.mkdir(exist_ok=True)
    (checkpoint_id / "data").write_bytes(pickle.dumps(_flat(state)))


def _load(state: dict[str, Any], *, checkpoint_id: Path) -> None:
    saved: Flat = pickle.loads((checkpoint_id / "data").read_bytes())
    wanted = _flat(state)
    if missing := sorted(set(wanted) - set(saved)):
        raise RuntimeError(f"Missing key in checkpoint state_dict: {missing}")
    for name, part in state.items():
        part.load_state_dict({key: saved[name, key] for at, key in wanted if at == name})


def _async_save(state: dict[str, Any], *, checkpoint_id: Path) -> Any:
    flat = _flat(state)
    uploaded: Future[None] = Future()

    def upload() -> None:
        checkpoint_id.mkdir(exist_ok=True)
        (checkpoint_id / "data").write_bytes(pickle.dumps(flat))
        uploaded.set_result(None)

    threading.Thread(target=upload).start()
    return SimpleNamespace(staging_completion=None, upload_completion=uploaded)
