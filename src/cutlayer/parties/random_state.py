"""Each party's own stream of random numbers, although all parties may share one process."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from typing import TypeVar

import torch

from cutlayer.channel import Message, Port

R = TypeVar("R")


def party_seed(seed: int, party: str) -> int:
    """Seed of one party, derived from the job's: the order of the parties does not matter."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{party}".encode(), digest_size=7).digest(), "little")


def isolated(steps: Generator[Port, Message, R], seed: int) -> Generator[Port, Message, R]:
    """Run a party's generator with the global random state swapped for its own around every resume.

    User modules contain `nn.Dropout` and initialise themselves from the global state; swapped, they draw the same
    numbers whether the other parties run in this process or elsewhere.
    """
    own = torch.Generator().manual_seed(seed).get_state()
    message: Message | None = None
    while True:
        outer = torch.get_rng_state()
        torch.set_rng_state(own)
        try:
            port = steps.send(message) if message is not None else next(steps)
        except StopIteration as finished:
            result: R = finished.value
            return result
        finally:
            own = torch.get_rng_state()
            torch.set_rng_state(outer)
        message = yield port
