"""The typed messages that may cross between two parties, and their kinds."""

from __future__ import annotations

import hashlib
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cutlayer.channel.kinds import Kind
from cutlayer.errors import ProtocolError

Scalar = int | float | str | bool


@dataclass(frozen=True, slots=True)
class Shape:
    """The content of a kind of message.

    Attributes:
        tensors: Dtype and number of axes, by name.
        fields: Type, by name; whole numbers are of 64 bits.
        texts: Maximum length in characters of each field that is text; line breaks and control characters are refused.
    """

    tensors: Mapping[str, tuple[torch.dtype, int]] = field(default_factory=dict)
    fields: Mapping[str, type] = field(default_factory=dict)
    texts: Mapping[str, int] = field(default_factory=dict)


SHAPES: Mapping[Kind, Shape] = {
    Kind.HELLO: Shape(
        fields={
            "job": str,
            "name": str,
            "version": str,
            "rows": int,
            "ids": str,
            "rule": str,
            "purpose": str,
            "resume": int,
            "step": int,
        },
        texts={"job": 64, "name": 100, "version": 16, "ids": 32, "rule": 256, "purpose": 16},
    ),
    Kind.ALIGN: Shape(fields={"session": str, "bits": int, "first": int}, texts={"session": 32}),
    Kind.MASKED: Shape(tensors={"points": (torch.uint8, 2)}),
    Kind.REMASKED: Shape(tensors={"points": (torch.uint8, 2)}),
    Kind.COMMON: Shape(fields={"rows": int}),
    Kind.PROOF: Shape(tensors={"proof": (torch.uint8, 1)}),
    Kind.IDS: Shape(tensors={"digests": (torch.uint8, 2)}, fields={"last": bool}),
    Kind.ORDER: Shape(tensors={"positions": (torch.int64, 1)}, fields={"last": bool}),
    Kind.SPLIT: Shape(tensors={"parts": (torch.uint8, 1)}, fields={"last": bool}),
    Kind.LABELS: Shape(tensors={"labels": (torch.uint8, 1)}, fields={"last": bool, "epsilon": float, "classes": int}),
    Kind.READY: Shape(fields={"order": str, "width": int, "pilot": str}, texts={"order": 64, "pilot": 64}),
    Kind.EMBEDDING: Shape(tensors={"embedding": (torch.float32, 2)}),
    Kind.GRADIENT: Shape(tensors={"gradient": (torch.float32, 2)}),
    Kind.REQUEST: Shape(fields={"part": str, "batch": int}, texts={"part": 16}),
    Kind.EVALUATION: Shape(tensors={"embedding": (torch.float32, 2)}),
    Kind.RELEASE: Shape(tensors={"embedding": (torch.float32, 2)}),
    Kind.EPOCH_END: Shape(fields={"stop": bool, "best": bool}),
    Kind.COMMITTED: Shape(),
    Kind.EVIDENCE: Shape(fields={"json": str}, texts={"json": 64 * 2**10}),
    Kind.CLOSE: Shape(fields={"reason": str}, texts={"reason": 200}),
    Kind.OFFER: Shape(fields={"version": str, "width": int}, texts={"version": 64}),
    Kind.LOOKUP: Shape(tensors={"ids": (torch.uint8, 2)}),
    Kind.LOOKED_UP: Shape(tensors={"embedding": (torch.float32, 2), "status": (torch.uint8, 1)}),
    Kind.FILE: Shape(tensors={"content": (torch.uint8, 1)}, fields={"last": bool}),
    Kind.PROBE: Shape(),
    Kind.ALIVE: Shape(),
}


PACKABLE = frozenset({Kind.EMBEDDING, Kind.GRADIENT, Kind.EVALUATION, Kind.RELEASE})
"""Kinds whose matrix may be packed rows, uint8, where the parties agreed on a compression."""
BYTES = PACKABLE | {Kind.LOOKED_UP}
"""Kinds whose matrix may be bytes: packed rows, or grades."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message, numbered so that a moved, repeated or lost message is detected.

    Attributes:
        kind: Kind of the message, which decides on the tensors and fields that it carries.
        sender: Name of the party that sends it.
        receiver: Name of the party that receives it.
        run: Id of the run.
        epoch: Epoch of the schedule, from 0; -1 outside of training.
        step: Step within the epoch, from 0; -1 outside of training.
        sequence: Number of messages from this sender to this receiver before it.
        rows: 16-byte digest of the batch's row numbers in the common order; empty where no rows are meant.
        tensors: Tensors, detached and contiguous; the receiver must not write to them.
        fields: Plain values.
    """

    kind: Kind
    sender: str
    receiver: str
    run: str
    epoch: int
    step: int
    sequence: int
    rows: bytes = b""
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    fields: Mapping[str, Scalar] = field(default_factory=dict)

    def checked(self) -> Message:
        """Return the message itself if its content fits its kind.

        Raises:
            ProtocolError: A tensor or field is missing, unknown, or of another type; a number beyond 64 bits; or a text
                that is too long, or holds what a terminal would not print.
        """
        shape = SHAPES[self.kind]
        if self.tensors.keys() != shape.tensors.keys() or self.fields.keys() != shape.fields.keys():
            wanted = [*shape.tensors, *shape.fields]
            got = reprlib.repr([*self.tensors, *self.fields])
            raise ProtocolError.expected(f"{self.kind} with {wanted}", got)
        for name, (dtype, rank) in shape.tensors.items():
            tensor = self.tensors[name]
            packed = self.kind in BYTES and tensor.dtype == torch.uint8
            packed &= self.kind in PACKABLE or tensor.shape[1:] == (1,)  # grades served, one byte a row
            if (tensor.dtype != dtype and not packed) or tensor.dim() != rank:
                raise ProtocolError.expected(
                    f"{self.kind}.{name} of {dtype} with {rank} axes", f"{tensor.dtype} {tuple(tensor.shape)}"
                )
        for name, kind in shape.fields.items():
            if type(self.fields[name]) is not kind:
                got = reprlib.repr(self.fields[name])
                raise ProtocolError.expected(f"{self.kind}.{name} of type {kind.__name__}", got)
            if kind is int and not -(2**63) <= self.fields[name] < 2**63:  # type: ignore[operator]
                raise ProtocolError.expected(f"{self.kind}.{name} of 64 bits", "a larger number")
        self._check_texts(shape)
        return self

    def _check_texts(self, shape: Shape) -> None:
        """Check the texts of a peer, which may reach an error message and so a terminal or a log."""
        for name, max_length in shape.texts.items():
            text = str(self.fields[name])
            if len(text) > max_length:
                raise ProtocolError.expected(f"{self.kind}.{name} of at most {max_length} characters", len(text))
            if not text.isprintable():
                raise ProtocolError.expected(f"{self.kind}.{name} of printable characters", ascii(text[:40]))

    @property
    def description(self) -> str:
        """Kind, epoch and step, for error messages."""
        return described(self.kind, self.epoch, self.step)

    @property
    def nbytes(self) -> int:
        """Size of the tensors, in bytes."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


def described(kind: Kind, epoch: int, step: int) -> str:
    """Kind, epoch and step of a message; -1 is left out."""
    where = [f"{name} {value}" for name, value in (("epoch", epoch), ("step", step)) if value >= 0]
    return f"{kind} of {', '.join(where)}" if where else str(kind)


def rows_digest(rows: Tensor) -> bytes:
    """Digest of a batch's row numbers, int64 (n,), in order."""
    return hashlib.blake2b(rows.numpy().data, digest_size=16).digest()
