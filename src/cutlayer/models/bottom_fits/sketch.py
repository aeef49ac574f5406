"""A random sketch of the encoded columns, as the weights of a linear bottom model; any number of codes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.errors import ConfigError
from cutlayer.lazy import Tensor, torch
from cutlayer.models.bottom_fits.base import Batch, Fit, TrainingColumns

if TYPE_CHECKING:
    from cutlayer.models.base import BottomModel
    from cutlayer.models.linear import LinearBottom


class SketchFit(FrozenModel):
    """A random rotation of numbers and log counts, and a sum of random vectors, one for each frequent category.

    The log counts are the logarithms of each category's count. Nothing is trained, and columns may have any number of
    categories (docs/how-to/protect-labels.md).

    Attributes:
        min_count: Number of training rows from which a category has a vector of its own.
        numbers: Whether the numbers themselves are in it. Without them their quantiles are, if the party's
            `features.numbers.quantiles` asks for these, and only the interval of a number is released.
        map: `rotation` mixes all columns. `permutation` sends each number, log count and frequent category in a column
            of its own, in a random place and with a random sign.
    """

    kind: Literal["sketch"] = "sketch"
    min_count: int = Field(default=3, ge=1, le=2**31)
    numbers: bool = True
    map: Literal["rotation", "permutation"] = "rotation"


_CHUNK = 8192


def fit_sketch(settings: SketchFit, bottom: BottomModel, columns: TrainingColumns) -> tuple[float, ...]:
    """Set a linear bottom model to a random rotation of the numbers, the categories' log counts and a category sketch.

    Numbers, and log(1 + count) of each row's category in each categorical column, are standardised over the training
    rows. The category sketch of a row is the sum of a fixed random vector for each of its categories that `min_count`
    training rows or more share. Over all these categories the vectors have orthogonal columns: with no more categories
    than columns they are the one-hot columns, rotated. It has the columns that numbers and log counts leave of the cut,
    and a quarter of the cut at least. Numbers, log counts and category sketch, side by side, are multiplied by a
    random matrix: a rotation where they have the cut's width, a projection where they have more columns.

    Without `numbers`, they are left out, and a party whose numbers have quantiles releases these alone.

    With `map: permutation` nothing is mixed: each number, each log count and each category has a column of its own, in
    a random place and with a random sign; of more categories than columns are left, the most frequent have one.

    The embedding has mean 0 and mean square 1 over the training rows. Rows that were not seen in the fit are embedded
    likewise; an unknown category has a count of 0, and no vector.

    All random numbers are drawn from the party's own random state. The map is affine in numbers and one-hot
    categories, and hides no feature, also from a receiver who knows no row (docs/results/release-forms.md). It finds
    one-hot columns by their two values, in the span of a rotation too, and whole numbers of a permutation, up to an
    offset, as the lattice of a public scale. How columns are distributed names them. With the columns of as many rows
    as the cut is wide it solves for the whole map.

    Returns:
        Nothing: there is no loss.

    Raises:
        ConfigError: Another kind of bottom model, columns that are all constant, or more numbers and categorical
            columns than a permutation has places for.

    Reference: Weinberger et al. 2009, Feature hashing for large scale multitask learning (arXiv 0902.2206), for sums of
    random vectors as a stand-in for one-hot columns; Dasgupta 2000, Experiments with random projection, for the turn.
    The combination is this project's.
    """
    from cutlayer.models.linear import LinearBottom

    if not isinstance(bottom, LinearBottom):
        raise ConfigError.expected("a bottom model of kind linear for fit sketch", type(bottom).__name__)
    counts, owner = _counts(columns), _owner(columns)
    logs = counts.log1p()
    scales = _log_count_scales(columns, counts, logs, owner)
    if settings.numbers:
        scales = torch.cat([_number_scales(columns), scales])
    if settings.map == "permutation":
        weights = _permuted(counts, settings.min_count, logs, owner, scales, bottom.width)
    else:
        weights = _weights(counts >= settings.min_count, logs, owner, scales, bottom.width)
    if not settings.numbers:
        weights = torch.cat([weights, torch.zeros(columns.inputs.numbers, bottom.width)])
    bottom.assign(weights, torch.zeros(bottom.width))
    mean, deviation = _moments(bottom, columns)
    bottom.assign(weights / deviation, -mean / deviation)
    return ()


def check_sketch(settings: SketchFit, columns: TrainingColumns) -> None:
    """Refuse columns that are all constant for a sketch, before it is fitted.

    Training rows are read until it is known that a number or a category with a vector varies: of most tables one chunk.

    Raises:
        ConfigError: No number, log count or category of `min_count` rows or more varies over the training rows.
    """
    first = None
    seen = 0
    counts = torch.empty(0)
    for counts, numbers in _running_counts(columns):
        first = numbers[:1] if first is None else first
        seen = seen + len(numbers)
        if settings.numbers and bool((numbers != first).any()):
            return
        if bool(((counts >= settings.min_count) & (counts < seen)).any()):
            return
    if not _log_count_scales(columns, counts, counts.log1p(), _owner(columns)).any():
        raise _constant()


def orthogonal(rows: int, columns: int) -> Tensor:
    """A uniformly random matrix (rows, columns) whose columns are orthonormal, or its rows if there are fewer."""
    q, r = torch.linalg.qr(torch.randn(max(rows, columns), min(rows, columns)))
    matrix: Tensor = q * torch.where(r.diag() < 0, -1.0, 1.0)
    return matrix if rows >= columns else matrix.T


def _weights(frequent: Tensor, logs: Tensor, owner: Tensor, scales: Tensor, width: int) -> Tensor:
    """Weights of codes and numbers, float32 (codes + numbers, width), for `LinearBottom.assign`.

    Args:
        frequent: Codes with a vector, bool (codes,).
        logs: Logarithm of each code's count.
        owner: Index of the categorical column that each code is of.
        scales: Factor of each number, then of the log count of each categorical column.
        width: Number of columns of the embedding.
    """
    known = int(frequent.sum())
    dense = len(scales)
    numbers = len(scales) - (int(owner.max()) + 1 if len(owner) else 0)
    sketched = min(known, max(width - dense, math.ceil(width / 4)))
    turn = orthogonal(dense + sketched, width)
    codes = (logs * scales[numbers:][owner])[:, None] * turn[numbers:dense][owner]
    if sketched:
        # Of length 1 on average, as one-hot columns are.
        vectors = orthogonal(known, sketched) * math.sqrt(known / sketched)
        codes[frequent] += vectors @ turn[dense:]
    return torch.cat([codes, scales[:numbers, None] * turn[:numbers]])


def _permuted(counts: Tensor, min_count: int, logs: Tensor, owner: Tensor, scales: Tensor, width: int) -> Tensor:
    """`_weights` of a permutation: one column for each number, log count and frequent category.

    Raises:
        ConfigError: The embedding has fewer columns than numbers and log counts.
    """
    dense = len(scales)
    numbers = len(scales) - (int(owner.max()) + 1 if len(owner) else 0)
    if width < dense:
        wanted = f"an embedding of {dense} columns or more, for a permutation of as many columns"
        raise ConfigError.expected(wanted, width, "write a larger width in model.bottom")
    places = torch.randperm(width)
    signs = torch.randint(0, 2, (width,)) * 2.0 - 1
    turn = torch.zeros(width, width).scatter_(1, places[:, None], signs[:, None])
    codes = (logs * scales[numbers:][owner])[:, None] * turn[numbers:dense][owner]
    known = int((counts >= min_count).sum())
    frequent = counts.argsort(descending=True, stable=True)[: min(known, width - dense)]
    codes[frequent] += turn[dense : dense + len(frequent)]
    return torch.cat([codes, scales[:numbers, None] * turn[:numbers]])


def _counts(columns: TrainingColumns) -> Tensor:
    """Training rows of each code, float32 (codes,), all columns one after the other."""
    counts = torch.empty(0)
    for so_far, _ in _running_counts(columns):
        counts = so_far
    return counts.float()


def _running_counts(columns: TrainingColumns) -> Iterator[Batch]:
    """After each batch, the rows of each code so far, int64 (codes,), the same tensor each time; and its numbers."""
    cards = _cardinalities(columns)
    starts = cards.cumsum(0) - cards
    total = int(cards.sum())
    counts = torch.zeros(total, dtype=torch.int64)
    for codes, numbers in _batches(columns):
        counts += torch.bincount((codes + starts).flatten(), minlength=total)
        yield counts, numbers


def _cardinalities(columns: TrainingColumns) -> Tensor:
    return torch.tensor(columns.inputs.cardinalities, dtype=torch.int64)


def _owner(columns: TrainingColumns) -> Tensor:
    """Index of the categorical column that each code is of, int64 (codes,)."""
    return torch.repeat_interleave(_cardinalities(columns))


def _number_scales(columns: TrainingColumns) -> Tensor:
    """The inverse deviation of each number over the training rows; 0 of a constant one."""
    parts = [numbers.double() for _, numbers in _batches(columns)]
    mean = torch.stack([part.sum(0) for part in parts]).sum(0) / len(columns.rows)
    square = torch.stack([(part - mean).square().sum(0) for part in parts]).sum(0) / len(columns.rows)
    return _inverse(square)


def _log_count_scales(columns: TrainingColumns, counts: Tensor, logs: Tensor, owner: Tensor) -> Tensor:
    """The inverse deviation over the training rows of the log count of each categorical column."""
    shares = counts.double() / len(columns.rows)
    sums = torch.zeros(len(columns.inputs.cardinalities), dtype=torch.float64)
    mean = sums.index_add(0, owner, shares * logs)
    return _inverse(sums.index_add(0, owner, shares * (logs - mean[owner]).square()))


def _inverse(variances: Tensor) -> Tensor:
    """One over the deviation, float32; 0 of a constant column."""
    return torch.where(variances > 1e-12, variances.clamp(min=1e-12).rsqrt(), 0.0).float()


def _moments(bottom: LinearBottom, columns: TrainingColumns) -> tuple[Tensor, Tensor]:
    """Mean of each column of the embedding, float32 (width,), and its root mean square about the mean, of all columns.

    Raises:
        ConfigError: The embedding is constant.
    """
    with torch.no_grad():
        parts = [bottom(*batch).double() for batch in _batches(columns)]
    mean = torch.stack([part.sum(0) for part in parts]).sum(0) / len(columns.rows)
    square = torch.stack([(part - mean).square().sum() for part in parts]).sum() / (len(columns.rows) * bottom.width)
    if not float(square) > 0:
        raise _constant()
    return mean.float(), square.sqrt().float()


def _constant() -> ConfigError:
    return ConfigError.expected("a column that varies over the training rows, for fit sketch", "constant ones alone")


def _batches(columns: TrainingColumns) -> Iterator[Batch]:
    for rows in torch.split(columns.rows, _CHUNK):
        yield columns.gather(rows)


SKETCH = Fit(SketchFit, fit_sketch, bottom="linear", check=check_sketch)
