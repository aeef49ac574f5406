"""A fast hash of 64-bit words, which is not cryptographic: the finalizer of SplitMix64.

Reference: Steele, Lea and Flood 2014, Fast splittable pseudorandom number generators (OOPSLA).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def hashed_words(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Hash of each word, uint64 (n,) -> uint64 (n,); different words have different hashes.

    >>> f"{hashed_words(np.array([0x9E3779B97F4A7C15], dtype=np.uint64))[0]:x}"  # the first output for the seed 0
    'e220a8397b1dcdaf'
    """
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
