"""Words of 64 bits for the rows of a label memory, which are compared and sorted some at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cutlayer.kernels.noise.aes import encrypt_blocks
from cutlayer.storage import row_arrays
from cutlayer.storage.row_arrays import chosen_rows, chunks_of, computed_rows, row_array

Words = npt.NDArray[np.uint64]


def first_words(key: bytes, digests: npt.NDArray[np.uint8]) -> Words:
    """The first 8 bytes of each digest, enciphered: uint64 (n,)."""
    return np.ascontiguousarray(encrypt_blocks(key, digests).view("<u8")[:, 0], dtype=np.uint64)


def find(known: Words, wanted: Words) -> npt.NDArray[np.int64]:
    """Index of each wanted word among the known words, which are sorted; -1 where it is none of them."""

    def piece(part: slice) -> npt.NDArray[np.int64]:
        own = wanted[part]
        order, where = np.argsort(own), np.empty(len(own), np.int64)
        where[order] = np.searchsorted(known, own[order])  # far faster than in any other order
        where = np.minimum(where, len(known) - 1)
        return np.where(known[where] == own, where, -1)

    if not len(known):
        return computed_rows(len(wanted), np.int64, lambda part: np.full(part.stop - part.start, -1))
    return computed_rows(len(wanted), np.int64, piece)


def changed_rows(where: npt.NDArray[np.int64], known: Words, labels: Words) -> npt.NDArray[np.bool_]:
    """Which rows were drawn for another label; `where` is from `find`."""

    def piece(part: slice) -> npt.NDArray[np.bool_]:
        changed = where[part] >= 0
        changed[changed] = known[where[part][changed]] != labels[part][changed]
        return changed

    return computed_rows(len(labels), np.bool_, piece)


def unknown(words: Words, where: npt.NDArray[np.int64]) -> Words:
    """The words of rows that are not known yet."""
    return chosen_rows(len(words), np.uint64, lambda part: words[part][where[part] < 0])


def sorted_pairs(ids: Words, labels: Words) -> tuple[Words, Words]:
    """Both in the order of the ids, which are distinct."""
    if len(ids) <= row_arrays.CHUNK_ROWS:
        order = np.argsort(ids)
        return ids[order], labels[order]
    ascending = computed_rows(len(ids), np.uint64, lambda part: ids[part])
    ascending.sort()
    indices, ordered = find(ascending, ids), row_array(len(ids), np.uint64)
    for start, end in chunks_of(len(ids)):
        ordered[indices[start:end]] = labels[start:end]
    return ascending, ordered
