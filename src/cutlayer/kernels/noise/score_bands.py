"""Bands of a score for a release by randomised response: their number, their borders, and what they reveal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cutlayer.kernels.noise.randomized_response import drawn_rate

Floats = npt.NDArray[np.float64]
FINE_BANDS = 32
"""Number of bands of equal frequency that bands are merged from."""
_BANDS = ((8.0, 16), (6.0, 8), (4.0, 4), (3.0, 3))
"""Number of bands from which on noise of an epsilon costs more than further bands add (measured on 16 tables)."""
MIN_EPSILON = 2.0
"""The last of `lower_epsilons`: below, hardly anything of a score is left."""


def bands_for(epsilon: float | None, max_bands: int) -> int:
    """Number of bands that a release at an epsilon is best divided into.

    Args:
        epsilon: Privacy of a row's band; `None` without noise.
        max_bands: Maximum number of bands.

    >>> [bands_for(epsilon, 16) for epsilon in (8.0, 6.0, 4.0, 3.0, 1.0, None)]
    [16, 8, 4, 3, 2, 16]
    """
    if epsilon is None:
        return max_bands
    return min(max_bands, next((bands for least, bands in _BANDS if epsilon >= least), 2))


def lower_epsilons(epsilon: float, least: float) -> list[float]:
    """Epsilons below one, each with fewer bands, descending, from which a release may take the first that suits it.

    They are the same for everybody, so that which one is taken tells no more than its number.

    Args:
        epsilon: Privacy of a row's band.
        least: Least epsilon.

    >>> lower_epsilons(8.0, 2.0), lower_epsilons(4.0, 3.0), lower_epsilons(2.0, 2.0)
    ([6.0, 4.0, 3.0, 2.0], [3.0], [])
    """
    return [step for step, _ in (*_BANDS, (MIN_EPSILON, 2)) if least <= step < epsilon]


def draw_channel(epsilon: float | None, bands: int) -> Floats:
    """Probability that a band (row) is drawn as another (column), float64 (bands, bands)."""
    if epsilon is None or bands < 2:
        return np.eye(bands)
    slope, offset = drawn_rate(epsilon, bands)
    return offset + slope * np.eye(bands)


def channel_of_groups(epsilon: float | None, groups: npt.NDArray[np.int64], *, has_rest: bool = False) -> Floats:
    """Probability that a group of bands (row) is drawn as another (column), exactly: all its bands have the same.

    Args:
        epsilon: Privacy of a row's band; `None` without noise.
        groups: Group of each band, ascending from 0 with none left out, int64 (bands,).
        has_rest: Whether the last band, a group by itself, is of rows that are not drawn.

    >>> channel_of_groups(None, np.array([0, 0, 1]), has_rest=True).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    first, bands = np.unique(groups, return_index=True)[1], len(groups) - has_rest
    every = np.eye(len(groups))
    every[:bands, :bands] = draw_channel(epsilon, bands)
    return (every @ np.eye(len(first))[groups])[first]


def joint_after_draws(joint: Floats, channels: Sequence[Floats]) -> Floats:
    """A table of the bands of several releases and of values, after each release is drawn, independently.

    Args:
        joint: Weight of the bands of each release and of the values, (bands of the first, ..., of the last, values).
        channels: Channel of each release.
    """
    for axis, each in enumerate(channels):
        joint = np.moveaxis(np.tensordot(each, joint, axes=(0, axis)), 0, axis)
    return joint


def information(joint: Floats) -> float:
    """Mutual information, in bits, of a table of weights (bands, values).

    >>> information(np.eye(2)), information(np.ones((2, 2)))
    (1.0, 0.0)
    """
    return float(information_of_each(joint[:, None])[0])


def information_of_each(joint: Floats) -> Floats:
    """Mutual information, in bits, of each of several tables of weights (bands, tables, values), float64 (tables,)."""
    shares = joint / joint.sum(axis=(0, 2), keepdims=True)
    independent = shares.sum(axis=2, keepdims=True) * shares.sum(axis=0, keepdims=True)
    ratio = np.divide(shares, independent, out=np.ones_like(shares), where=shares > 0)
    found: Floats = (shares * np.log2(ratio)).sum(axis=(0, 2))
    return found


def max_carried_share(epsilon: float | None, bands: int) -> float:
    """Share of its entropy that a draw carries of an attribute that half of the bands have, and the others lack.

    No noise but that of the draw is between such an attribute and who reads it.

    >>> [round(max_carried_share(epsilon, bands), 3) for epsilon, bands in ((8.0, 16), (4.0, 4), (2.0, 2), (None, 16))]
    [0.973, 0.782, 0.473, 1.0]
    """
    halves = np.repeat(np.eye(2), [bands - bands // 2, bands // 2], axis=0)
    return information(draw_channel(epsilon, bands).T @ halves) / information(halves)


def merge_bands(joint: Floats, epsilon: float | None, bands: int) -> npt.NDArray[np.int64]:
    """Merge neighbouring bands so that what is drawn keeps most information about the values.

    What is drawn says the sum of what each band says alone, so that the best of all divisions is found exactly, one
    border at a time. With the number of bands of `bands_for`, no other draw of the same epsilon keeps more than a
    hundredth more.

    Args:
        joint: Weight of each value in each fine band, (fine, values), the bands in the order of the score.
        epsilon: Privacy of the draw; `None` without noise.
        bands: Number of bands that are left, 2 or more.

    Returns:
        Band of each fine band, int64 (fine,), ascending from 0.

    Reference: Kairouz, Oh and Viswanath 2016, Extremal mechanisms for local differential privacy (arXiv 1407.1338),
    theorem 2 and section 4, for the best draw, of which the tests compute what it keeps.
    """
    fine = len(joint)
    bands = max(min(bands, fine), 1)
    slope, offset = (1.0, 0.0) if epsilon is None or bands < 2 else drawn_rate(epsilon, bands)
    upto = np.concatenate([np.zeros((1, joint.shape[1])), np.cumsum(joint / joint.sum(), axis=0)])
    whole = upto[-1]
    # Of fine bands a to b - 1 as one: what is drawn as it, and the information of that.
    drawn = offset * whole + slope * np.maximum(upto[None] - upto[:, None], 0)
    independent = drawn.sum(axis=2, keepdims=True) * whole
    with np.errstate(divide="ignore", invalid="ignore"):
        said = np.where(drawn > 0, drawn * np.log2(drawn / independent), 0.0).sum(axis=2)
    said[np.tril_indices(fine + 1)] = -np.inf
    best, starts = said[0], []
    for _ in range(1, bands):
        every = best[:, None] + said
        starts.append(every.argmax(axis=0))
        best = every.max(axis=0)
    ends = [fine]
    for start in reversed(starts):
        ends.append(int(start[ends[-1]]))
    return np.repeat(np.arange(bands), np.diff([0, *ends[::-1]]))


def drawn_bits(epsilon: float | None, shares: Floats) -> float:
    """Information, in bits, that a drawn band carries of the band, by the share of the rows in each.

    No attack learns more of a row's columns from its release, on average over rows: the band is a function of them.

    >>> drawn_bits(None, np.full(16, 1 / 16))
    4.0
    """
    return information(np.diag(shares) @ draw_channel(epsilon, len(shares)))
