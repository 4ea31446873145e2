"""Producer daemons as Ray actors: one configuration, a share of the input for each."""

from __future__ import annotations

import json
import math
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

_RESTART_SECONDS = 2.0
"""Time before a daemon that has ended is started again, as in deploy/systemd."""
_PIDS_SECONDS = 5.0
"""Longest wait of `pids` for an actor that has no place yet."""
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
    for producer in names:
        check_name(producer, "producer")
    try:
        text = Path(config).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as reason:
        raise InboxArgumentError(
            f"cannot read the configuration {os.fspath(config)}: {reason}"
        ) from None
    actor = _actor(num_cpus, dict(options or {}))
    shared = [f"{key}={_toml(key, value)}" for key, value in (settings or {}).items()]
    actors = []
    for index, producer in enumerate(names):
        own = {"producer.index": index, "producer.of": n, "producer.name": producer}
        of_one = [f"{key}={_toml(key, value)}" for key, value in own.items()]
        actors.append(actor.remote(producer, text, [*shared, *of_one], _RESTART_SECONDS))
    return Producers(names, actors)


class Producers:
    """Running producer daemons; at the end of a `with` block they are stopped.

    A block that ends without an error raises the `ProducerFailedError` of a daemon that failed for
    good, unless `wait` has raised it.
    """

    def __init__(self, names: list[str], actors: list[Any]) -> None:
        self.names = names
        self._actors = actors
        self._runs = [actor.run.remote() for actor in actors]
        self._raised: set[Any] = set()
        self._is_stopped = False

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
            self._raised.update(done)
            self._get(done[0])
        return True

    def _get(self, run: Any) -> None:
        """Raises the error with which a run has ended, without Ray's traceback."""
        lost = package("ray.exceptions").RayActorError
        try:
            package("ray").get(run)
        except package("ray.exceptions").RayTaskError as error:
            if isinstance(error.cause, BatchWeaveError):
                raise error.cause from None
            raise
        except lost:
            # `stop` kills the actors.
            if not self._is_stopped:
                raise

    def stop(self, timeout: float = 60.0) -> None:
        """Stops all: they commit what is in flight, within `shutdown.deadline`, and end.

        After `timeout` seconds they are killed; uncommitted work is made again at the next start.
        """
        ray = package("ray")
        self._is_stopped = True
        for actor in self._actors:
            # An actor that is being started again is killed below.
            actor.stop.remote()
        ray.wait(self._runs, num_returns=len(self._runs), timeout=timeout)
        for actor in self._actors:
            ray.kill(actor, no_restart=True)

    def pids(self) -> list[int | None]:
        """Returns the process ids of the daemons, each on its node; None while one starts."""
        ray, lost = package("ray"), package("ray.exceptions").RayActorError
        references = [actor.pid.remote() for actor in self._actors]
        count = len(references)
        answered, _ = ray.wait(references, num_returns=count, timeout=_PIDS_SECONDS)

        def pid(reference: Any) -> int | None:
            if reference not in answered:
                return None
            try:
                found: int | None = ray.get(reference)
            except lost:
                return None
            return found

        return [pid(reference) for reference in references]

    def __enter__(self) -> Producers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        runs = [] if error is not None else self._ended()
        self.stop()
        for run in runs:
            self._get(run)

    def _ended(self) -> list[Any]:
        """Returns the runs that have ended and that `wait` has not seen."""
        runs = [run for run in self._runs if run not in self._raised]
        if not runs:
            return []
        ended: list[Any] = package("ray").wait(runs, num_returns=len(runs), timeout=0)[0]
        return ended

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
    defaults = {"max_restarts": -1, "max_concurrency": 3, "num_cpus": num_cpus}
    return ray.remote(Producer).options(**{**defaults, **options})


def _toml(key: str, value: Any) -> str:
    """Returns a value as TOML: the JSON of texts, numbers, booleans and lists of them is."""
    for item in value if isinstance(value, list | tuple) else [value]:
        known = isinstance(item, str | int | float)
        if not known or (isinstance(item, float) and not math.isfinite(item)):
            raise InboxArgumentError(
                f"settings[{key!r}] = {value!r}: give a text, a number, a boolean, or a list "
                "of them; the keys of a table one by one, as {'stream.slices': 8}"
            )
    # JSON has DEL as it is, TOML has not.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
