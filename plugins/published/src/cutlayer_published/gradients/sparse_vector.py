"""The sparse vector technique over many entries: which of them pass a noisy threshold that each pass renews."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


def take_passing(scores: Floats, thresholds: Floats, first: float, limit: int) -> Indices:
    """Walk the scores in order and take each that reaches the current threshold, which is then replaced.

    The walk is a chain: behind a taken entry i, the next one is the first k > i with `scores[k] >= thresholds[i]`. All
    those successors are found at once by bisection over window maxima, and the chain from the start is read off by
    doubling, so that no step is made per entry.

    Args:
        scores: Noisy scores of the entries, (m,).
        thresholds: Threshold that applies after each entry is taken, (m,).
        first: Threshold at the start.
        limit: Maximum number of entries to take.

    Returns:
        Positions taken, ascending.
    """
    if limit <= 0 or not len(scores):
        return np.zeros(0, np.int64)
    # Position 0 stands for the start, k + 1 for entry k, the last one for the end, which follows itself.
    end = len(scores) + 1
    jump = np.append(_successors(scores, np.concatenate(([first], thresholds))), end)
    chain = np.zeros(1, np.int64)
    while chain[-1] != end and len(chain) <= limit:
        chain = np.concatenate((chain, jump[chain]))
        jump = jump[jump]
    taken = chain[1 : limit + 1]
    return taken[taken < end] - 1


def _successors(scores: Floats, thresholds: Floats) -> Indices:
    """For each position the next one, counted from 1, whose score reaches its threshold; the end where none does."""
    size = len(thresholds)
    # level l holds the maximum of the 2^l scores from each position on; behind the last score nothing passes.
    levels = [np.concatenate((scores, np.full(size + 1 - len(scores), -np.inf)))]
    while 2 ** len(levels) < size:
        last = levels[-1]
        half = 2 ** (len(levels) - 1)
        wider = last.copy()
        np.maximum(last[:-half], last[half:], out=wider[:-half])
        levels.append(wider)
    position = np.arange(size, dtype=np.int64)
    ahead = np.empty(size)
    for level in range(len(levels) - 1, -1, -1):
        # Positions are in range: clipping avoids a check of them, which costs more than the gather.
        np.take(levels[level], position, out=ahead, mode="clip")
        position += (ahead < thresholds).astype(np.int64) << level
        np.minimum(position, size, out=position)
    return np.minimum(position + 1, size)
