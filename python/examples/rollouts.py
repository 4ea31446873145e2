"""Rollouts and training on one machine, where no sample is more than four steps off the policy.

    batchweave run python/examples/rollouts.toml --until stopped
    python python/examples/rollouts.py rollout /tmp/batchweave-rollouts
    python python/examples/rollouts.py train /tmp/batchweave-rollouts

The rollout process samples tokens from the newest policy and writes them into an inbox, with the
version of that policy. The trainer reads them as batches, checks their age, and learns from their
rewards (REINFORCE): the policy prefers one token in the end. Kill each of the three at any time,
and start it again: each goes on, and the bound holds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import batchweave
from batchweave import inbox

STEPS = 60
OLDEST = 4
"""The age of a sample, in steps."""
# As in rollouts.toml.
ROWS_PER_STEP, SEQ_LEN = 8, 16
PROMPT, VOCABULARY, WANTED = 4, 32, 7
LEARNING_RATE = 2.0
SAVE_EVERY = 10


class Policy(NamedTuple):
    """The policy that the trainer publishes after each step; it is the checkpoint, too."""

    version: int
    """The number of steps that it was trained for."""
    logits: npt.NDArray[np.float64]
    """Of each token; a real policy is a model."""
    data: dict[str, str] | None
    """The position behind the last batch."""


def load(folder: Path) -> Policy:
    """Returns the newest policy."""
    path = folder / "policy.json"
    if not path.exists():
        return Policy(0, np.zeros(VOCABULARY), None)
    found = json.loads(path.read_text())
    return Policy(found["version"], np.array(found["logits"]), found["data"])


def publish(folder: Path, policy: Policy) -> None:
    """Replaces the policy durably: a crash leaves the old one or the new one."""
    fresh = folder / "policy.new"
    with fresh.open("w") as out:
        json.dump(policy._replace(logits=policy.logits.tolist())._asdict(), out)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(folder / "policy.json")


def chances(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns the probability of each token."""
    weights = np.exp(logits - logits.max())
    found: npt.NDArray[np.float64] = weights / weights.sum()
    return found


def sample(policy: Policy, chance: np.random.Generator) -> dict[str, Any]:
    """Returns a row: a prompt, an answer by the policy, and the reward of the answer."""
    prompt = chance.integers(0, VOCABULARY, PROMPT)
    answer = chance.choice(VOCABULARY, SEQ_LEN - PROMPT, p=chances(policy.logits))
    return {
        "tokens": np.concatenate([prompt, answer]).astype(np.uint32),
        "loss_mask": (np.arange(SEQ_LEN) >= PROMPT).astype(np.uint8),
        "reward": float((answer == WANTED).mean()),
        "policy_version": policy.version,
    }


def rollout(folder: Path) -> None:
    """Writes samples of the newest policy until Ctrl-C."""
    chance = np.random.default_rng()
    with inbox.open(
        folder / "inbox",
        "rollout-0",
        linger=0.02,
        stream=folder / "stream",
        rows_per_step=ROWS_PER_STEP,
        # The trainer has received one step more than the newest policy was trained for.
        max_lag_steps=OLDEST - 1,
    ) as writer:
        while True:
            writer.wait_for_lag()
            # Rows that were not durable when the process was killed are lost; these are new ones.
            writer.put(sample(load(folder), chance))


def train(folder: Path, socket: str | None, steps: int) -> None:
    """Trains the policy, and publishes it after each step."""
    policy = load(folder)
    if policy.version >= steps:
        return
    with batchweave.connect(
        socket, job="train", dp_rank=0, dp_size=1, state=policy.data, credits=2
    ) as reader:
        for batch in reader:
            age = policy.version - int(batch["policy_version"].min())
            assert 0 <= age <= OLDEST, f"step {batch.step}: a sample is {age} steps old"
            logits = learned(policy.logits, batch)
            policy = Policy(policy.version + 1, logits, batch.state_dict())
            reward = float(batch["reward"].mean())
            del batch
            print(f"step {policy.version}: reward {reward:.2f}, age {age}", flush=True)
            publish(folder, policy)
            if policy.version % SAVE_EVERY == 0 and policy.data is not None:
                reader.checkpoint(policy.data)
            if policy.version >= steps:
                return


def learned(logits: npt.NDArray[np.float64], batch: batchweave.Batch) -> npt.NDArray[np.float64]:
    """Returns the logits after one step of REINFORCE, with the mean reward as the baseline."""
    advantages = batch["reward"] - batch["reward"].mean()
    gradient = np.zeros(VOCABULARY)
    for tokens, mask, advantage in zip(
        batch["tokens"], batch["loss_mask"], advantages, strict=True
    ):
        answer = tokens[mask == 1]
        counts = np.bincount(answer, minlength=VOCABULARY)
        gradient += advantage * (counts - len(answer) * chances(logits))
    return logits + LEARNING_RATE * gradient / len(advantages)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one of the two processes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("process", choices=["rollout", "train"])
    parser.add_argument("folder", type=Path, help="has the inbox and the policy")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"to train (default {STEPS})")
    parser.add_argument("--socket", help="of the consumer; default: as batchweave.connect finds it")
    args = parser.parse_args(arguments)
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.process == "rollout":
        with contextlib.suppress(KeyboardInterrupt):
            rollout(args.folder)
    else:
        train(args.folder, args.socket, args.steps)


if __name__ == "__main__":
    main()
