"""Measurements of the hand-over from daemon to rank: `python -m batchweave.bench.handover`."""
