"""One session: its socket, and its frames that this rank holds.

1. A frame is released when its root array is gone, never earlier, and only once.
2. A root array may die in any thread and inside the garbage collector. A callback in C
   (`deque.append`), which no signal interrupts, records it; a second one, which takes no lock and
   never blocks, tries to send it when it is the last of its step (one message for all its slices).
   The next `flush` sends the rest.
3. A session that ends keeps its socket until its last frame is gone: closing it frees all its
   frames for the daemon.
   Closing with unread messages would overtake the last ones sent (the daemon reads ECONNRESET
   first): so they are read before, and a reader that closes waits until the daemon has read all.
4. An exception (Ctrl-C) in the middle of a receive or a release leaves the session `torn`: the
   reader continues in a new session. So does a call that interrupts another one (a signal handler,
   another thread's close): it parks the other's session, whose batch is then dropped.
5. An event is received again until the reader has set `event` to None: an exception does not lose
   it. (It may lose a batch: the next one has another step, which ends the session.)
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import itertools
import mmap
import os
import select
import socket
import termios
import time
import weakref
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from batchweave import _arena, _layout, _wire
from batchweave._events import Event, Lost, event_of
from batchweave._holds import Hold, Sender, Taker
from batchweave._layout import Array, Arrays, Layout
from batchweave._sending import Position, Sending
from batchweave._stages import Stage
from batchweave._stopping import StopRequest
from batchweave.batch import Batch, Slice
from batchweave.errors import BadMessageError
from batchweave.state import State

_ANCILLARY_BYTES = socket.CMSG_SPACE(16 * array.array("i").itemsize)
# As plain numbers: an operation on the enum takes microseconds.
_RECEIVE_FLAGS = int(socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC | socket.MSG_TRUNC)
_CUT = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)
# Time of active polling before sleeping: to sleep and be woken takes 10 us on bare metal and up to
# 80 us on a virtual machine.
_AWAKE_SECONDS = 250e-6

# A release costs a system call and a wake-up of the daemon, so small frames share one while the
# reader finds its next step waiting: at most this much memory, and half of the credits, so that the
# queue does not run dry.
_TOGETHER_BYTES = 1 << 20

# The sockets to close in a forked child.
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()
# Only its arrays' callbacks refer to a parked session, which is a cycle: were it collected, its
# socket would close, and the daemon would reuse frames that arrays still show.
_parked: set[Session] = set()


class Session(Sending):
    """A connected socket. Only `receive` and `wait` belong to one thread."""

    def __init__(
        self, connected: socket.socket, next_step: int, stopping: StopRequest | None = None
    ) -> None:
        super().__init__(connected, next_step)
        self._stopping = stopping
        self.credits, self.slices = 0, 1
        self.instance = ""
        """The run of the daemon."""
        self.together = 1
        """Frames to release in one message while the next step waits."""
        self.origin = State("", 0)
        """The fields that all states of this session share."""
        self.taker = Taker()
        self.event: Event | None = None
        self.stage: Stage | None = None
        """The stage of the batches to come; None for the shape of stream.json."""
        self.mappings: list[weakref.ref[mmap.mmap]] = []
        self._segments: dict[int, mmap.mmap] = {}
        self._layouts: dict[int, Layout] = {}
        self._partial: list[Slice] = []
        self._partial_step = -1
        self._deaths: Iterator[int] = itertools.count(1)
        self._buffer = bytearray(_wire.MESSAGE_BYTES_MAX)
        self._buffers, self._whole = [self._buffer], memoryview(self._buffer)
        # Bound once: these are used for every frame.
        self._receive_into, self._note = connected.recvmsg_into, self._gone.append
        self._readable: select.poll | None = self._poll()
        _sessions.add(self)

    def _dropped(self, root: weakref.ref[Array]) -> None:
        try:
            sender = cast(Sender, root)
            if next(sender.deaths) == sender.of or self.parked:
                self._last_dropped(root)
        except BaseException as error:
            self.interrupts.append(error.with_traceback(None))

    def _last_dropped(self, _: weakref.ref[Array]) -> None:
        try:
            if len(self._gone) < self.due and not self.parked:
                return
            if not self.release_few():
                self.flush()
            if self.parked:
                self.close_if_free()
        except BaseException as error:
            # Python only prints an exception raised here, so the next `next()` raises it; without
            # its traceback, which would keep arrays.
            self.interrupts.append(error.with_traceback(None))

    # Receiving: the reader's thread.

    def quiet(self) -> bool:
        """Returns whether nothing needs to be done before the next step is taken."""
        return not (
            len(self._gone) >= self.due
            or self._outbox
            or self.event
            or self.lost
            or self.torn
            or self.interrupts
            or self.forked
        )

    def wait(self, seconds: float, *, awake: bool = False) -> None:
        """Waits for a message or a stop request, at most this long.

        With `awake`, at first by active polling.
        """
        # A full socket has no event for other threads' releases: poll again soon.
        limit = seconds if self.flush() else min(seconds, 0.02)
        if self.lost:
            return
        # A call of a signal handler within this one may close the session.
        stopping = self._stopping
        # An object polls once at a time: such a call has its own.
        readable, self._readable = self._readable, None
        if readable is None:
            readable = self._poll()
        try:
            until = time.monotonic() + min(limit, _AWAKE_SECONDS) if awake else 0.0
            while time.monotonic() < until:
                if readable.poll(0):
                    return
                # The daemon may need this core to send the message.
                os.sched_yield()
            readable.poll(max(1, int(limit * 1000)))
        finally:
            self._readable = readable
            if stopping is not None:
                stopping.wake()

    def _poll(self) -> select.poll:
        readable = select.poll()
        readable.register(self._socket, select.POLLIN)
        stopping = self._stopping
        if stopping is not None:
            stopping.register(readable)
        return readable

    def receive(self) -> Batch | Event | Lost | None:
        """Returns the next batch or event; None when no more messages wait."""
        if self.event is not None:
            return self.event
        # Until a batch is found waiting.
        self.due = 1
        try:
            while not self.lost:
                try:
                    size, ancillary, flags, _ = self._receive_into(
                        self._buffers, _ANCILLARY_BYTES, _RECEIVE_FLAGS
                    )
                except BlockingIOError:
                    return None
                except OSError:
                    size, ancillary, flags = 0, [], 0
                if size == 0:
                    self.lost = True
                elif (
                    not ancillary
                    and not flags & _CUT
                    and self._buffer.startswith(_wire.BATCH_BEGINS)
                ):
                    batch = self._single(size) or self._batch(size)
                    if batch is not None:
                        if self.parked:
                            # Parked while this call went on: the daemon may reuse its frames.
                            break
                        self.due = self.together
                        batch.stage = self.stage
                        return batch
                else:
                    self.event = self._other(size, ancillary, flags)
                    if self.event is not None:
                        return self.event
        except BadMessageError:
            # A session that was parked meanwhile knows no segments.
            if not self.parked:
                self.torn = True
                raise
        except BaseException:
            self.torn = True
            raise
        return Lost()

    def _other(self, size: int, ancillary: list[Any], flags: int) -> Event | None:
        """Decodes a message that is not a batch, or invalid."""
        descriptors = _arena.descriptors_of(ancillary)
        try:
            if flags & _CUT:
                raise BadMessageError(f"the daemon sent a message of {size} bytes, cut short")
            kind, body = _wire.split(self._whole[:size])
            if (kind == _wire.SEGMENT) != (len(descriptors) == 1) or len(descriptors) > 1:
                raise BadMessageError(f"message type {kind} came with {len(descriptors)} files")
            return self._take(kind, body, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _take(self, kind: int, body: memoryview, descriptors: list[int]) -> Event | None:
        if kind == _wire.SEGMENT:
            number, size = _wire.segment(body)
            segment = _arena.map_segment(descriptors[0], size, number)
            self._segments[number] = segment
            self.mappings.append(weakref.ref(segment))
        elif kind == _wire.LAYOUT:
            number, text = _wire.layout(body)
            self._layouts[number] = _layout.parse(text)
            self.together = self._together()
        elif kind == _wire.STAGE:
            self.stage = _wire.stage(body)
        elif kind == _wire.RETIRE_SEGMENT:
            self._segments.pop(_wire.retired(body), None)
        else:
            return event_of(kind, body)
        return None

    def _together(self) -> int:
        """Returns the number of frames to release in one message."""
        longest = max(1, *(layout.length for layout in self._layouts.values()))
        return max(1, min(self.credits // 2 * self.slices, _TOGETHER_BYTES // longest))

    def _single(self, size: int) -> Batch | None:
        """Decodes a valid step of one slice, the most frequent case, in few instructions.

        Returns None for all others, which `_batch` decodes or refuses.
        """
        if size != _wire.SINGLE_BYTES or self._partial:
            return None
        header, step, counts, index, number, shape, reserved, frame, offset, length = _wire.single(
            self._buffer
        )
        segment, layout = self._segments.get(number), self._layouts.get(shape)
        if (
            header != _wire.SINGLE_HEADER
            or counts != _wire.SINGLE_COUNTS
            or segment is None
            or layout is None
            or not layout.quick
            or length != layout.length
            or offset + length > len(segment)
            or offset & 63
            or reserved
        ):
            return None
        root: Array = np.ndarray((), layout.record, segment, offset)
        # Recorded first, then sent, as in `_slice`.
        sender = weakref.ref(root, self._last_dropped)
        hold = Hold(root, self._note)
        hold.sender, hold.frame, hold.step = sender, frame, step
        hold.index, hold.size, hold.place = index, length, self.taker.place
        self.held[frame] = hold
        return Batch(step, [Slice(index, root, layout)], self.origin)

    def _batch(self, size: int) -> Batch | None:
        step, first, of, listed = _wire.batch(self._buffer, size)
        if first == 0:
            self._partial, self._partial_step = [], step
            self._deaths = itertools.count(1)
        slices = self._partial
        if step != self._partial_step or first != len(slices):
            raise BadMessageError(
                f"the daemon sent slices {first} of {of} of step {step} after "
                f"{len(slices)} slices of step {self._partial_step}"
            )
        for ref in listed:
            slices.append(self._slice(step, of, ref))
        if len(slices) < of:
            return None
        self._partial, self._partial_step = [], -1
        return Batch(step, slices, self.origin)

    def _slice(self, step: int, of: int, ref: _wire.SliceRef) -> Slice:
        index, number, shape, reserved, frame, offset, length = ref
        segment, layout = self._segments.get(number), self._layouts.get(shape)
        if segment is None or layout is None:
            raise BadMessageError(
                f"step {step} slice {index} lies in segment {number} with layout "
                f"{shape}, which the daemon has not sent"
            )
        if length != layout.length or offset + length > len(segment) or offset & 63 or reserved:
            raise BadMessageError(
                f"step {step} slice {index} has {length} bytes at {offset} of segment {number} "
                f"({len(segment)} bytes); its layout has {layout.length}, and frames begin at "
                "multiples of 64"
            )
        root: Array
        arrays: Arrays
        if layout.quick:
            root = arrays = np.ndarray((), layout.record, segment, offset)
        else:
            root, arrays = layout.slowly(segment, offset)
        # Callbacks run from the newest to the oldest: it is recorded first, then sent.
        sender = Sender(root, self._dropped)
        sender.deaths, sender.of = self._deaths, of
        hold = Hold(root, self._note)
        hold.sender, hold.frame, hold.step = sender, frame, step
        hold.index, hold.size, hold.place = index, length, self.taker.place
        self.held[frame] = hold
        return Slice(index, arrays, layout)

    # Ending.

    def park(self, next_step: int, linger: float = 0.0) -> None:
        """Ends the session; the socket stays until the last frame is gone.

        Sends `next_step` once more, for the ledger; waits up to `linger` seconds until it is read.
        """
        if self.forked or self.parked:
            return
        # The traceback of an error would keep arrays.
        self._partial, self.event = [], None
        self._segments.clear()
        # The reader's moves on with its next session.
        self.next_step, self.position = next_step, Position(next_step)
        self.post(_wire.release(next_step, []))
        self.post(_wire.encode(_wire.BYE))
        _parked.add(self)
        self.parked = True
        deadline = time.monotonic() + linger
        # Without a socket, a call that interrupted this one has ended the session.
        with contextlib.suppress(OSError, ValueError):
            while not self.lost and time.monotonic() < deadline and self._unread():
                time.sleep(0.001)
        self.close_if_free()

    def _unread(self) -> bool:
        """Returns whether the daemon has unread messages, or some are still queued."""
        return not self.flush() or any(fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(4)))

    def close_if_free(self) -> None:
        """Closes the socket of a parked session once no array needs its frames."""
        if not self.lost and self.held_now():
            return
        # A call that is in progress may decode a message in the session's own buffer.
        rest = bytearray(64)
        with contextlib.suppress(OSError):
            while not self.lost and self._socket.recv_into(rest, 0, _RECEIVE_FLAGS):
                pass
        self.close()

    def held_now(self) -> list[Hold]:
        """Returns the frames whose arrays live, oldest first."""
        return [hold for hold in list(self.held.values()) if hold() is not None]

    def close(self) -> None:
        """Closes the socket."""
        self.lost, self._stopping = True, None
        _parked.discard(self)
        self._socket.close()

    def forget_in_child(self) -> None:
        """Closes a forked child's copy: while it is open, the daemon keeps a dead rank's frames."""
        self.forked = True
        self._socket.close()


def close_parked() -> None:
    """Closes sockets that a callback left open, after an interrupt at its first line."""
    for session in list(_parked):
        session.close_if_free()


def _close_sockets_in_child() -> None:
    for session in list(_sessions):
        session.forget_in_child()
    _parked.clear()


os.register_at_fork(after_in_child=_close_sockets_in_child)
