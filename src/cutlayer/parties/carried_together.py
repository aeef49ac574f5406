"""What the grades of several jobs carry together of the columns of the same rows: more than each does alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cutlayer.data.carried import Carried, CarriedAttribute
from cutlayer.data.encoding import Encoder
from cutlayer.data.store import Store
from cutlayer.kernels.noise.score_bands import Floats, channel_of_groups
from cutlayer.parties.carried import count_attributes, information_of, min_attribute_rows
from cutlayer.parties.carried_limits import default_joint_limit

_MAX_CODES, _ROWS_PER_CODE, _MAX_CELLS = 4096, 32, 1 << 23
"""Maximum number of codes of all grades together: these, one for so many rows, and so many cells of all tables. Of more
codes, neighbouring grades are one group, of which the computation is exact: grades are lumped, the draws are the same.
"""
_MIN_ROWS, _MIN_ROWS_OF_FEW, _MIN_JOINT_ROWS = 200, 20, 5
"""Rows that must have grades of the same releases, or a tenth of all; that must in any case; and rows that must have an
attribute: of fewer, chance alone carries much."""
_MAX_RELEASES = 8
"""Number of releases, the newest, that are looked at all together, by which of them a row has; all are in pairs."""
_SAMPLES = 3
"""Number of random attributes of each size by which it is known what chance carries."""
_AT_ONCE, _ROUNDING = 64, 1e-9
"""Attributes whose shares are computed at once, and more than these shares may differ from those computed alone."""


class GradedRows(NamedTuple):
    """Grades of one release.

    Attributes:
        grades: Grade of each row before it is drawn, int64 (n,); -1 where the release has none of it.
        bands: Number of grades.
        epsilon: Privacy of a draw; `None` without noise.
        has_rest: Whether the last of them is no grade, but rows that are known to have none.
    """

    grades: npt.NDArray[np.int64]
    bands: int
    epsilon: float | None
    has_rest: bool = False


def with_earlier_releases(
    found: Carried, store: Store, encoder: Encoder, own: GradedRows, former: Sequence[GradedRows], unknown: int = 0
) -> Carried:
    """State what grades carry together with earlier grades of the same rows, which are one release with them.

    A code is a grade of each release, and its channel the product of theirs. Each earlier release is looked at with the
    new one, by the rows that both have; then the newest all together, rows that have the same ones by themselves, so
    that rows without an earlier grade hide nothing of those that have it. From a share is taken what chance alone
    carries: that of random attributes of as many rows, as in adjusted mutual information.

    Args:
        found: What the new grades carry alone.
        store: Encoded columns of all rows that are released.
        encoder: Their encoder.
        own: The new grades.
        former: Those of earlier releases, the oldest first.
        unknown: Number of earlier releases of the same rows whose grades this party does not have.

    Reference: Vinh, Epps and Bailey 2010, Information theoretic measures for clusterings comparison (JMLR 11), for
    the adjustment for chance.
    """
    best: dict[str, CarriedAttribute] = {}
    least, seen, most, beyond = max(_MIN_ROWS_OF_FEW, min(_MIN_ROWS, 0.1 * store.rows)), 0, 0, 0
    # Each with the new one, of all rows that have both: which others a row has hides nothing of what two tell.
    for each in former:
        at = np.flatnonzero(each.grades >= 0)
        if len(at) >= least:
            seen, most = seen + 1, max(most, 1)
            _join_releases(best, store, encoder, [own, each], at)
    newest = former[-_MAX_RELEASES:]
    of_all = np.zeros(store.rows, np.uint8)  # a bit for each of them
    for nth, each in enumerate(newest):
        of_all |= (each.grades >= 0).astype(np.uint8) << nth
    patterns, counts = np.unique(of_all, return_counts=True)
    for nth in np.argsort(-counts, kind="stable"):
        some = [each for at, each in enumerate(newest) if int(patterns[nth]) >> at & 1]
        if len(some) < 2 or counts[nth] < least:
            continue
        fit = max(2, int(math.log2(_max_codes(encoder, int(counts[nth]))))) - 1
        most, beyond = max(most, min(len(some), fit)), max(beyond, len(some) - fit)
        if fit > 1:
            _join_releases(best, store, encoder, [own, *some[-fit:]], np.flatnonzero(of_all == patterns[nth]))
    together = tuple(sorted(best.values(), key=lambda each: -each.share))
    apart = unknown + len(former) - seen + beyond
    return found.model_copy(update={"former": most, "unknown": apart, "together": together})


def _max_codes(encoder: Encoder, rows: int) -> int:
    lines = sum(2 * each.cardinality for each in encoder.categories) + 64 * max(1, len(encoder.numbers))
    return max(4, min(_MAX_CODES, rows // _ROWS_PER_CODE, _MAX_CELLS // lines))


def _join_releases(
    best: dict[str, CarriedAttribute],
    store: Store,
    encoder: Encoder,
    releases: Sequence[GradedRows],
    rows: npt.NDArray[np.int64],
) -> None:
    """Compute what releases of the same rows carry together, and note the attribute of each column of which most is."""
    releases = [each._replace(grades=each.grades[rows]) for each in releases]
    groups = _band_groups(releases, _max_codes(encoder, len(rows)))
    shape = tuple(int(each.max()) + 1 for each in groups)
    parts = [each[release.grades] for each, release in zip(groups, releases, strict=True)]
    codes = np.ravel_multi_index(tuple(parts), shape).astype(np.int64)
    channels = [
        channel_of_groups(release.epsilon, each, has_rest=release.has_rest)
        for each, release in zip(groups, releases, strict=True)
    ]
    sizes = np.bincount(codes, minlength=math.prod(shape)).astype(np.float64)
    least = max(_MIN_JOINT_ROWS, min_attribute_rows(len(rows)))
    chance_undrawn, chance_drawn = (_chance_share(sizes, shape, each) for each in ([], channels))
    numbers = {each.name for each in encoder.numbers}
    for column, names, counts in count_attributes(store, encoder, codes, math.prod(shape), rows):
        have = counts.sum(axis=1)
        some = np.flatnonzero((have >= least) & (have <= len(rows) - least))
        if not len(some):
            continue
        of_all, having, have = sizes.reshape(shape), counts[some].reshape(-1, *shape), have[some]
        undrawn = _above_chance(*information_of(of_all, having, []), chance_undrawn(have))[1]
        known = best.get(column, CarriedAttribute(column=column, attribute=names[0], rows=0.0, bits=0.0, share=-1.0))
        order, tried = np.argsort(-undrawn, kind="stable"), set[bytes]()
        for block in (order[start : start + _AT_ONCE] for start in range(0, len(order), _AT_ONCE)):
            block = block[undrawn[block] > known.share]
            if not len(block):  # a draw carries no more than what is drawn
                break
            shares = _beyond_chance(*information_of(of_all, having[block], channels), chance_drawn(have[block]))
            for at, near in zip(block, shares, strict=True):
                # While none is known any counts, also one of which chance carries more.
                is_less = 0 <= known.share > near + _ROUNDING
                if undrawn[at] <= known.share or is_less or having[at].tobytes() in tried:
                    continue
                tried.add(having[at].tobytes())
                # Alone, so that no bit depends on what it was computed with.
                one = information_of(of_all, having[at : at + 1], channels)
                (bits,), (share,) = _above_chance(*one, chance_drawn(have[at : at + 1]))
                if share > known.share:
                    part = {"rows": float(have[at] / len(rows)), "bits": float(bits), "share": float(share)}
                    known = known.model_copy(update={"attribute": names[some[at]], **part})
        # Of the rows that have a further grade, what each tells alone was never within a limit of its own.
        whole = [axis for axis, release in enumerate(releases) if not release.has_rest]
        alone = np.max([_share_alone(of_all, having, axis) for axis in whole], axis=0)
        best[column] = _with_undrawn(known, undrawn, alone, is_number=column in numbers)


def _with_undrawn(known: CarriedAttribute, undrawn: Floats, alone: Floats, *, is_number: bool) -> CarriedAttribute:
    """The attribute with the share before the draws that exceeds its default limit most, and that of one release alone.

    Args:
        known: The attribute, with those of earlier sets of releases.
        undrawn: Share of each attribute of the column that all releases carry before they are drawn, float64 (a,).
        alone: The largest share that one of them carries, float64 (a,).
        is_number: Whether the column is of numbers, of which both are the largest: two grades that are divided
            elsewhere tell another threshold, and nothing else.
    """
    before = known.undrawn or 0.0
    if is_number:
        update = {"undrawn": max(float(undrawn.max()), before), "alone": max(float(alone.max()), known.alone)}
        return known.model_copy(update=update)
    excess = [share - default_joint_limit(of_one) for share, of_one in zip(undrawn, alone, strict=True)]
    most = int(np.argmax(excess))
    if known.undrawn is not None and excess[most] <= before - default_joint_limit(known.alone):
        return known
    return known.model_copy(update={"undrawn": float(undrawn[most]), "alone": float(alone[most])})


def _share_alone(sizes: Floats, counts: Floats, axis: int) -> Floats:
    """Share of attributes that one of several releases carries before it is drawn, float64 (a,)."""
    rest = tuple(each for each in range(sizes.ndim) if each != axis)
    known, entropy = information_of(sizes.sum(axis=rest), counts.sum(axis=tuple(each + 1 for each in rest)), [])
    return known / entropy


def _above_chance(known: Floats, entropy: Floats, chance: Floats) -> tuple[Floats, Floats]:
    """Bits and shares that are carried beyond what chance does: all where all is carried, none where as by chance."""
    share = np.clip(_beyond_chance(known, entropy, chance), 0.0, 1.0)
    return share * entropy, share


def _beyond_chance(known: Floats, entropy: Floats, chance: Floats) -> Floats:
    """Shares that are carried, 0 where as many as chance carries, and below it where fewer."""
    return (known / entropy - chance) / (1 - chance)


def _chance_share(sizes: Floats, shape: tuple[int, ...], channels: Sequence[Floats]) -> Callable[[Floats], Floats]:
    """Share that codes carry of attributes which so many rows have at random."""
    rows = int(sizes.sum())
    some = np.unique(np.geomspace(max(_MIN_JOINT_ROWS, min_attribute_rows(rows)), rows // 2, 12).astype(np.int64))
    draw = np.random.default_rng(0)
    means = []
    for count in some.tolist():
        drawn = draw.multivariate_hypergeometric(sizes.astype(np.int64), count, size=_SAMPLES, method="marginals")
        known, entropy = information_of(sizes.reshape(shape), drawn.reshape(-1, *shape).astype(np.float64), channels)
        means.append(float((known / entropy).mean()))
    return lambda have: np.interp(np.log(np.minimum(have, rows - have)), np.log(some), means)


def _band_groups(releases: Sequence[GradedRows], most: int) -> list[npt.NDArray[np.int64]]:
    """Group of each band of each release: neighbours of about as many rows, so that all codes are at most so many."""
    counts = [each.bands for each in releases]
    while math.prod(counts) > most and max(counts) > 2:
        counts[counts.index(max(counts))] -= 1
    groups = []
    for each, count in zip(releases, counts, strict=True):
        bands, most = each.bands - each.has_rest, count - each.has_rest
        sizes = np.bincount(each.grades, minlength=each.bands)[:bands]
        middle = (sizes.cumsum() - sizes / 2) / max(sizes.sum(), 1)
        wanted = np.arange(bands) if count == each.bands else (middle * most).astype(np.int64)
        groups.append(np.unique(np.r_[wanted, [bands] * each.has_rest], return_inverse=True)[1])
    return groups
