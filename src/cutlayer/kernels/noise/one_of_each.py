"""One row of each id, drawn by a key: the row whose label is drawn and sent for all rows of the id."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cutlayer.kernels.noise.aes import derive, encrypt_blocks
from cutlayer.kernels.rows.patterns import begins_run
from cutlayer.storage.row_arrays import computed

Rows = npt.NDArray[np.int64]


def one_of_each(ids: Rows, digests: npt.NDArray[np.uint8], secret: bytes) -> tuple[Rows, Rows]:
    """Draw one row of each id, each of its rows with the same probability.

    The randomness of a row is AES-256 of its digest, and of its number among the rows with this digest. The row with
    the smallest is chosen: a further row, after the others, changes the choice only where it is chosen itself. No label
    has a part in it, nor any other id, so that the choice is the same in each training on the same rows.

    Args:
        ids: Number of each row's id, int64 (n,); rows of one id follow each other.
        digests: Digest of each row, uint8 (n, 16): that of its id, or of one of its own.
        secret: 16 bytes or more that stay with the owner of the rows.

    Returns:
        The chosen rows, int64 (u,), in the order of the ids, and which of them stands for each row, int64 (n,).

    >>> digests = np.repeat(np.arange(2, dtype=np.uint8), [3, 1])[:, None] * np.ones(16, np.uint8)
    >>> chosen, of_rows = one_of_each(np.array([7, 7, 7, 9]), digests, bytes(16))
    >>> int(chosen[1]), of_rows.tolist()
    (3, [0, 0, 0, 1])
    """
    begins = np.flatnonzero(np.diff(ids, prepend=-1))
    of_rows = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(ids)))
    every, key = np.arange(len(ids)), derive(secret, b"cutlayer row of an id")
    number = every - np.maximum.accumulate(every * begins_run(digests))

    def random(part: slice) -> npt.NDArray[np.uint64]:
        blocks = digests[part].copy()
        blocks.view("<u8")[:, 1] ^= number[part].astype(np.uint64)
        return encrypt_blocks(key, blocks).view("<u8")[:, 0]

    words = computed(len(ids), np.uint64, random)
    least = np.minimum.reduceat(words, begins) if len(ids) else words
    chosen = np.flatnonzero(words == least[of_rows])
    return chosen[np.diff(of_rows[chosen], prepend=-1) > 0], of_rows
