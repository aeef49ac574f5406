"""Information that a party's grades carry about its columns, computed exactly before the grades leave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from cutlayer.data.carried import Carried, CarriedAttribute
from cutlayer.data.categories import FIRST_VALUE_CODE, CategoryEncoder
from cutlayer.data.encoding import Encoder
from cutlayer.data.store import Store
from cutlayer.kernels.noise.score_bands import Floats, draw_channel, drawn_bits, information_of_each, joint_after_draws
from cutlayer.storage.row_arrays import chunks_of

MIN_ATTRIBUTE_ROWS, MIN_ATTRIBUTE_SHARE = 50, 0.1
"""Minimum number of rows that have an attribute, and that lack it, and in a small release their minimum share: with
fewer rows chance alone explains much. Without the share, small releases would pass every limit one by one."""
MIN_RARE_ROWS, MAX_CHANCE = 5, 1e-6
"""Attributes of fewer rows than that, but of this many, count by what grades carry of them beyond chance: beyond what
they carry at random of one in a million such attributes, so that none of many rare values has a share by chance."""
_QUANTILES = np.array([0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97, 0.99])
"""Shares of the rows at which a number is divided: deciles, and what lies far out."""
_FINE_QUANTILES = np.r_[_QUANTILES, np.arange(1, 64) / 64]
"""The same, closer: sets are made of the parts between these."""
_FREQUENT_SHARE = 0.002
"""Minimum share of the rows of a value of a number that is an attribute of its own, as each of a category is."""
_SET_SHARES = np.linspace(0.1, 0.9, 17)
"""Shares of the rows that have a value of a set, as near as the values allow."""
_MAX_AXES = 8
"""Number of axes of several releases by which sets of values are chosen."""
MAX_ORDERED_BANDS = 16
"""Number of grades above which they are codes of several releases together, which have no order."""
_MAX_SAMPLED_ROWS = 1 << 17
"""Maximum number of rows from which the thresholds of numbers are computed."""
_MAX_CELLS = 1 << 18
"""Maximum number of cells, attributes times grades, that are computed at once."""
_MAX_DAYS = 700_000
"""Days before or after 1970 that are written as a date: 1,900 years."""


def grade_information(
    store: Store,
    encoder: Encoder,
    grades: npt.NDArray[np.int64],
    epsilon: float | None,
    bands: int,
    of: Literal["labels", "columns"] = "labels",
) -> Carried:
    """What drawn grades carry of each column: of frequent values, parts of numbers (`cut_points`), and sets of both.

    What two columns say only together is not computed. Of an attribute of fewer than `MIN_ATTRIBUTE_ROWS` rows it is
    what is carried beyond chance, and of up to twice as many a falling part of chance is taken off.

    The attributes are of the encoded columns; an image has none. Of an attribute a and a grade g the information is
    exactly that of the table of both, the noise included, not an estimate by a model.

    Args:
        store: Encoded columns of all rows that are released.
        encoder: Encoder of the columns, for the names of their values.
        grades: Grade of each row before it is drawn, int64 (n,).
        epsilon: Privacy of a draw; `None` without noise.
        bands: Number of grades.
        of: What the grades are fitted to.
    """
    from scipy.special import chdtri  # scipy.stats takes half a second to import

    noise = draw_channel(epsilon, bands)
    sizes = np.bincount(grades, minlength=bands).astype(np.float64)
    least = min_attribute_rows(sizes.sum())
    chance = chdtri(bands - 1, MAX_CHANCE) / (2 * np.log(2) * sizes.sum())  # bits, by Wilks 1938
    best: dict[str, CarriedAttribute] = {}
    for column, names, counts in count_attributes(store, encoder, grades, bands):
        have = counts.sum(axis=1)
        few = np.minimum(have, sizes.sum() - have)
        some = np.flatnonzero(few >= min(MIN_RARE_ROWS, least))
        if not len(some):
            continue
        known, entropy = information_of(sizes, counts[some], [noise])
        share = np.minimum(known / entropy, 1.0)  # a last bit more would exceed a limit of 1
        # Faded out, so that no single row decides by a step whether a limit is exceeded.
        by_chance = np.clip(2 - few[some] / least, 0.0, 1.0) * np.minimum(chance / entropy, 1 - 1e-9)
        share = np.maximum((share - by_chance) / (1 - by_chance), 0.0)
        known = share * entropy
        most = int(share.argmax())
        if column not in best or share[most] > best[column].share:
            at = some[most]
            best[column] = CarriedAttribute(
                column=column, attribute=names[at], rows=have[at] / sizes.sum(), bits=known[most], share=share[most]
            )
    ordered = tuple(sorted(best.values(), key=lambda each: -each.share))
    return Carried(
        of=of, grades=bands, epsilon=epsilon, bits=drawn_bits(epsilon, sizes / sizes.sum()), attributes=ordered
    )


def without_chance(found: Carried, rows: int) -> Carried:
    """What is carried at least of rows that are some of many: limits are exceeded by them all, not by their choice.

    What so many rows say by chance, three standard deviations of a noncentral chi-squared distribution, is taken from
    each share, and half of what is missing in all at most: what tells all of an attribute does so by no chance.

    Args:
        found: What grades carry of these rows.
        rows: Number of rows.
    """
    freedom, scale = found.grades - 1, 2 * np.log(2) * rows

    def lowered(each: CarriedAttribute) -> CarriedAttribute:
        chance = freedom + 3 * np.sqrt(2 * (freedom + 2 * scale * each.bits))
        by_chance = chance / scale * each.share / each.bits if each.bits else 0.0
        return each.model_copy(update={"share": max(0.0, each.share - min(by_chance, 2 * (1 - each.share)))})

    return found.model_copy(update={"attributes": tuple(map(lowered, found.attributes))})


def min_attribute_rows(rows: float) -> float:
    """Number of rows that must have an attribute, and that must lack it, of so many rows."""
    return min(MIN_ATTRIBUTE_ROWS, max(1.0, MIN_ATTRIBUTE_SHARE * rows))


def information_of(sizes: Floats, counts: Floats, channels: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Information that drawn grades have about attributes, and their entropies, both in bits a row, float64 (a,).

    Args:
        sizes: Number of rows of each grade, or of the grades of each release, (bands of the first, ...).
        counts: As `sizes`, of the rows that have each attribute, (a, bands of the first, ...).
        channels: Channel of each release; none for the grades before they are drawn.
    """
    have = np.moveaxis(counts, 0, -1)
    drawn = joint_after_draws(np.stack([sizes[..., None] - have, have], axis=-1), channels)
    share = counts.reshape(len(counts), -1).sum(axis=1) / sizes.sum()
    entropy = -share * np.log2(share) - (1 - share) * np.log2(1 - share)
    return information_of_each(drawn.reshape(-1, len(counts), 2)), entropy


