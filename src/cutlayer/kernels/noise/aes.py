"""Noise and draws from AES-256, which cannot be repeated or predicted without the key."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cutlayer.errors import ConfigError
from cutlayer.lazy import Tensor, torch

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext


BLOCK = 16
"""Bytes of one AES block."""

MIN_UNIFORM = 2.0**-64
"""The smallest uniform from which the radius of a normal and the size of a Laplace number are drawn."""

TAIL_SIGMA = math.sqrt(-2 * math.log(MIN_UNIFORM))
"""The largest value `standard_normal` can return, 9.42: the radius belonging to the smallest uniform."""

TAIL_LAPLACE = -math.log(MIN_UNIFORM)
"""The largest value `standard_laplace` can return, 44.4."""

_MIN_SECRET = 16
_BLAKE2B_KEY_LIMIT = 64
# The intermediates of one piece stay in the second-level cache, and PyTorch gives no piece of this size to a second
# thread: the numbers do not depend on how many there are.
_AT_A_TIME = 1 << 15
_ZEROS = 1 << 14
_ANGLE = math.pi * 2.0**-31
_MAX_UPDATE = 1 << 30  # bytes; the cipher counts them in a signed 32-bit integer


Part = bytes | memoryview | tuple[bytes | memoryview, ...]
"""Bytes; those of a tuple are read as if they were joined, without a copy."""


def derive(secret: bytes, *parts: Part, size: int = 32) -> bytes:
    """A subkey of `secret` for one purpose; different parts give unrelated subkeys.

    Args:
        secret: 16 bytes or more.
        parts: Purpose of the subkey; each part is prefixed with its length, so that no two lists read the same.
        size: bytes wanted, 1 to 64.

    Returns:
        BLAKE2b of the parts, keyed with the secret.

    Raises:
        ConfigError: The secret is shorter than 16 bytes.
    """
    if len(secret) < _MIN_SECRET:
        raise ConfigError.expected(
            f"a secret of {_MIN_SECRET} bytes or more", f"{len(secret)} bytes", "take 32 from the system"
        )
    if len(secret) > _BLAKE2B_KEY_LIMIT:
        secret = hashlib.blake2b(secret).digest()
    hasher = hashlib.blake2b(key=secret, digest_size=size)
    for part in parts:
        pieces = part if isinstance(part, tuple) else (part,)
        hasher.update(sum(memoryview(piece).nbytes for piece in pieces).to_bytes(8, "little"))
        for piece in pieces:
            hasher.update(piece)
    return hasher.digest()


def encrypt_blocks(key: bytes, blocks: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """AES-256 of each 16-byte block: a keyed function of every row on its own.

    Args:
        key: 32 bytes.
        blocks: uint8 (n, 16).

    Returns:
        uint8 (n, 16).

    Reference: FIPS 197.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    out = np.empty(blocks.size + BLOCK - 1, np.uint8)  # the cipher asks for room for one more block
    # Each block is a distinct row id, and its ciphertext is used as a random number and never released.
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305
    written = encryptor.update_into(np.ascontiguousarray(blocks).reshape(-1).data, out.data)
    return out[:written].reshape(-1, BLOCK)


def keystream(key: bytes, nonce: bytes, nbytes: int) -> bytearray:
    """AES-256 in the counter mode of GCM, under a key and initial counter derived from `(key, nonce)`.

    Its tag is never computed. GCM counts as counter mode does, in the last 32 bits of the counter block; it is used
    because cryptographic libraries vectorise it first, which halves the time on processors with vector AES.

    Args:
        key: 16 bytes or more; 32 from the operating system are meant.
        nonce: bytes of any length; distinct nonces never share a stream.
        nbytes: Number of bytes, at most 2^36 - 32 (64 GiB).

    Returns:
        The first `nbytes` bytes of the stream.

    Reference: NIST SP 800-38D, sections 6.5 and 7.1.
    """
    stream = bytearray(nbytes)
    _counter(key, nonce).update_into(stream, stream)
    return stream


