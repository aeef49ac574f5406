"""Trains the real parties on canaries, interrupts and resumes them, and reads every message."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa

from cutlayer.attacks.completion.base import OptimizerHook
from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.codec import decode, encode
from cutlayer.config import Job
from cutlayer.config.phases import Phase
from cutlayer.consent import allowed
from cutlayer.parties.active import ActiveParty
from cutlayer.parties.drive.drive import drive_together
from cutlayer.parties.drive.random_state import with_own_random_state
from cutlayer.parties.passive import PassiveParty
from cutlayer.parties.session.local import LocalSide
from cutlayer.parties.session.observer import Observer
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.tables import open_table
from cutlayer.training.together import local_side

RUN = "canaries"


class _Stopped(Exception):
    """Ends the first half of the training, as if the process had been killed."""


@dataclass(frozen=True)
class Parties:
    """The two parties of one start of the training, whose state a reader of the messages may use.

    Differential privacy holds against an adversary that knows everything but one row, so a test may use all of it.

    Attributes:
        active: Active party.
        passive: Passive party.
    """

    active: ActiveParty
    passive: PassiveParty


Reader = Callable[[Message, Parties], None]
"""Reads one message as it was decoded from the wire."""


def train_on_canaries(
    job: Job, tables: Mapping[str, pa.Table], key: bytes, reader: Reader, wrap: OptimizerHook | None = None
) -> None:
    """Train a job of two parties, stop it in the middle, resume it, and read every message of both starts.

    Each message is encoded to a frame and decoded again, so that the reader sees what crosses between organisations.
    A message that repeats an earlier one bit for bit adds no information and is not read again: after a resume, most
    of the interrupted epoch. A message that the resume changed is read.

    Args:
        job: Job with one passive party.
        tables: Rows of both parties.
        key: 32 bytes that replace all keys and secrets.
        reader: Called with each new message.
        wrap: Applied to the passive party's optimiser, to read its updates.
    """
    seen = set[bytes]()
    (passive,) = job.passives
    # The models of the canaries are this package's own.
    with allowed(__package__ or ""), tempfile.TemporaryDirectory(prefix="cutlayer-canaries-") as scratch:
        folder, data, keys = RunFolder(Path(scratch) / "run"), Path(scratch) / "data", Keys(Path(scratch), supplied=key)

        def start(stop: tuple[Kind, int] | None, *, resume: bool) -> None:
            sides = {
                name: local_side(job, name, folder, data, keys, open_table(job, name, tables), resume=resume)
                for name in job.parties
            }
            sides[passive] = replace(sides[passive], wrap=wrap)
            _drive(job, sides, _new_messages(reader, seen, stop))

        try:
            start(_middle(job), resume=False)
        except _Stopped:
            start(None, resume=True)


def _middle(job: Job) -> tuple[Kind, int]:
    """Kind and epoch of the messages at which the first start is stopped, in the middle of the run."""
    epoch = job.train.max_epochs // 2
    (passive,) = job.passives
    if Phase.RELEASE not in job.phases_of(passive):
        return Kind.GRADIENT, epoch
    return (Kind.EPOCH_END, epoch) if job.train.warmup_epochs else (Kind.RELEASE, -1)


def _new_messages(reader: Reader, seen: set[bytes], stop: tuple[Kind, int] | None) -> Reader:
    """A reader of messages that were not seen before; it stops the run at the second message like `stop`."""
    count = 0

    def read(message: Message, parties: Parties) -> None:
        nonlocal count
        content = b"".join(tensor.numpy().tobytes() for tensor in message.tensors.values())
        digest = blake2b(message.kind.encode() + message.rows + content, digest_size=16).digest()
        if message.tensors and digest not in seen:
            seen.add(digest)
            reader(message, parties)
        count += (message.kind, message.epoch) == stop
        if stop is not None and count == 2:
            raise _Stopped

    return read


def _drive(job: Job, sides: Mapping[str, LocalSide], read: Reader) -> None:
    """Drive both parties to the end."""
    (passive,) = job.passives

    def carry(message: Message, other: Port) -> None:
        arrived = decode(encode(message))
        read(arrived, parties)
        other.deliver(arrived)

    here = Port(job.active, passive, RUN, lambda message: carry(message, there))
    there = Port(passive, job.active, RUN, lambda message: carry(message, here))
    active = ActiveParty(job, sides[job.active], {passive: here}, Observer())
    parties = Parties(active, PassiveParty(job, sides[passive], there))
    runs: dict[str, Generator[Any, Any, Any]] = {job.active: parties.active.run(), passive: parties.passive.run()}
    drive_together({name: with_own_random_state(party, sides[name].starting_key) for name, party in runs.items()})
