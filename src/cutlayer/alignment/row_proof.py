"""Proof that two parties hold the same common rows, before either acts on them.

In a private set intersection a dishonest party could name rows that it does not hold, or answer so that the other
party takes rows for common that are not. Both parties therefore prove to each other that they know the ids of all
common rows. A plain digest would let the receiver test guesses of unknown ids; here a party learns only whether the
digests are equal. The digest of the ids takes the place of the password in a password-authenticated key exchange.

Reference: SPEKE (Jablon 1996; ISO/IEC 11770-4) in ristretto255, with a confirmation by each side that names both
points, as the repair of Hao and Shahandashti 2014 requires.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from hashlib import blake2b
from hmac import compare_digest
from secrets import token_bytes

import numpy as np
import numpy.typing as npt
import torch

from cutlayer.alignment.ristretto255 import POINT_BYTES, hash_to_group, multiply, random_scalar
from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.receiving import receive
from cutlayer.errors import AlignmentError, ProtocolError

PROOF_CONTEXT = b"cutlayer row proof 1 "
Proof = Generator[Port, Message, None]


def prove_rows(port: Port, order: bytes, *, active: bool, random: Callable[[int], bytes] = token_bytes) -> Proof:
    """Exchange points and confirmations; the active party confirms first.

    Args:
        port: Port to the peer.
        order: Digest of the ids of the common rows in their order, 16 bytes: `order_digest`.
        active: Whether this is the active party.
        random: Returns that many uniform secret bytes.

    Raises:
        AlignmentError: The peer holds other common rows than it named, or this party took others for common.
        ProtocolError: The peer sent no valid point.
    """
    scalar = random_scalar(random)
    mine = multiply(_base(port, order), scalar).tobytes()
    _send(port, mine)
    theirs = yield from _receive(port)
    secret = multiply(_as_point(theirs), scalar).tobytes()
    points = (mine, theirs) if active else (theirs, mine)
    if active:
        _send(port, _confirmation(secret, points, b"active"))
    stated = yield from _receive(port)
    if not compare_digest(stated, _confirmation(secret, points, b"passive" if active else b"active")):
        raise _other_rows(port)
    if not active:
        _send(port, _confirmation(secret, points, b"passive"))


class SealingProof:
    """A proof in two files, one from each side, whose key seals what the passive party sends with its own.

    The passive party does not wait for the active one's confirmation: it seals what it sends under the key of the
    exchange. Only who knows the digest can open it, and a party that names rows which it does not hold has a single
    guess, as with the confirmation.

    Args:
        port: Port to the peer.
        order: As in `prove_rows`.
        active: Whether this is the active party.
        random: Returns that many uniform secret bytes.
    """

    def __init__(self, port: Port, order: bytes, *, active: bool, random: Callable[[int], bytes]) -> None:
        self._port, self._active, self._scalar = port, active, random_scalar(random)
        self._mine = multiply(_base(port, order), self._scalar).tobytes()
        self._theirs = b""

    def begin(self) -> Proof:
        """The active party's point, which decides on a single digest before anything depends on one."""
        if self._active:
            _send(self._port, self._mine)
        else:
            self._theirs = yield from _receive(self._port)

    def end(self) -> Generator[Port, Message, bytes]:
        """The passive party's point and confirmation; returns the key, 64 bytes.

        Raises:
            AlignmentError: The passive party holds other common rows than it named.
            ProtocolError: It sent no valid point.
        """
        if self._active:
            self._theirs = yield from _receive(self._port)
        points = (self._mine, self._theirs) if self._active else (self._theirs, self._mine)
        secret = multiply(_as_point(self._theirs), self._scalar).tobytes()
        confirmation = _confirmation(secret, points, b"passive")
        if not self._active:
            _send(self._port, self._mine)
            _send(self._port, confirmation)
        elif not compare_digest((yield from _receive(self._port)), confirmation):
            raise _other_rows(self._port)
        return blake2b(b"".join((*points, b"seal")), key=secret, digest_size=64).digest()


def _base(port: Port, order: bytes) -> npt.NDArray[np.uint8]:
    return hash_to_group(np.frombuffer(order, dtype=np.uint8).reshape(1, -1), PROOF_CONTEXT + port.run.encode()[:128])


def _as_point(encoded: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(encoded, dtype=np.uint8).reshape(1, -1)


def _other_rows(port: Port) -> AlignmentError:
    remedy = "align again; if it happens again, its program or its table is at fault"
    return AlignmentError.expected(f"the common rows at {port.peer}", "other rows than it named", remedy)


def _send(port: Port, proof: bytes) -> None:
    port.send(Kind.PROOF, tensors={"proof": torch.from_numpy(np.frombuffer(proof, dtype=np.uint8).copy())})


def _receive(port: Port) -> Generator[Port, Message, bytes]:
    message = yield from receive(port, Kind.PROOF)
    proof = message.tensors["proof"].numpy().tobytes()
    if len(proof) != POINT_BYTES:
        raise ProtocolError.expected(f"a proof of {POINT_BYTES} bytes from {port.peer}", len(proof))
    return proof


def _confirmation(secret: bytes, points: tuple[bytes, bytes], role: bytes) -> bytes:
    return blake2b(b"".join((*points, role)), key=secret, digest_size=POINT_BYTES).digest()
