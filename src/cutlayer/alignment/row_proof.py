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
import torch

from cutlayer.alignment.ristretto255 import POINT_BYTES, hash_to_group, multiply, random_scalar
from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.receiving import receive
from cutlayer.errors import AlignmentError, ProtocolError

CONTEXT = b"cutlayer row proof 1 "
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
    base = hash_to_group(np.frombuffer(order, dtype=np.uint8).reshape(1, -1), CONTEXT + port.run.encode()[:128])
    mine = multiply(base, scalar).tobytes()
    _send(port, mine)
    theirs = yield from _receive(port)
    secret = multiply(np.frombuffer(theirs, dtype=np.uint8).reshape(1, -1), scalar).tobytes()
    points = (mine, theirs) if active else (theirs, mine)
    if active:
        _send(port, _confirmation(secret, points, b"active"))
    stated = yield from _receive(port)
    if not compare_digest(stated, _confirmation(secret, points, b"passive" if active else b"active")):
        remedy = "align again; if it happens again, its program or its table is at fault"
        raise AlignmentError.expected(f"the common rows at {port.peer}", "other rows than it named", remedy)
    if not active:
        _send(port, _confirmation(secret, points, b"passive"))


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
