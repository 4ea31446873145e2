"""A model of inboxes: all interleavings of a small world, with the writer's real protocol.

The world: two instances of one writer at a time, each with files to write; a store with create-only
puts; answers that are lost; requests that take effect late, even after their sender's death;
crashes and restarts; one producer that reads files by number; and deletion of files that were read,
except for the newest one. Instances are `Core`, the state machine that the real writer runs.

Rows have numbers, so a file that a restarted instance makes again has the numbers of its rows, and
the reader sees a doubled or skipped row as a wrong first row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from batchweave.inbox._core import (
    Core,
    Create,
    CreateEnd,
    Delete,
    File,
    List,
    Listing,
    Phase,
    Read,
)


@dataclass(frozen=True)
class Limits:
    """The size of a world: everything that may happen, and how often."""

    files: tuple[int, ...] = (2, 2)
    """Files that each place for an instance still wants to write, over all its restarts."""
    crashes: int = 1
    unknown: int = 1
    """PUTs whose answer is lost."""
    ends: bool = False
    """Whether instances end the writer after their files."""
    probes: bool = False
    in_order: bool = False
    """Whether files are deleted in their order, and writers refuse gaps."""
    losses: int = 0
    """Files that an accident takes before they are read."""
    deletes_newest: bool = False
    """A mistake: the newest file of a writer is deleted, too."""


class Instance(NamedTuple):
    """One place for a process: its instance, or None while it is down."""

    core: Core | None
    starts: int
    files: int


class World(NamedTuple):
    """One state of everything."""

    instances: tuple[Instance, ...]
    stored: frozenset[File] = frozenset()
    ended: bool = False
    late: frozenset[Create | CreateEnd] = frozenset()
    """Requests whose sender waits for them no more."""
    read: tuple[str, ...] = ()
    """The instances whose files were read, by number."""
    rows: int = 0
    """Rows that were read."""
    last: int | None = None
    """The last number that the reader reads, after it has seen the end."""
    acknowledged: tuple[tuple[int, str], ...] = ()
    """Numbers and instances of acknowledged files."""
    written: frozenset[tuple[int, str]] = frozenset()
    """Numbers and instances of all files that ever were."""
    crashes: int = 0
    unknown: int = 0
    lost: frozenset[int] = frozenset()
    """Numbers of files that an accident took."""
    wrong: str = ""
    """Something that must not happen, and happened."""


class BrokenError(Exception):
    """An invariant does not hold; the message has the steps that led there."""


@dataclass
class Explored:
    """A summary of an exploration."""

    states: int = 0
    phases: set[Phase] = field(default_factory=set)
    acknowledged: int = 0
    """The most files that were acknowledged in one state."""
    read_to_the_end: int = 0
    """States in which nothing more happens and every stored file is read."""


def explore(limits: Limits, instance: type[Core] = Core) -> Explored:
    """Visits every state that can be reached; raises at the first broken invariant."""
    idle = tuple(Instance(None, 0, files) for files in limits.files)
    first = World(idle, crashes=limits.crashes, unknown=limits.unknown)
    before: dict[World, tuple[World, str] | None] = {first: None}
    queue, explored = deque([first]), Explored()
    while queue:
        world = queue.popleft()
        explored.states += 1
        explored.acknowledged = max(explored.acknowledged, len(world.acknowledged))
        explored.phases |= {each.core.phase for each in world.instances if each.core}
        any_step = False
        for what, after in _steps(world, limits, instance):
            any_step = True
            came = (world, what)
            if before.setdefault(after, came) is not came:
                continue
            if why := _broken(after):
                raise BrokenError("\n".join([*_path(before, after), why]))
            queue.append(after)
        newest = max((file.number for file in world.stored), default=-1)
        explored.read_to_the_end += not any_step and len(world.read) > newest
    return explored


def _path(before: dict[World, tuple[World, str] | None], world: World) -> list[str]:
    steps = []
    while (came := before[world]) is not None:
        world = came[0]
        steps.append(came[1])
    return steps[::-1]


def _broken(world: World) -> str | None:
    if world.wrong:
        return world.wrong
    stored = {file.number: file.instance for file in world.stored}
    for number, instance in world.acknowledged:
        if number < len(world.read):
            if world.read[number] != instance:
                return f"file {number} of {instance} is acknowledged, another one was read"
        elif stored.get(number) != instance and number not in world.lost:
            return f"file {number} of {instance} is acknowledged, and it is not there"
        elif world.last is not None and number > world.last:
            return f"file {number} of {instance} is acknowledged after the end of the reader"
    for each in world.instances:
        core = each.core
        if core is not None and core.phase is Phase.ENDED and not world.ended:
            return f"{core.instance} says that the writer has ended, and there is no end"
        if core is not None and core.phase is Phase.MISSING and core.late and not world.lost:
            return f"{core.instance} takes a late file for one that misses others"
        if core is None or core.phase is not Phase.FENCED or world.ended:
            continue
        if not any(at > core.newest and by != core.instance for at, by in world.written):
            return f"{core.instance} says that it is fenced, and there is no other instance"
    return None


def _steps(world: World, limits: Limits, kind: type[Core]) -> Iterator[tuple[str, World]]:
    for place, each in enumerate(world.instances):
        yield from _steps_of(world, place, each, limits, kind)
    for create in world.late:
        after, _ = _put(world._replace(late=world.late - {create}), create)
        yield f"late: {create}", after
    yield from _reader(world)
    yield from _deletions(world, limits)


def _steps_of(
    world: World, place: int, each: Instance, limits: Limits, kind: type[Core]
) -> Iterator[tuple[str, World]]:
    core = each.core
    if core is None:
        if each.files:
            name = f"{'AB'[place]}{each.starts}"
            started = kind(name, allow_gaps=not limits.in_order, probes=limits.probes)
            yield f"{name} starts", _with(world, place, each, started, starts=each.starts + 1)
        return
    request = core.request
    if world.crashes and (request or core.phase is Phase.READY):
        down = world._replace(crashes=world.crashes - 1)
        yield f"{core.instance} dies", _with(down, place, each, None)
        if isinstance(request, Create | CreateEnd):
            flying = down._replace(late=down.late | {request})
            yield f"{core.instance} dies, late {request}", _with(flying, place, each, None)
    match request:
        case List(after):
            seen = Listing(
                tuple(sorted(f.number for f in world.stored if after is None or f.number > after)),
                world.ended,
            )
            yield f"{core.instance} lists {seen}", _acts(world, place, each, core.listed(seen))
        case Read(number):
            found = next((file for file in world.stored if file.number == number), None)
            yield f"{core.instance} reads {found}", _acts(world, place, each, core.found(found))
        case Delete(number):
            gone = frozenset(file for file in world.stored if file.number == number)
            deleted = world._replace(stored=world.stored - gone)
            if number >= len(world.read):
                deleted = deleted._replace(
                    wrong=f"{core.instance} deletes {gone}, which was not read"
                )
            yield f"{core.instance} deletes {gone}", _acts(deleted, place, each, core.deleted())
            yield f"{core.instance} may not delete", _acts(world, place, each, core.deleted())
        case Create() | CreateEnd():
            put, is_new = _put(world, request)
            answered = core.created() if is_new else core.exists()
            yield f"{core.instance} puts {request}: {is_new}", _acts(put, place, each, answered)
            if world.unknown:
                left = world.unknown - 1
                lost = _acts(put._replace(unknown=left), place, each, core.unknown())
                yield f"{core.instance} puts {request}, answer lost", lost
                refused = _acts(world._replace(unknown=left), place, each, core.exists())
                yield f"{core.instance} puts {request}, refused beside another one", refused
                flying = world._replace(late=world.late | {request}, unknown=left)
                yield (
                    f"{core.instance} waits for {request}",
                    _acts(flying, place, each, core.unknown()),
                )
        case None if core.phase is Phase.READY:
            if each.files:
                # Files of two sizes, so that a mixture of two instances has wrong first rows.
                submitted = core.submit(place + 1, "null", 0)
                files = each.files - 1
                yield f"{core.instance} submits", _with(world, place, each, submitted, files=files)
            elif limits.ends:
                yield f"{core.instance} ends", _with(world, place, each, core.finish())


def _with(world: World, place: int, each: Instance, core: Core | None, **more: int) -> World:
    instances = list(world.instances)
    instances[place] = each._replace(core=core, **more)
    return world._replace(instances=tuple(instances))


def _acts(world: World, place: int, each: Instance, core: Core) -> World:
    """Takes an instance's new state, and notes what it acknowledges."""
    old = each.core
    assert old is not None
    if old.pending is not None and core.rows > old.rows:
        noted = (*world.acknowledged, (old.pending.number, core.instance))
        world = world._replace(acknowledged=noted)
    return _with(world, place, each, core)


