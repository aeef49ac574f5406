"""Bands of a score for a release by randomised response: their number, their borders, and what they reveal."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cutlayer.kernels.noise.randomized_response import drawn_rate, flip_probability

Floats = npt.NDArray[np.float64]
FINE = 32
"""Number of bands of equal frequency that bands are merged from."""
_BANDS = ((8.0, 16), (6.0, 8), (4.0, 4), (3.0, 3))
"""Number of bands from which on noise of an epsilon costs more than further bands add (measured on 16 tables)."""


def bands_for(epsilon: float | None, most: int) -> int:
    """Number of bands that a release at an epsilon is best divided into.

    Args:
        epsilon: Privacy of a row's band; `None` without noise.
        most: Maximum number of bands.

    >>> [bands_for(epsilon, 16) for epsilon in (8.0, 6.0, 4.0, 3.0, 1.0, None)]
    [16, 8, 4, 3, 2, 16]
    """
    if epsilon is None:
        return most
    return min(most, next((bands for least, bands in _BANDS if epsilon >= least), 2))


def channel(epsilon: float | None, bands: int) -> Floats:
    """Probability that a band (row) is drawn as another (column), float64 (bands, bands)."""
    if epsilon is None or bands < 2:
        return np.eye(bands)
    slope, offset = drawn_rate(epsilon, bands)
    return offset + slope * np.eye(bands)


def information(joint: Floats) -> float:
    """Mutual information, in bits, of a table of weights (bands, values).

    >>> information(np.eye(2)), information(np.ones((2, 2)))
    (1.0, 0.0)
    """
    shares = joint / joint.sum()
    independent = shares.sum(axis=1, keepdims=True) * shares.sum(axis=0, keepdims=True)
    some = shares > 0
    return float((shares[some] * np.log2(shares[some] / independent[some])).sum())


def most_carried(epsilon: float | None, bands: int) -> float:
    """Share of its entropy that a draw carries of an attribute that half of the bands have, and the others lack.

    No noise but that of the draw is between such an attribute and who reads it.

    >>> [round(most_carried(epsilon, bands), 3) for epsilon, bands in ((8.0, 16), (4.0, 4), (2.0, 2), (None, 16))]
    [0.973, 0.782, 0.473, 1.0]
    """
    halves = np.repeat(np.eye(2), [bands - bands // 2, bands // 2], axis=0)
    return information(channel(epsilon, bands).T @ halves) / information(halves)


def merged(joint: Floats, epsilon: float | None, bands: int) -> npt.NDArray[np.int64]:
    """Merge neighbouring bands, one pair at a time, so that what is drawn keeps most information about the values.

    Args:
        joint: Weight of each value in each fine band, (fine, values), the bands in the order of the score.
        epsilon: Privacy of the draw; `None` without noise.
        bands: Number of bands that are left, 2 or more.

    Returns:
        Band of each fine band, int64 (fine,), ascending from 0.
    """
    tables = [joint[at] for at in range(len(joint))]
    sizes = [1] * len(tables)
    while len(tables) > max(bands, 2):
        noise = channel(epsilon, len(tables) - 1)
        kept = []
        for at in range(len(tables) - 1):
            table = np.array([*tables[:at], tables[at] + tables[at + 1], *tables[at + 2 :]])
            kept.append(information(noise.T @ table))
        best = int(np.argmax(kept))
        tables[best : best + 2] = [tables[best] + tables[best + 1]]
        sizes[best : best + 2] = [sizes[best] + sizes[best + 1]]
    return np.repeat(np.arange(len(sizes)), sizes)


def best_auc(epsilon: float, bands: int) -> float:
    """ROC AUC of the best test between two given bands of a row, by one draw of randomised response.

    The likelihood ratio of the two has three values: on the one band, on the other, and on all others.

    Args:
        epsilon: Privacy of the draw, 0 or more.
        bands: Number of bands, 2 or more.

    >>> best_auc(0.0, 16), round(best_auc(2.0, 2), 4)
    (0.5, 0.8808)
    """
    kept = 1 - flip_probability(epsilon, bands)
    other = (1 - kept) / (bands - 1)
    rest = (bands - 2) * other
    return kept * (1 - other) + kept * other + rest * kept + rest**2 / 2


def bits(epsilon: float | None, shares: Floats) -> float:
    """Information, in bits, that a drawn band carries of the band, by the share of the rows in each.

    No attack learns more of a row's columns from its release: the band is a function of them.

    >>> bits(None, np.full(16, 1 / 16))
    4.0
    """
    return information(np.diag(shares) @ channel(epsilon, len(shares)))
