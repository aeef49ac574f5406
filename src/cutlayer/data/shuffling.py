"""Permutations that are the same on every machine and with every version of every library."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from cutlayer.storage.row_arrays import chunks_of, row_array

BLOCK_ROWS = 1000
WINDOW_BLOCKS = 64


def permutation(n: int, *key: int) -> npt.NDArray[np.int64]:
    """A random order of 0..n-1, a pure function of n and the key.

    Parties on different machines must draw the same batches. NumPy guarantees the raw words of PCG64 and
    `SeedSequence` for good, but not its own shuffling, nor does PyTorch; so rows are sorted by raw words, with the
    row number in the lowest bits so that no two are equal.

    >>> permutation(5, 7, 0).tolist() == permutation(5, 7, 0).tolist() != permutation(5, 7, 1).tolist()
    True
    """
    low = _bits(n)
    generator, words = _generator(key), row_array(n, np.uint64)
    for start, end in chunks_of(n):
        drawn = generator.random_raw(end - start) >> np.uint64(low) << np.uint64(low)
        words[start:end] = drawn | np.arange(start, end, dtype=np.uint64)
    words.sort()
    words &= np.uint64((1 << low) - 1)
    return words.view(np.int64)


def block_windows(n: int, *key: int) -> Iterator[npt.NDArray[np.int64]]:
    """A random order of 0..n-1 in windows of 64,000 rows, for large files; a pure function of its arguments.

    Blocks of 1,000 consecutive rows come in random order. Each window takes the next 64 of them, and its rows are
    shuffled among each other. A window reads long extents of a file, and the order needs memory for the blocks and one
    window alone, whatever n is. The rows of a batch come from up to 64 blocks.

    >>> sorted(row for window in block_windows(2500, 7, 0) for row in window.tolist()) == list(range(2500))
    True
    """
    blocks = -(-n // BLOCK_ROWS)
    order = permutation(blocks, *key)
    inside = np.arange(BLOCK_ROWS)
    for number, first in enumerate(range(0, blocks, WINDOW_BLOCKS), start=1):
        rows = (order[first : first + WINDOW_BLOCKS, None] * BLOCK_ROWS + inside).reshape(-1)
        rows = rows[rows < n]
        yield rows[permutation(len(rows), *key, number)]


def _generator(key: tuple[int, ...]) -> np.random.PCG64:
    return np.random.PCG64(np.random.SeedSequence(list(key)))


def _bits(n: int) -> int:
    return max(1, (n - 1).bit_length())