def _put(world: World, request: Create | CreateEnd) -> tuple[World, bool]:
    if isinstance(request, CreateEnd):
        return world._replace(ended=True), not world.ended
    file = request.file
    if any(stored.number == file.number for stored in world.stored):
        return world, False
    written = world.written | {(file.number, file.instance)}
    return world._replace(stored=world.stored | {file}, written=written), True


def _reader(world: World) -> Iterator[tuple[str, World]]:
    number = len(world.read)
    if world.ended and world.last is None:
        # It lists once more after it has seen the end.
        newest = max((file.number for file in world.stored), default=-1)
        yield "the reader sees the end", world._replace(last=newest)
    if world.last is not None and number > world.last:
        return
    for file in world.stored:
        if file.number == number:
            if file.first_row != world.rows:
                # A state that the search reports: row numbers that are read twice or never.
                wrong = (*world.acknowledged, (-1, f"first row {file.first_row}"))
                yield (
                    f"the reader misreads {file}",
                    world._replace(acknowledged=wrong, read=(*world.read, file.instance)),
                )
                continue
            yield (
                f"the reader reads {file}",
                world._replace(read=(*world.read, file.instance), rows=world.rows + file.rows),
            )


def _deletions(world: World, limits: Limits) -> Iterator[tuple[str, World]]:
    newest = max((file.number for file in world.stored), default=-1)
    # A reader deletes what it read, and knows nothing of a file that came late.
    own = [
        file
        for file in world.stored
        if world.read[file.number : file.number + 1] == (file.instance,)
    ]
    oldest = min((file.number for file in own), default=-1)
    for file in own if limits.in_order else world.stored:
        spared = file.number == newest and not limits.deletes_newest
        spared |= limits.in_order and file.number != oldest
        if file.number < len(world.read) and not spared:
            yield f"deletes {file}", world._replace(stored=world.stored - {file})
    # Beside no sleeper: its PUT may take the number of a file that was lost.
    cores = [each.core for each in world.instances if each.core is not None]
    idle = all(core.phase is Phase.READY and core.newest == newest for core in cores)
    for file in world.stored if idle and len(world.lost) < limits.losses else ():
        if len(world.read) <= file.number < newest:
            lost = world._replace(lost=world.lost | {file.number}, stored=world.stored - {file})
            yield f"loses {file}", lost
