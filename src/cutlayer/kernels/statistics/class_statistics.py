"""Means and variances of a batch by class, and of one class against the rest, in one pass over the rows."""

from __future__ import annotations

from dataclasses import dataclass

from cutlayer.lazy import Tensor, torch

_ROWS_AT_A_TIME = 512  # 512 KiB of float64 at width 128: a piece stays in the second-level cache
# A share of the mean square below which a variance is what rounding to float32 leaves of equal rows.
_ROUNDING = 2.0**-47


@dataclass(frozen=True, slots=True)
class ClassStatistics:
    """Moments of a batch by class, in float64.

    Attributes:
        counts: Number of rows of each class, shape (classes,).
        means: Mean row of each class, shape (classes, width); zeros where a class has no rows.
        scatter: Sum of squared distances of a class's rows from its mean, shape (classes,).
    """

    counts: Tensor
    means: Tensor
    scatter: Tensor

    @property
    def present(self) -> list[int]:
        """Codes of the classes that have rows."""
        return [int(code) for code in self.counts.nonzero()[:, 0]]


@dataclass(frozen=True, slots=True)
class Contrast:
    """One class (the positives) against the rest (the negatives), in the letters of the sumKL programme.

    Attributes:
        u: Mean variance per coordinate of the negatives.
        v: Mean variance per coordinate of the positives.
        d: Width.
        g: Squared Euclidean distance of the two means.
        p: Share of positives.
        direction: Unit vector along the difference of the means, float64 (d,); zeros where g = 0.
    """

    u: float
    v: float
    d: int
    g: float
    p: float
    direction: Tensor


def class_counts(labels: Tensor, classes: int) -> Tensor:
    """Number of rows of each class, int64 (classes,), on the device of the labels.

    Args:
        labels: int64 (n,), 0 to classes - 1.
        classes: 1 or more.

    >>> class_counts(torch.tensor([2, 0, 2]), 4).tolist()
    [1, 0, 2, 0]
    """
    return labels.new_zeros(classes).index_add_(0, labels, torch.ones_like(labels))


def class_statistics(rows: Tensor, labels: Tensor, classes: int) -> ClassStatistics:
    """Count, mean and scatter of each class, with population (1/n) moments.

    A scatter that rounding of the rows to float32 would explain counts as none.

    Args:
        rows: Floating (n, width).
        labels: int64 (n,), 0 to classes - 1.
        classes: 1 or more.
    """
    counts = class_counts(labels, classes).double()
    sums = rows.new_zeros(classes, rows.shape[1], dtype=torch.float64)
    squares = rows.new_zeros(classes, dtype=torch.float64)
    for start in range(0, len(rows), _ROWS_AT_A_TIME):
        piece = rows[start : start + _ROWS_AT_A_TIME].double()
        codes = labels[start : start + _ROWS_AT_A_TIME]
        sums.index_add_(0, codes, piece)
        squares.index_add_(0, codes, piece.square_().sum(1))
    means = sums / counts.clamp(min=1.0)[:, None]
    scatter = squares - counts * means.square().sum(1)
    return ClassStatistics(counts, means, scatter.masked_fill_(scatter <= _ROUNDING * squares, 0.0))


def one_against_rest(of: ClassStatistics, positive: int) -> Contrast:
    """Contrast one class with all other classes together.

    Args:
        of: Statistics with rows of `positive` and of another class.
        positive: The class's code.
    """
    rest = of.counts.clone()
    rest[positive] = 0.0
    negatives = float(rest.sum())
    positives = float(of.counts[positive])
    width = of.means.shape[1]
    mean = (rest @ of.means) / negatives
    within = of.scatter + of.counts * (of.means - mean).square().sum(1)
    within[positive] = 0.0
    difference = of.means[positive] - mean
    g = float(difference.square().sum())
    return Contrast(
        u=float(within.sum()) / (negatives * width),
        v=float(of.scatter[positive]) / (positives * width),
        d=width,
        g=g,
        p=positives / (positives + negatives),
        direction=difference / g**0.5 if g > 0.0 else torch.zeros_like(difference),
    )
