"""Permutations that are the same on every machine and with every version of every library."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BLOCK_ROWS = 1000


def permutation(n: int, *key: int) -> npt.NDArray[np.int64]:
    """A random order of 0..n-1, a pure function of n and the key.

    Parties on different machines must draw the same batches. NumPy guarantees the raw words of PCG64 and
    `SeedSequence` for good, but not its own shuffling, nor does PyTorch; so rows are sorted by raw words, with the
    row number in the lowest bits so that no two are equal.

    >>> permutation(5, 7, 0).tolist() == permutation(5, 7, 0).tolist() != permutation(5, 7, 1).tolist()
    True
    """
    low = _bits(n)
    words = _generator(key).random_raw(n) >> np.uint64(low) << np.uint64(low)
    return _ranked(words | np.arange(n, dtype=np.uint64), low)


def block_permutation(n: int, *key: int) -> npt.NDArray[np.int64]:
    """A random order of 0..n-1 that keeps blocks of 1,000 consecutive rows together.

    The blocks come in random order, and the rows of each block too. Reading it touches a file larger than memory a
    few neighbouring pages at a time.
    """
    blocks = -(-n // BLOCK_ROWS)
    low, high = _bits(n), _bits(blocks)
    generator = _generator(key)
    rank = np.empty(blocks, dtype=np.uint64)
    rank[np.argsort(generator.random_raw(blocks), kind="stable")] = np.arange(blocks, dtype=np.uint64)
    words = generator.random_raw(n) >> np.uint64(low + high) << np.uint64(low)
    words |= np.repeat(rank, BLOCK_ROWS)[:n] << np.uint64(64 - high)
    return _ranked(words | np.arange(n, dtype=np.uint64), low)


def _generator(key: tuple[int, ...]) -> np.random.PCG64:
    return np.random.PCG64(np.random.SeedSequence(list(key)))


def _bits(n: int) -> int:
    return max(1, (n - 1).bit_length())


def _ranked(words: npt.NDArray[np.uint64], low: int) -> npt.NDArray[np.int64]:
    words.sort()
    return (words & np.uint64((1 << low) - 1)).view(np.int64)
