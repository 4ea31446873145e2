"""Memory of a daemon that was restarted: arrays keep it, and the next daemon knows of it."""

from __future__ import annotations

import gc
import time
from pathlib import Path

from fake_daemon import FakeDaemon, tokens_of
from test_frames import read_only_mappings

import batchweave


def test_reading_goes_on_over_a_daemons_restart(path: Path) -> None:
    gc.collect()
    before = read_only_mappings()
    first = FakeDaemon(path)
    with batchweave.connect(path, job="j", credits=4, timeout=20) as reader:
        kept = [next(reader) for _ in range(3)][2]
        first.stop()
        second = FakeDaemon(path)
        step = 2
        while not second.peers:
            # Messages queued before the daemon died are valid.
            step += 1
            assert next(reader).step == step
        hello = second.peers[0].hello
        assert (hello["mode"], hello["next_step"]) == ("resume", step)
        assert hello["stream"] == reader.info.stream_id
        assert hello["replaces"] == {"instance": first.instance.hex(), "session": 1}
        assert hello["mapped_bytes"] == first.segment.size
        assert (kept["tokens"] == tokens_of(2, 0)).all(), "the old mapping lives with its array"
        assert len(read_only_mappings(before)) == 2
        del kept
        assert len(read_only_mappings(before)) == 1, "and goes with it"
        second.stop()
        third = FakeDaemon(path, end=12)
        while not third.peers:
            step += 1
            assert next(reader).step == step
        assert [batch.step for batch in reader] == list(range(step + 1, 12))
        assert third.peers[0].hello["mapped_bytes"] == 0
        third.stop()


def test_a_new_daemon_is_told_when_the_memory_of_the_last_one_is_free(path: Path) -> None:
    first = FakeDaemon(path)
    with batchweave.connect(path, job="j", credits=4, timeout=20) as reader:
        kept = next(reader)
        first.stop()
        steps = [kept.step]
        with FakeDaemon(path) as second:
            while not second.peers or len(steps) < 20:
                steps.append(next(reader).step)
            assert [peer.hello["mapped_bytes"] for peer in second.peers] == [first.segment.size]
            del kept
            until = time.monotonic() + 60
            while len(second.peers) < 2 and time.monotonic() < until:
                steps.append(next(reader).step)
            steps += [next(reader).step for _ in range(20)]
            assert steps == list(range(len(steps)))
            assert [peer.hello["mapped_bytes"] for peer in second.peers][1:] == [0]