def fingerprint(key: bytes, content: Tensor) -> bytes:
    """A keyed digest of a tensor's bytes, at memory speed: 16 bytes to tell contents apart by, never to be released.

    It is the GMAC under one fixed nonce. Two contents of up to n blocks of 16 bytes, chosen without knowing the key or
    any digest, collide with probability (n + 1) / 2^128 at most: 2^-109 at 4 MiB. Two *published* tags of one nonce
    would give the hash key away; as an input of `derive` under a secret they tell nobody anything.

    Args:
        key: 32 bytes, of this use alone.
        content: Any shape and dtype; neither is part of the digest.

    Reference: NIST SP 800-38D, section 6.4; McGrew and Viega 2004, *The security and performance of the Galois/counter
    mode*, section 5 (the universal hash).
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    data = content.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data
    encryptor = Cipher(algorithms.AES(key), modes.GCM(bytes(12))).encryptor()
    for start in range(0, len(data), _MAX_UPDATE):
        encryptor.authenticate_additional_data(data[start : start + _MAX_UPDATE])
    encryptor.finalize()
    return encryptor.tag


def uniform64(key: bytes, nonce: bytes, count: int) -> Tensor:
    """Uniform float64 numbers (count,) in (0, 1], a function of (key, nonce) alone.

    Each is (|w| + 1/2) / 2^63 of one signed 64-bit word w (signed integers convert faster), so that the smallest is
    2^-64 and zero never comes.
    """
    if count == 0:
        return torch.zeros(0, dtype=torch.float64)
    words = torch.frombuffer(keystream(key, nonce, 8 * count), dtype=torch.int64)
    return _to_uniform(words.double())


def standard_normal(key: bytes, nonce: bytes, shape: tuple[int, ...]) -> Tensor:
    """Standard normal float32 numbers of the given shape, a function of (key, nonce) alone.

    Box-Muller. The radius comes from 64-bit words in float64: its uniforms reach down to 2^-64, so the tail ends at
    9.42 standard deviations (`TAIL_SIGMA`), where the normal distribution has 5e-21 left; float32 uniforms of 24 bits
    would end at 5.8, of 32 bits at 6.7. The angle is one of 2^32, and what follows is single precision, so that a
    number is off by up to 4e-7 of its radius: rounding the radius alone costs 6e-8. Never infinite.

    Args:
        key: 16 bytes or more; 32 from the operating system are meant.
        nonce: bytes of any length; must differ for every use.
        shape: Shape of the result.

    Reference: Box and Muller 1958, *A note on the generation of random normal deviates*.
    """
    count = math.prod(shape)
    if count == 0:
        return torch.zeros(shape)
    pairs = (count + 1) // 2
    size = min(pairs, _AT_A_TIME)
    scratch = torch.empty(size, dtype=torch.float64), torch.empty(size), torch.empty(size)
    out = torch.empty(2 * pairs)
    for words, part in zip(
        word_pieces(key, nonce, pairs, 3, _AT_A_TIME), torch.split(out, 2 * _AT_A_TIME), strict=True
    ):
        _box_muller(words, part, *scratch)
    return out[:count].reshape(shape)


def standard_laplace(key: bytes, nonce: bytes, shape: tuple[int, ...]) -> Tensor:
    """Laplace float32 numbers of scale 1 (variance 2), a function of (key, nonce) alone.

    Of each 64-bit word the sign is the number's, and the size is the negative logarithm, in float64, of the rest as a
    uniform: it ends at 44.4 (`TAIL_LAPLACE`), where the distribution has 5e-20 left.

    Args:
        key: 16 bytes or more; 32 from the operating system are meant.
        nonce: bytes of any length; must differ for every use.
        shape: Shape of the result.
    """
    count = math.prod(shape)
    if count == 0:
        return torch.zeros(shape)
    size = min(count, _AT_A_TIME)
    signed, sizes = (torch.empty(size, dtype=torch.float64) for _ in range(2))
    out = torch.empty(count)
    for words, part in zip(word_pieces(key, nonce, count, 2, _AT_A_TIME), torch.split(out, _AT_A_TIME), strict=True):
        _inverse_laplace(words, part, signed, sizes)
    return out.reshape(shape)


def _counter(key: bytes, nonce: bytes) -> CipherContext:
    """The running counter mode of `keystream`."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    both = derive(key, b"cutlayer keystream", nonce, size=44)
    return Cipher(algorithms.AES(both[:32]), modes.GCM(both[32:])).encryptor()


