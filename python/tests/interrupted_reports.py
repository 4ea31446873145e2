"""A rank interrupted once while it reports: `interrupted_reports.py SOCKET STRIDE`.

Each reader reports two steps, one of them with losses of a device, and marks behind them,
interrupted STRIDE lines of the client later than the one before, until one does all without. An
interrupted call is made again, as by a loop that goes on after Ctrl-C. Prints how many
there were and what went wrong, as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from fake_daemon import ROWS, SEQ_LEN, FakeDaemon, Peer
from interrupted_once import Interrupt, moments
from loss_device import reporter

import batchweave

REPORT, MARK = 7, 3
LOSSES = np.full((ROWS, SEQ_LEN), 2.0)


def insist(call: Callable[[], None], interrupt: Interrupt) -> None:
    """Makes a call until it was not interrupted."""
    while True:
        try:
            sys.settrace(interrupt.trace)
            call()
            return
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)


def sums_of(peer: Peer) -> list[tuple[int, float]]:
    """The losses that a session reported: the step, and their sum."""
    return [(one.step, one.sum) for one in peer.values]


def run(daemon: FakeDaemon, interrupt: Interrupt) -> str:
    """Reports and marks; returns what is wrong."""
    before = len(daemon.peers)
    reader = batchweave.connect(daemon.path, job="j", timeout=30, connect_timeout=30)
    first, second = next(reader), next(reader)
    state = second.state_dict()
    report = reporter(reader)
    insist(lambda: report(first, LOSSES), interrupt)
    insist(lambda: reader.report(second, left_out="nan"), interrupt)
    insist(lambda: reader.checkpoint(state), interrupt)
    reader.close()
    if reader._marks.unconfirmed():
        return "a mark is lost"
    losses = {one for peer in daemon.peers[before:] for one in sums_of(peer)}
    if losses != {(0, 2.0 * ROWS * SEQ_LEN)}:
        return f"losses are {losses}"
    states: set[tuple[int, str]] = set()
    for peer in daemon.peers[before:]:
        reports = iter(peer.reports)
        for kind in peer.said:
            if kind == REPORT:
                for start, end, why in next(reports)[1]:
                    states |= {(step, why) for step in range(start, end)}
            elif kind == MARK and states != {(0, ""), (1, "nan")}:
                return f"the mark follows only {states}"
    return "" if states == {(0, ""), (1, "nan")} else f"reported are {states}"


def main() -> None:
    """Moves the interrupt forward until none occurs before the end."""
    wrong: list[str] = []
    with FakeDaemon(Path(sys.argv[1]), slots=4096) as daemon:
        daemon.takes_reports, daemon.confirms = True, False
        daemon.on_describe = lambda peer: peer.send_info()
        for nth in moments(int(sys.argv[2])):
            interrupt = Interrupt(nth, "line")
            if why := run(daemon, interrupt):
                wrong.append(f"{nth}, {interrupt.at}: {why}")
            if interrupt.left > 0:
                print(json.dumps([nth, wrong]), flush=True)
                break


if __name__ == "__main__":
    main()