def count_attributes(
    store: Store, encoder: Encoder, grades: npt.NDArray[np.int64], bands: int, rows: npt.NDArray[np.int64] | None = None
) -> Iterator[tuple[str, list[str], Floats]]:
    """Columns, some attributes of each in words, and how many rows of each grade have them, float64 (a, bands).

    Args:
        store: Encoded columns.
        encoder: Their encoder.
        grades: Grade of each of the rows, int64 (m,).
        bands: Number of grades.
        rows: The rows, ascending, int64 (m,); all of the store by default.
    """
    categories, numbers = encoder.categories, encoder.numbers
    count = len(grades)
    some = np.linspace(0, count - 1, min(count, _MAX_SAMPLED_ROWS)).astype(np.int64)
    some = some if rows is None else rows[some]
    sampled = store.named_columns(torch.from_numpy(some))[1].numpy()
    cuts = [cut_points(sampled[:, at]) for at in range(len(numbers))]
    fine = [cut_points(sampled[:, at], _FINE_QUANTILES) for at in range(len(numbers))]
    of_codes = [np.zeros((2, encoder.cardinality, bands)) for encoder in categories]
    of_parts = [np.zeros((2, len(cut) + 1, bands)) for cut in fine]
    for start, end in chunks_of(count):
        at_once = torch.arange(start, end) if rows is None else torch.from_numpy(rows[start:end])
        codes, values = (part.numpy() for part in store.named_columns(at_once))
        grade = grades[start:end]
        for at, halves in enumerate(of_codes):
            for half, table in enumerate(halves):
                _add_counts(table, codes[half::2, at], grade[half::2])
        for at, halves in enumerate(of_parts):
            part = np.searchsorted(fine[at], values[:, at], side="right")
            for half, table in enumerate(halves):
                _add_counts(table, part[half::2], grade[half::2])
    for category, halves in zip(categories, of_codes, strict=True):
        table = halves.sum(axis=0)
        present, sets = np.flatnonzero(table.sum(axis=1)), _sets_of_values(halves)
        names = [f"{category.name} = {_category_text(category, int(code))}" for code in present]
        names += [f"{category.name} in a set of its values"] * len(sets)
        yield from _in_batches(category.name, names, np.concatenate([table[present], sets]))
    for number, cut, parts, halves in zip(numbers, cuts, fine, of_parts, strict=True):
        table = np.add.reduceat(halves.sum(axis=0), np.r_[0, np.searchsorted(parts, cut) + 1], axis=0)
        ends = _interval_ends(number.restored(cut), encoder.types.get(number.name, ""))
        upper, sets = table[::-1].cumsum(axis=0)[::-1][1:], _sets_of_values(halves)
        # What a threshold cannot say: a value of a few, or numbers in the middle.
        names = [f"{number.name} from {low} to below {high}" for low, high in pairwise(ends)]
        names += [f"{number.name} in its upper {100 * part:.0f} %" for part in upper.sum(axis=1) / max(table.sum(), 1)]
        # What no one part tells: ages of every other decade.
        names += [f"{number.name} in a set of intervals"] * len(sets)
        yield from _in_batches(number.name, names, np.concatenate([table[1:-1], upper, sets]))


