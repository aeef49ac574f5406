"""Each party's own stream of random numbers, although all parties may share one process."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from cutlayer.channel import Message, Port
from cutlayer.errors import PeerLost
from cutlayer.kernels.noise.aes import derive, keystream
from cutlayer.parties.compute.device import CPU
from cutlayer.parties.drive.drive import Event, resume_party
from cutlayer.parties.faults import FaultPoint, Faults, no_faults

R = TypeVar("R")

_WORDS, _FIRST, _WORD_BYTES = 624, 24, 8
"""The generator's state has 624 words of 32 bits in 8 bytes each, after a header of 24 bytes: a seed comes first."""


def starting_key(noise_key: bytes, party: str, seed: int) -> bytes:
    """The key, 32 bytes, of a party's draws from the global random state: initial weights, dropout, a fit.

    Args:
        noise_key: 32 bytes of the party's own. Nobody without it can repeat what is drawn.
        party: Name of the party, so that parties under one supplied key draw different numbers.
        seed: Seed of the job, so that runs of several seeds under one supplied key differ.
    """
    return derive(noise_key, b"initial weights", party.encode(), str(seed).encode())


def random_state(key: bytes) -> Tensor:
    """The state of the tensor library's generator (Mersenne Twister) under a key, uint8 as of `torch.get_rng_state`.

    All 19,937 bits of the state come from the key. A seed would not do: `torch.manual_seed` uses 32 bits of it, and
    a party that sees an embedding could try them all. `torch.initial_seed`, by which protections draw whatever else
    was drawn before, comes from the key too.

    Args:
        key: 32 bytes of one party and one run.

    Reference: Matsumoto and Nishimura 1998, *Mersenne Twister: a 623-dimensionally equidistributed uniform
    pseudo-random number generator*.
    """
    state = torch.Generator().manual_seed(0).get_state()
    words = np.frombuffer(keystream(key, b"random state", 4 * _WORDS), "<u4").astype("<u8")
    state[:_WORD_BYTES] = torch.frombuffer(bytearray(derive(key, b"initial seed", size=8)), dtype=torch.uint8)
    state[_FIRST : _FIRST + _WORDS * _WORD_BYTES] = torch.from_numpy(words.view(np.uint8))
    return state


class RandomState(NamedTuple):
    """States of the tensor library's generators.

    Attributes:
        cpu: State of the CPU's generator, from which initial weights, orders and fits are drawn.
        gpu: State of the generator of a party's GPU, from which its models draw masks, such as those of dropout; `None`
            without a GPU.
    """

    cpu: Tensor
    gpu: Tensor | None = None

    @classmethod
    def of_key(cls, key: bytes, device: torch.device) -> RandomState:
        """The states under a key; that of a GPU has 64 bits, as many as its generator takes."""
        if device.type != "cuda":
            return cls(random_state(key))
        seed = int.from_bytes(derive(key, b"random state of a GPU", size=8), "little")
        return cls(random_state(key), torch.Generator(device).manual_seed(seed).get_state())

    @classmethod
    def current(cls, device: torch.device) -> RandomState:
        """The present states."""
        return cls(torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None)

    def restore(self, device: torch.device) -> None:
        """Make these the present states, as far as the device has a generator of its own."""
        torch.set_rng_state(self.cpu)
        if self.gpu is not None and device.type == "cuda":
            torch.cuda.set_rng_state(self.gpu, device)


@contextmanager
def random_state_under(key: bytes) -> Iterator[None]:
    """Draw random numbers as a party with this starting key does at the start of a run."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(random_state(key))
        yield


def with_own_random_state(
    steps: Generator[Port, Message, R], key: bytes, device: torch.device = CPU, faults: Faults = no_faults
) -> Generator[Port, Message, R]:
    """Run a party's generator with the global random state swapped for its own around every resume.

    User modules contain `nn.Dropout` and initialise themselves from the global state; swapped, they draw the same
    numbers whether the other parties run in this process or elsewhere.

    Args:
        steps: Generator of the party.
        key: Starting key of the party, 32 bytes.
        device: Device that the party trains on.
        faults: Called before each resume with the message that has arrived.
    """
    state = RandomState.of_key(key, device)
    event: Event = None
    while True:
        outer = RandomState.current(device)
        state.restore(device)
        try:
            port = resume_party(steps, event)
        except StopIteration as finished:
            result: R = finished.value
            return result
        finally:
            state = RandomState.current(device)
            outer.restore(device)
        try:
            event = yield port
        except PeerLost as lost:
            event = lost
        else:
            faults(FaultPoint.RECEIVED, event.receiver, event)
