"""The rank of rank.rs in Python: reads its steps and writes down what it got, in the same lines."""

import hashlib
import os
import random
import time

import batchweave

SLACK = 10.0
WAITS = ("timeout", "daemon_gone", "no_daemon")


def given(name, default=None):
    return os.environ.get("VANISH_" + name, default)


def patiently(out, call):
    """What `call` gives; it may give up after its time-out, and is called again."""
    while True:
        began = time.monotonic()
        try:
            return call()
        except batchweave.BatchWeaveError as error:
            took = time.monotonic() - began
            if took > 2.0 + SLACK:
                out(f"waited {took:.3f} s with a time-out of at most 2 s")
                raise
            if error.name not in WAITS:
                out(f"error {error.name}: {error}")
                raise
            out(f"late {error.name}")


def main():
    descriptor = os.open(given("FILE"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def out(line):
        os.write(descriptor, (line + "\n").encode())

    def connect():
        return batchweave.connect(
            given("SOCKET"),
            dp_rank=int(given("RANK")),
            dp_size=int(given("SIZE")),
            start=int(given("NEXT")),
            timeout=random.uniform(0.3, 2.0),
            connect_timeout=random.uniform(0.3, 2.0),
        )

    reader = patiently(out, connect)
    out("joined")
    stop, pause = int(given("STOP")), int(given("STEP_MS")) / 1000
    while reader.next_step < stop:
        batch = patiently(out, lambda: next(reader))
        hashes = [hashlib.sha256(piece["tokens"]).hexdigest() for piece in batch.slices]
        out(" ".join([str(batch.step), *hashes]))
        del batch
        time.sleep(pause)
    reader.close()
    out("done")


main()
