"""One row of each id, drawn by a key: the row whose label is drawn and sent for all rows of the id."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cutlayer.kernels.noise.aes import derive, encrypt_blocks
from cutlayer.kernels.rows.patterns import begins_run
from cutlayer.storage.row_arrays import computed_rows

Rows = npt.NDArray[np.int64]


def draw_row_of_each_id(
    ids: Rows, digests: npt.NDArray[np.uint8], secret: bytes, labels: npt.NDArray[np.float64] | None = None
) -> tuple[Rows, Rows]:
    """Draw one row of each id, each of its rows with the same probability.

    The randomness of a row is AES-256 of its digest, of its label, and of its number among the rows with both. The row
    with the smallest is chosen: a further row changes the choice only where it is chosen itself. No other id has a part
    in it, nor the order of the rows, so that the label is the same in each training on the same rows.

    Args:
        ids: Number of each row's id, int64 (n,), ascending.
        digests: Digest of each row, uint8 (n, 16): that of its id; or of one of its own, without labels.
        secret: 16 bytes or more that stay with the owner of the rows.
        labels: Label of each row, (n,), which tells rows with one digest apart.

    Returns:
        The chosen rows, int64 (u,), in the order of the ids, and which of them stands for each row, int64 (n,).

    >>> digests = np.repeat(np.arange(2, dtype=np.uint8), [3, 1])[:, None] * np.ones(16, np.uint8)
    >>> chosen, of_rows = draw_row_of_each_id(np.array([7, 7, 7, 9]), digests, bytes(16))
    >>> int(chosen[1]), of_rows.tolist()
    (3, [0, 0, 0, 1])
    """
    begins = np.flatnonzero(np.diff(ids, prepend=-1))
    of_rows = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(ids)))
    every, key = np.arange(len(ids)), derive(secret, b"cutlayer row of an id")
    order = every if labels is None else np.lexsort((labels, ids))  # the rows of an id stay where they are together
    values = np.zeros(len(ids)) if labels is None else labels[order]
    number = every - np.maximum.accumulate(every * (begins_run(digests) | (np.diff(values, prepend=np.nan) != 0)))

    def random(part: slice) -> npt.NDArray[np.uint64]:
        blocks = digests[part].copy()
        blocks.view("<u8")[:, 0] ^= values[part].view("<u8")
        blocks.view("<u8")[:, 1] ^= number[part].astype(np.uint64)
        return encrypt_blocks(key, blocks).view("<u8")[:, 0]

    words = computed_rows(len(ids), np.uint64, random)
    least = np.minimum.reduceat(words, begins) if len(ids) else words
    chosen = np.flatnonzero(words == least[of_rows])
    return order[chosen[np.diff(of_rows[chosen], prepend=-1) > 0]], of_rows
