"""Producer daemons as Ray actors: one configuration, a share of the input for each."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from batchweave._names import names_checked
from batchweave.errors import BatchWeaveError
from batchweave.inbox._location import check_name
from batchweave.inbox.errors import InboxArgumentError
from batchweave.ray._daemon import Daemon, ProducerEndedError
from batchweave.ray._package import package

_PAUSE = 2.0
"""Seconds before a daemon that has ended is started again, as in deploy/systemd."""
_INDEX = "{index}"


@names_checked
def producers(
    n: int,
    config: str | os.PathLike[str],
    *,
    name: str = f"tokens-{_INDEX}",
    settings: Mapping[str, Any] | None = None,
    num_cpus: float = 1,
    options: Mapping[str, Any] | None = None,
) -> Producers:
    """Starts n producer daemons that share one input, each in a Ray actor; returns their handle.

    `config`: the producer's configuration file, read here; paths in it must mean the same on all
    nodes. Each daemon gets `producer.index` 0 to n - 1, `producer.of` = n and its name. `name`: the
    pattern of the names, with `{index}`; they are those of the stream's producers, so a new start
    of the same n continues where this one ends. `settings`: other keys with other values than the
    file's, as {"store.url": "s3://bucket/stream"}. `num_cpus`: CPUs that Ray reserves for each.
    `options`: further options of the actors, as {"resources": ..., "runtime_env": ...}.

    Ray starts an actor again when its process or node is lost, and a daemon when it is killed or
    the store does not answer: it continues at its last commit.
    """
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise InboxArgumentError(f"n={n!r}: give the number of producers, at least 1")
    if n > 1 and _INDEX not in name:
        raise InboxArgumentError(f"name={name!r}: write {_INDEX} where each producer's number goes")
    names = [name.replace(_INDEX, str(index)) for index in range(n)]
    for each in names:
        check_name(each)
    try:
        text = Path(config).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as reason:
        raise InboxArgumentError(
            f"cannot read the configuration {os.fspath(config)}: {reason}"
        ) from None
    actor = _actor(num_cpus, dict(options or {}))
    more = [f"{key}={_toml(value)}" for key, value in (settings or {}).items()]
    actors = []
    for index, each in enumerate(names):
        own = [f"producer.index={index}", f"producer.of={n}", f"producer.name={_toml(each)}"]
        actors.append(actor.remote(each, text, [*more, *own], _PAUSE))
    return Producers(names, actors)


class Producers:
    """Running producer daemons; at the end of a `with` block they are stopped."""

    def __init__(self, names: list[str], actors: list[Any]) -> None:
        self.names = names
        self._actors = actors
        self._runs = [actor.run.remote() for actor in actors]

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until all have read their input to its end, or are stopped; False: `timeout`.

        Raises a `ProducerFailedError` as soon as one has failed for good; the others go on.
        """
        ray = package("ray")
        deadline = None if timeout is None else time.monotonic() + timeout
        waiting = list(self._runs)
        while waiting:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            done, waiting = ray.wait(waiting, num_returns=1, timeout=left)
            if not done:
                return False
            try:
                ray.get(done)
            except package("ray.exceptions").RayTaskError as error:
                # Ours without Ray's frames.
                if isinstance(error.cause, BatchWeaveError):
                    raise error.cause from None
                raise
        return True

    def stop(self, timeout: float = 60.0) -> None:
        """Stops all: they commit what is in flight, within `shutdown.deadline`, and end.

        After `timeout` seconds they are killed, which loses nothing either: what is not committed
        is made again.
        """
        ray = package("ray")
        for actor in self._actors:
            # An actor that is being started again is killed below.
            actor.stop.remote()
        ray.wait(self._runs, num_returns=len(self._runs), timeout=timeout)
        for actor in self._actors:
            ray.kill(actor, no_restart=True)

    def pids(self) -> list[int | None]:
        """Returns the process ids of the daemons, each on its node; None while one starts."""
        ray, lost = package("ray"), package("ray.exceptions").RayActorError

        def pid(asked: Any) -> int | None:
            try:
                found: int | None = ray.get(asked)
            except lost:
                return None
            return found

        return [pid(asked) for asked in [actor.pid.remote() for actor in self._actors]]

    def __enter__(self) -> Producers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Producers {self.names[0]} to {self.names[-1]}: {len(self.names)} actors>"


def _actor(num_cpus: float, options: dict[str, Any]) -> Any:
    """Returns the class of the actors; made here, since its decorators are Ray's."""
    ray = package("ray")

    class Producer:
        def __init__(self, name: str, config: str, settings: list[str], pause: float) -> None:
            self._daemon, self._pause = Daemon(name, config, settings), pause

        @ray.method(max_task_retries=-1, retry_exceptions=[ProducerEndedError])  # type: ignore[untyped-decorator]
        def run(self) -> bool:
            return self._daemon.run(self._pause)

        def stop(self) -> None:
            self._daemon.stop()

        def pid(self) -> int | None:
            return self._daemon.pid

    # One thread for the daemon, the others for `stop` and `pid`.
    usual = {"max_restarts": -1, "max_concurrency": 3, "num_cpus": num_cpus}
    return ray.remote(Producer).options(**{**usual, **options})


def _toml(value: Any) -> str:
    """Returns a value as TOML: the JSON of texts, numbers, booleans and flat lists is."""
    return json.dumps(value, ensure_ascii=False)