def word_pieces(key: bytes, nonce: bytes, count: int, words_each: int, at_a_time: int) -> Iterator[Tensor]:
    """The stream of `keystream` as int32 words, a piece at a time.

    Args:
        key: As in `keystream`.
        nonce: As in `keystream`.
        count: Number of draws.
        words_each: 32-bit words of one draw.
        at_a_time: Largest number of draws in a piece.

    Yields:
        Int32 (m * words_each,) for the next m draws; every piece overwrites the one before it.
    """
    counter = _counter(key, nonce)
    size = 4 * words_each * min(count, at_a_time)
    stream, zeros = memoryview(bytearray(size)), memoryview(bytes(size))
    words = torch.frombuffer(stream, dtype=torch.int32)
    for start in range(0, count, at_a_time):
        taken = words_each * min(count - start, at_a_time)
        counter.update_into(zeros[: 4 * taken], stream)
        yield words[:taken]


def word_buffer(key: bytes, nonce: bytes, count: int) -> tuple[Tensor, Callable[[], None]]:
    """Room for 64-bit words of `keystream`, and what fills it with the next ones, all of it each time.

    Args:
        key: As in `keystream`.
        nonce: As in `keystream`.
        count: Number of words, 1 or more.

    Returns:
        Int64 (count,), and the function that overwrites it.
    """
    counter, stream = _counter(key, nonce), memoryview(bytearray(8 * count))
    # A small source of zeros, used again for each part, stays in the first-level cache.
    zeros = memoryview(bytes(min(8 * count, _ZEROS)))
    parts = [stream[start : start + _ZEROS] for start in range(0, 8 * count, _ZEROS)]

    def refill() -> None:
        for part in parts:
            counter.update_into(zeros[: len(part)], part)

    return torch.frombuffer(stream, dtype=torch.int64), refill


@cache
def _scalar(value: float, kind: torch.dtype) -> Tensor:
    return torch.tensor(value, dtype=kind)


def _to_uniform(words: Tensor) -> Tensor:
    """Signed 64-bit words, as float64, to uniforms in (0, 1], in place."""
    return torch.add(_scalar(MIN_UNIFORM, torch.float64), words.abs_(), alpha=2 * MIN_UNIFORM, out=words)


def _box_muller(words: Tensor, out: Tensor, uniform: Tensor, radius: Tensor, angle: Tensor) -> None:
    """Turn 3m words int32 into 2m normals: each two of the first 2m give a radius, each of the last m an angle.

    The last three are room for m numbers or more.
    """
    m = len(words) // 3
    uniform = uniform[:m]
    radius = radius[:m]
    angle = angle[:m]
    _to_uniform(uniform.copy_(words[: 2 * m].view(torch.int64))).log_()
    radius.copy_(uniform).mul_(-2.0).sqrt_()
    # Half a step off zero, so that no angle gives a sine of exactly 0.
    torch.add(_scalar(_ANGLE / 2, torch.float32), angle.copy_(words[2 * m :]), alpha=_ANGLE, out=angle)
    torch.cos(angle, out=out[:m]).mul_(radius)
    torch.sin(angle, out=out[m:]).mul_(radius)


def _inverse_laplace(words: Tensor, out: Tensor, signed: Tensor, sizes: Tensor) -> None:
    """Turn 2m words int32 into m Laplace numbers; the last two are room for m numbers or more."""
    m = len(words) // 2
    signed, sizes = signed[:m], sizes[:m]
    signed.copy_(words.view(torch.int64))
    _to_uniform(sizes.copy_(signed)).log_()
    out.copy_(torch.copysign(sizes, signed, out=sizes))