def _interval_ends(ends: Floats, kind: str) -> list[str]:
    """Ends of intervals in words; days since 1970 as dates, where `type_word` calls the column so.

    >>> _interval_ends(np.array([19358.5, 2.0]), "date"), _interval_ends(np.array([19358.5]), "number")
    (['2023-01-02', '1970-01-03'], ['1.936e+04'])
    """
    if kind == "date" and np.abs(ends).max(initial=0) < _MAX_DAYS:
        return [str(np.datetime64(int(np.floor(end + 0.5)), "D")) for end in ends]
    return [f"{end:.4g}" for end in ends]


def _in_batches(column: str, names: list[str], counts: Floats) -> Iterator[tuple[str, list[str], Floats]]:
    """Attributes of a column, so many at once that what is computed of them takes little memory."""
    step = max(1, _MAX_CELLS // counts.shape[1])
    for start in range(0, len(names), step):
        yield column, names[start : start + step], counts[start : start + step]


def cut_points(values: npt.NDArray[np.float32], levels: Floats = _QUANTILES) -> npt.NDArray[np.float32]:
    """Where a number is divided into parts: at quantiles, and before and after each frequent value.

    Of a number that nearly always is one value, such as a flag or a count, most quantiles are that value: only by the
    values themselves the few other rows are an attribute.

    Args:
        values: (n,), n > 0.
        levels: Shares of the rows at which it is divided.

    Returns:
        Least value of each part but the first, ascending, (cuts,).

    >>> cut_points(np.array([0.0] * 95 + [1.0] * 3 + [5.0] * 2, np.float32)).tolist()
    [1.0, 5.0]
    """
    distinct, counts = np.unique(values, return_counts=True)
    frequent = np.flatnonzero(counts >= _FREQUENT_SHARE * len(values))
    at = np.r_[np.searchsorted(distinct, np.quantile(values, levels)), frequent, frequent + 1]
    cuts: npt.NDArray[np.float32] = distinct[np.unique(at[(at > 0) & (at < len(distinct))])]
    return cuts


def _sets_of_values(halves: Floats) -> Floats:
    """Rows of each grade whose value is in a set of those that grades tell best, float64 (sets, bands).

    No value of many that are rare is an attribute, but a label owner may choose labels by a set of them, or by every
    other part of a number. Whether a value of one half of the rows is in a set follows from the other half, so that
    chance tells nothing of rare values.

    Args:
        halves: Rows of each value and grade, of each half of the rows, (2, values, bands).
    """
    keys = _axis_keys(halves) if halves.shape[2] > MAX_ORDERED_BANDS else _band_keys(halves)
    counts = np.zeros((keys.shape[2], len(_SET_SHARES), halves.shape[2]))
    for key in range(keys.shape[2]):
        for own, other in ((0, 1), (1, 0)):
            order = np.argsort(-keys[own, :, key], kind="stable")
            upto = halves[own].sum(axis=1)[order].cumsum()
            at = np.minimum(np.searchsorted(upto, _SET_SHARES * upto[-1]), len(order) - 1)
            counts[key] += halves[other][order].cumsum(axis=0)[at]
    return counts.reshape(-1, halves.shape[2])


def _band_keys(halves: Floats) -> Floats:
    """How often each value has each grade, or one from it on, of each half of the rows, (2, values, keys)."""
    bands = halves.shape[2]
    mean = halves.sum(axis=(0, 1)) / max(halves.sum(), 1)
    shares = (halves + mean) / (halves.sum(axis=2) + 1)[:, :, None]  # of a value of few rows nearly those of all
    above = shares[:, :, ::-1].cumsum(axis=2)[:, :, ::-1]
    return np.concatenate([above[:, :, 1:], shares] if bands > 2 else [above[:, :, 1:]], axis=2)


def _axis_keys(halves: Floats) -> Floats:
    """The leading axes of values by grades (correspondence analysis), of each half of the rows, (2, values, axes).

    Of the grades of several releases there are too many for a key each, and they have no order.
    """
    mean = halves.sum(axis=(0, 1)) / max(halves.sum(), 1)
    rows = halves.sum(axis=2, keepdims=True)
    residuals = (halves - rows * mean) / np.sqrt(rows * mean + 1)
    axes, both = np.random.default_rng(0).normal(size=(halves.shape[2], _MAX_AXES)), residuals.sum(axis=0)
    for _ in range(5):
        axes = np.linalg.qr(both.T @ (both @ axes))[0]
    keys: Floats = residuals @ axes / np.sqrt(rows + 1)
    return keys


def _add_counts(table: Floats, lines: npt.NDArray[np.integer], grades: npt.NDArray[np.int64]) -> None:
    """Add the number of rows of each line and grade to a table (lines, grades)."""
    cells = lines.astype(np.int64) * table.shape[1] + grades
    table += np.bincount(cells, minlength=table.size).reshape(table.shape)


def _category_text(category: object, code: int) -> str:
    if code < FIRST_VALUE_CODE:
        return "missing" if code == 0 else "another value"
    if isinstance(category, CategoryEncoder) and not category.hashed:
        return category.values[code - FIRST_VALUE_CODE]
    return f"code {code}"
