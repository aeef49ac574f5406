"""The prime-order group ristretto255: hashing to it, and multiplication of many points by one scalar.

The arithmetic is libsodium's, through the binding `rbcl`, whose wheels bundle it. All functions take and return arrays
and call the C functions on their memory, since a Python object for each point costs as much as a tenth of the work.

The order of the group is prime and every element has one encoding: there are no small subgroups, no twist, and no
second encoding of a point.

Reference: RFC 9496 (the group, and the map of 64 uniform bytes to it); RFC 9380, section 5 (hashing to a group).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from hashlib import sha512
from pathlib import Path
from secrets import token_bytes
from typing import Any

import numpy as np
import numpy.typing as npt

from cutlayer.errors import ConfigError, ProtocolError

Points = npt.NDArray[np.uint8]

POINT_BYTES = 32
_HASH_BYTES = 64


def hash_to_group(values: npt.NDArray[np.uint8], context: bytes) -> Points:
    """Hash values to points whose discrete logarithms nobody knows: the map of RFC 9496 on SHA-512.

    Args:
        values: uint8 (n, k), rows to hash.
        context: Prefix of every hash, which separates uses; at most 255 bytes.

    Returns:
        Encoded points, uint8 (n, 32).
    """
    start = sha512(bytes([len(context)]) + context)
    hashed = bytearray(_HASH_BYTES * len(values))
    width = values.shape[1]
    raw = np.ascontiguousarray(values).tobytes()
    for row in range(len(values)):
        digest = start.copy()
        digest.update(raw[row * width : (row + 1) * width])
        hashed[row * _HASH_BYTES : (row + 1) * _HASH_BYTES] = digest.digest()
    return _mapped(np.frombuffer(hashed, dtype=np.uint8).reshape(-1, _HASH_BYTES))


def multiply(points: Points, scalar: bytes) -> Points:
    """Multiply every point by a scalar; the time does not depend on the scalar.

    Args:
        points: Encoded points, uint8 (n, 32), perhaps from another party.
        scalar: 32 bytes of `random_scalar`.

    Returns:
        Encoded points, uint8 (n, 32), in the same order.

    Raises:
        ProtocolError: A row is the identity, or the encoding of no point.
    """
    if points.ndim != 2 or points.shape[1] != POINT_BYTES or points.dtype != np.uint8:
        raise ProtocolError.expected(f"points of {POINT_BYTES} bytes", f"{points.dtype} {points.shape}")
    times = _library().crypto_scalarmult_ristretto255
    source = np.ascontiguousarray(points)
    products = np.empty_like(source)
    key = ctypes.create_string_buffer(scalar, POINT_BYTES)
    at = source.ctypes.data
    to = products.ctypes.data
    by = ctypes.addressof(key)
    for offset in range(0, source.size, POINT_BYTES):
        # Fails on an invalid encoding, and on the identity as a result: for a scalar below the order, which is prime,
        # and not 0, only the identity gives it.
        if times(to + offset, by, at + offset):
            wanted = "points of ristretto255 other than the identity"
            raise ProtocolError.expected(wanted, f"32 other bytes in row {offset // POINT_BYTES}")
    return products


def random_scalar(random: Callable[[int], bytes] = token_bytes) -> bytes:
    """A secret scalar, 32 bytes: uniform below the order of the group, up to 2^-250; 0 as rarely.

    Args:
        random: Returns that many uniform secret bytes.
    """
    uniform, scalar = random(_HASH_BYTES), ctypes.create_string_buffer(POINT_BYTES)
    _library().crypto_core_ristretto255_scalar_reduce(ctypes.addressof(scalar), uniform)
    return scalar.raw


def random_points(count: int, random: Callable[[int], bytes] = token_bytes) -> Points:
    """Uniform points, uint8 (count, 32), whose discrete logarithms nobody knows.

    Args:
        count: Number of points.
        random: Returns that many uniform secret bytes.
    """
    return _mapped(np.frombuffer(random(_HASH_BYTES * count), dtype=np.uint8).reshape(-1, _HASH_BYTES))


def _mapped(hashes: npt.NDArray[np.uint8]) -> Points:
    """The points of uniform bytes, uint8 (n, 64)."""
    mapped = _library().crypto_core_ristretto255_from_hash
    points = np.empty((len(hashes), POINT_BYTES), dtype=np.uint8)
    at, to = hashes.ctypes.data, points.ctypes.data
    for row in range(len(hashes)):
        mapped(to + row * POINT_BYTES, at + row * _HASH_BYTES)
    return points


@cache
def _library() -> Any:
    """The functions of libsodium, which take addresses.

    Raises:
        ConfigError: It cannot be loaded here.
    """
    try:
        import rbcl
    except (ImportError, OSError) as failure:  # `rbcl` writes the library to the folder for temporary files
        remedy = "reinstall rbcl; if the folder for temporary files forbids programs, set TMPDIR to another"
        raise ConfigError(f"libsodium, which alignment by psi needs, cannot be loaded: {failure}; {remedy}") from None
    loaded: Any = rbcl._sodium
    # A handle of our own: declaring argument types on that of `rbcl` would change its wrappers.
    library = ctypes.CDLL(loaded._name, handle=loaded._handle)
    address = ctypes.c_void_p
    library.crypto_scalarmult_ristretto255.argtypes = [address, address, address]
    library.crypto_core_ristretto255_from_hash.argtypes = [address, address]
    library.crypto_core_ristretto255_scalar_reduce.argtypes = [address, ctypes.c_char_p]
    library.crypto_core_ristretto255_scalar_reduce.restype = None
    # `rbcl` leaves a copy of the library, 3 MB, for each process that imports it. A loaded one needs no name.
    Path(loaded._name).unlink(missing_ok=True)
    return library
