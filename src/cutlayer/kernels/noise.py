"""Noise and draws from AES-256: nobody without the key can repeat or predict them."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import numpy.typing as npt
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import Tensor

from cutlayer.errors import ConfigError

BLOCK = 16
"""Bytes of one AES block."""

TAIL_SIGMA = math.sqrt(2 * 63 * math.log(2))
"""The largest value `standard_normal` can return, 9.35: the radius belonging to the smallest uniform, 2^-63."""

_SHORTEST_SECRET = 16
_BLAKE2B_KEY_LIMIT = 64
_PAIRS_AT_A_TIME = 1 << 15  # 256 KiB of float64: the intermediates of one piece stay in the second-level cache
_LOW_63_BITS = 2**63 - 1


def derive(secret: bytes, *parts: bytes, size: int = 32) -> bytes:
    """A subkey of `secret` for one purpose; different parts give unrelated subkeys.

    Args:
        secret: 16 bytes or more.
        parts: what the subkey is for; each is prefixed with its length, so that no two lists read the same.
        size: bytes wanted, 1 to 64.

    Returns:
        BLAKE2b of the parts, keyed with the secret.

    Raises:
        ConfigError: the secret is shorter than 16 bytes.
    """
    if len(secret) < _SHORTEST_SECRET:
        raise ConfigError.expected(
            f"a secret of {_SHORTEST_SECRET} bytes or more", f"{len(secret)} bytes", "take 32 from the system"
        )
    if len(secret) > _BLAKE2B_KEY_LIMIT:
        secret = hashlib.blake2b(secret).digest()
    hasher = hashlib.blake2b(key=secret, digest_size=size)
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
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
    out = np.empty(blocks.size + BLOCK - 1, np.uint8)  # the cipher asks for room for one more block
    # Each block is a distinct row id, and its ciphertext is used as a random number and never released.
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305
    written = encryptor.update_into(np.ascontiguousarray(blocks).reshape(-1).data, out.data)
    return out[:written].reshape(-1, BLOCK)


def keystream(key: bytes, nonce: bytes, nbytes: int) -> bytearray:
    """AES-256 in counter mode under a key and counter derived from `(key, nonce)`.

    Args:
        key: 16 bytes or more; 32 from the operating system are meant.
        nonce: of any length; distinct nonces never share a stream.
        nbytes: how many bytes.

    Reference: NIST SP 800-38A, section 6.5.
    """
    both = derive(key, b"cutlayer keystream", nonce, size=48)
    stream = bytearray(nbytes)
    Cipher(algorithms.AES(both[:32]), modes.CTR(both[32:])).encryptor().update_into(stream, stream)
    return stream


def uniform64(key: bytes, nonce: bytes, count: int) -> Tensor:
    """Uniform float64 numbers (count,) in (0, 1], a function of (key, nonce) alone.

    Each is (w + 1) / 2^63 with w the low 63 bits of one 64-bit word (the sign bit is left out because signed integers
    convert three times faster), so that the smallest is 2^-63 and zero never comes.
    """
    if count == 0:
        return torch.zeros(0, dtype=torch.float64)
    return _uniform(torch.frombuffer(keystream(key, nonce, 8 * count), dtype=torch.int64))


def standard_normal(key: bytes, nonce: bytes, shape: tuple[int, ...]) -> Tensor:
    """Standard normal float32 numbers of the given shape, a function of (key, nonce) alone.

    Box-Muller in float64 on 64-bit words: the radius is drawn from uniforms that reach down to 2^-63, so the tail ends
    at 9.35 standard deviations (`TAIL_SIGMA`), where the normal distribution has 9e-21 left; float32 uniforms
    of 24 bits would end at 5.8, of 32 bits at 6.7. Never infinite.

    Args:
        key: 16 bytes or more; 32 from the operating system are meant.
        nonce: of any length; must differ for every use.
        shape: of the result.
    """
    count = math.prod(shape)
    if count == 0:
        return torch.zeros(shape)
    pairs = (count + 1) // 2
    words = torch.frombuffer(keystream(key, nonce, 16 * pairs), dtype=torch.int64)
    out = torch.empty(2 * pairs)
    for start in range(0, 2 * pairs, 2 * _PAIRS_AT_A_TIME):
        _box_muller(words[start : start + 2 * _PAIRS_AT_A_TIME], out[start : start + 2 * _PAIRS_AT_A_TIME])
    return out[:count].reshape(shape)


def _uniform(words: Tensor) -> Tensor:
    return words.bitwise_and(_LOW_63_BITS).double().add_(1.0).mul_(2.0**-63)


def _box_muller(words: Tensor, out: Tensor) -> None:
    """Turn 2m words int64 into 2m normals: the first half gives the radii, the second the angles."""
    half = len(words) // 2
    radius = _uniform(words[:half]).log_().mul_(-2.0).sqrt_()
    angle = words[half:].double().mul_(2 * math.pi * 2.0**-64)
    out[:half] = torch.cos(angle).mul_(radius)
    out[half:] = angle.sin_().mul_(radius)
