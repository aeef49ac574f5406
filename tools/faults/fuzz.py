"""Frames that were changed at random: the decoder raises `ProtocolError`, or returns a message that is valid."""

from __future__ import annotations

import random
import resource
from dataclasses import dataclass, field

import torch

from cutlayer.channel import Kind, Message
from cutlayer.channel.codec import DEFAULT_LIMITS, decode, encode
from cutlayer.errors import ProtocolError

_MAX_ADDED_BYTES = 200_000_000
"""Bytes of memory that decoding may add in all."""


@dataclass
class Fuzzed:
    """What became of changed frames.

    Attributes:
        frames: Number of frames.
        refused: Number of those that raised `ProtocolError`.
        decoded: Number of those that were a valid message still.
        others: Other exceptions by class, with the seed of the frame: none may occur.
        added_bytes: Growth of the process's peak memory.
        longest_error: Characters of the longest error.
    """

    frames: int = 0
    refused: int = 0
    decoded: int = 0
    others: dict[str, int] = field(default_factory=dict)
    added_bytes: int = 0
    longest_error: int = 0

    @property
    def wrong(self) -> bool:
        """Whether something happened that must not."""
        return bool(self.others) or self.added_bytes > _MAX_ADDED_BYTES


def fuzz(count: int, seed: int = 0) -> Fuzzed:
    """Decode changed frames, each by a seed of its own.

    Args:
        count: Number of frames.
        seed: Seed of the first; the others follow.
    """
    found, originals = Fuzzed(), [encode(message) for message in _messages()]
    decode(originals[0])
    before = _peak()
    for number in range(seed, seed + count):
        draw = random.Random(number)
        frame, checksum = _changed(draw, originals), draw.random() < 0.5
        found.frames += 1
        try:
            message = decode(frame, DEFAULT_LIMITS, checksum=checksum)
            found.decoded += message.nbytes <= len(frame)
        except ProtocolError as refusal:
            found.refused += 1
            found.longest_error = max(found.longest_error, len(str(refusal)))
        except Exception as other:  # what no frame may cause
            found.others.setdefault(type(other).__name__, number)
    found.added_bytes = _peak() - before
    return found


def _changed(draw: random.Random, originals: list[bytes]) -> bytes:
    frame = bytearray(draw.choice(originals))
    for _ in range(draw.choice((1, 1, 2, 4, 16))):
        offset = draw.randrange(len(frame) + 1)
        match draw.randrange(6):
            case 0 if offset < len(frame):
                frame[offset] ^= 1 << draw.randrange(8)
            case 1 if offset < len(frame):
                frame[offset] = draw.choice((0, 1, 0x7F, 0x80, 0xC1, 0xDD, 0xDF, 0xFF))
            case 2:
                del frame[offset:]
            case 3:
                frame[offset:offset] = draw.randbytes(draw.randint(1, 9))
            case 4:
                del frame[offset : offset + draw.randint(1, 9)]
            case _:
                other = draw.choice(originals)
                frame[offset:] = other[draw.randrange(len(other)) :]
        frame = frame or bytearray(b"C")
    return bytes(frame)


def _messages() -> list[Message]:
    numbers = torch.linspace(-1, 1, 24).reshape(6, 4)
    hello: dict[str, int | float | str] = {
        "job": "0" * 32,
        "name": "credit",
        "version": "3",
        "rows": 9,
        "ids": "text",
        "rule": "",
        "purpose": "train",
    }
    return [
        Message(
            Kind.HELLO, "telco", "bank", "run", -1, -1, 0, fields={**hello, "purpose": "train", "resume": 0, "step": 0}
        ),
        Message(Kind.IDS, "telco", "bank", "run", -1, -1, 1, tensors=_of("digests", 16), fields={"last": True}),
        Message(Kind.ORDER, "bank", "telco", "run", -1, -1, 1, tensors=_positions(), fields={"last": True}),
        Message(Kind.EMBEDDING, "telco", "bank", "run", 0, 3, 2, b"r" * 16, {"embedding": numbers}),
        Message(Kind.GRADIENT, "bank", "telco", "run", 0, 3, 2, b"r" * 16, {"gradient": -numbers}),
        Message(Kind.CLOSE, "telco", "bank", "run", -1, -1, 9, fields={"reason": "done"}),
    ]


def _of(name: str, columns: int) -> dict[str, torch.Tensor]:
    return {name: torch.arange(3 * columns, dtype=torch.uint8).reshape(3, columns)}


def _positions() -> dict[str, torch.Tensor]:
    return {"positions": torch.arange(5)}


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
