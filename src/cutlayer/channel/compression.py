"""Compression of embeddings and gradients on a link, the last thing before a message leaves: a hook of the port.

It acts on what the protections returned and on nothing else: it is post-processing, so a formal guarantee holds as it
is. Random numbers are drawn from the party's own key for the run, bound to the peer, the point of the schedule and the
content: a resume repeats them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from cutlayer.channel.codec import DEFAULT_LIMITS
from cutlayer.channel.message import PACKABLE, Message
from cutlayer.errors import ProtocolError
from cutlayer.kernels.noise.aes import derive, fingerprint, keystream
from cutlayer.kernels.rows.grade_columns import columns_of_grades, grades_of_columns
from cutlayer.kernels.rows.packed_rows import Form, pack_rows, unpack_rows, width_of


class Compression:
    """Packs and unpacks the matrices of embeddings and gradients.

    Args:
        form: Form of the numbers on the link, as all parties agreed.
        noise_key: 32 bytes of the party's own, for this run.
    """

    def __init__(self, form: Form, noise_key: bytes) -> None:
        self.form = form
        self._key, self._content_key = (
            derive(noise_key, purpose) for purpose in (b"cutlayer compression", b"cutlayer compressed content")
        )

    def packed(self, message: Message) -> Message:
        """The message with packed rows, if its kind has any."""
        # On the CPU, where the bytes are needed.
        return _converted(message, lambda _, tensor: self._packed(tensor.cpu(), message))

    def unpacked(self, message: Message) -> Message:
        """The message with float32 rows, as the receiver computes with them.

        Raises:
            ProtocolError: The rows are not packed, or of a size that no rows have.
        """

        def unpacked(name: str, tensor: Tensor) -> Tensor:
            if tensor.dtype != torch.uint8 or width_of(self.form, tensor.shape[1]) is None:
                got = f"{tensor.dtype} {tuple(tensor.shape)}"
                raise ProtocolError.expected(f"{message.kind}.{name} from {message.sender} as {self.form} rows", got)
            return unpack_rows(tensor, self.form)

        return _converted(message, unpacked)

    def _packed(self, tensor: Tensor, message: Message) -> Tensor:
        def uniform(count: int) -> Tensor:
            where = json.dumps([message.kind, message.receiver, message.epoch, message.step, list(tensor.shape)])
            key = derive(self._key, where.encode(), message.rows, fingerprint(self._content_key, tensor))
            words = torch.frombuffer(keystream(key, b"rounding", 2 * count), dtype=torch.int16)
            return (words.float() + (2**15 + 0.5)) / 2**16

        return pack_rows(tensor, self.form, uniform)


class GradeBytes:
    """Grades cross as one byte a row.

    Args:
        width: Number of columns that a grade is read as, which is that of the grades.
    """

    def __init__(self, width: int) -> None:
        self.width = width

    def packed(self, message: Message) -> Message:
        """The message with one byte a row, if its kind has rows."""
        return _converted(message, lambda _, tensor: grade_bytes(tensor.cpu()))

    def unpacked(self, message: Message) -> Message:
        """The message with grades as columns of float32.

        Raises:
            ProtocolError: The rows are not one byte each, or a grade is not among those of the job.
        """
        what = f"{message.kind} from {message.sender}"
        return _converted(message, lambda _, tensor: columns_of_bytes(tensor, self.width, what))


def _converted(message: Message, convert: Callable[[str, Tensor], Tensor]) -> Message:
    """The message with its tensors converted, by name; as it is if its kind has no rows."""
    if message.kind not in PACKABLE:
        return message
    return replace(message, tensors={name: convert(name, tensor) for name, tensor in message.tensors.items()})


def grade_bytes(columns: Tensor) -> Tensor:
    """Columns of grades, (n, width), as one byte a row, uint8 (n, 1)."""
    return grades_of_columns(columns).to(torch.uint8)[:, None]


def columns_of_bytes(tensor: Tensor, width: int, what: str) -> Tensor:
    """Bytes of grades that came from a peer, uint8 (n, 1), as columns, float32 (n, width).

    Raises:
        ProtocolError: They are not one byte a row, or a grade is not among those of the job; or there are more rows
            than columns of a frame could be of.
    """
    are_bytes = tensor.dtype == torch.uint8 and tensor.shape[1:] == (1,)
    largest = int(tensor.max()) if are_bytes and len(tensor) else 0
    most = DEFAULT_LIMITS.frame_bytes // (4 * width)  # a byte becomes a row of numbers, before its receiver counts them
    if not are_bytes or largest >= width or len(tensor) > most:
        got = f"{tensor.dtype} {tuple(tensor.shape)}, up to {largest}"
        raise ProtocolError.expected(f"{what} as one grade of {width} a row, of {most:,} rows at most", got)
    return columns_of_grades(tensor[:, 0].long(), width)
