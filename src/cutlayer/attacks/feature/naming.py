"""Names and values of columns from other rows of the population, none of whose embeddings is known."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cutlayer.attacks.feature.base import MIN_ROWS, FeatureAttack, Reconstruction, encoded_matrix
from cutlayer.attacks.feature.components import components
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.errors import NotApplicable
from cutlayer.kernels.fits.two_valued import two_valued_vectors
from cutlayer.kernels.fits.whole_numbers import distinct_values
from cutlayer.lazy import torch

Matrix = npt.NDArray[np.float64]
ROUNDS = 6
"""Assignments, each by the correlations with the columns that the one before named."""
_LEVELS = np.linspace(0.005, 0.995, 100)
"""Shares at which distributions are compared."""
MAX_COST, MIN_NAMED = 0.35, 0.5
"""Cost of an assignment above which a column has no candidate: its mean is answered; and the share of the columns
below which none has one: a few agree by chance."""
_SHARE_WEIGHT, _TWO_VALUED_COST = 2.0, 0.5
"""Weight of differences of shares, and cost of taking a column of two values for one of more."""
_COST_RESOLUTION = 0.02
"""Difference of costs that tells two candidates apart."""
_CORRELATION_WEIGHT = 2.0
"""Weight of differences of correlations against those of distributions."""
_MIN_DISTINCT_SHARE = 0.1
"""Share of the rows with a value of their own above which a released column is taken for a mixture of columns."""


class Naming(FeatureAttack[Reconstruction]):
    """Name the columns of a release by their distribution and correlations in other rows, and give their values.

    Candidates are the released columns and, where these are mixtures, vectors of two values in their span and
    independent components. Each column of the table, and each level of a category, is given a candidate and a sign so
    that distributions agree, then again so that its correlations with the columns named before agree too. The scale of
    the other rows gives the values, drawn to their mean where several candidates agree as well. Rows of one population
    are enough: none has to be among those that were released.

    Where this differs from the reference: it knows a few of the attacked rows too, and one table.

    Reference: Giannella, Liu and Kargupta, Breaching Euclidean distance-preserving data perturbation using few known
    inputs (2013, arXiv 0911.2942), section 5, on known samples; Guo and Wu (PAKDD 2007) for components.
    """

    name = "naming"
    reference = "Giannella, Liu and Kargupta 2013 (arXiv 0911.2942), known samples"
    needs = frozenset({Need.OTHER_ROWS})
    live = True

    def check(self, view: FeatureView, knowledge: Knowledge) -> None:
        """Raise `NotApplicable` also for too few rows and for images."""
        super().check(view, knowledge)
        others = knowledge.population
        if min(len(others.codes), len(view.rows)) < MIN_ROWS:
            wanted = f"{MIN_ROWS} other rows or more for {self.name}, and as many to attack"
            raise NotApplicable.expected(wanted, f"{len(others.codes)} and {len(view.rows)}", "raise audit.rows")
        if others.columns.image is not None:
            raise NotApplicable.expected(f"columns without an image for {self.name}", "an image", "try inversion")

    def run(self, view: FeatureView, knowledge: Knowledge) -> Reconstruction:
        """Assign candidates, then map each to the scale of the other rows."""
        known = knowledge.population
        table = encoded_matrix(known.columns, known.codes, known.numbers).double().numpy()
        seed = int(torch.randint(2**31, ()))
        candidates = _candidates(view.embeddings.double().numpy(), np.random.default_rng(seed))
        values = np.repeat(table.mean(axis=0)[None], len(view.rows), axis=0)
        varies = np.flatnonzero(table.std(axis=0) > 1e-9)
        if candidates.shape[1] and len(varies):
            names = assign_candidates(table[:, varies], candidates)
            for index, candidate, sign, trust in zip(*names, strict=True):
                entry = varies[index]
                read = _on_scale(sign * candidates[:, candidate], table[:, entry])
                values[:, entry] += trust * (read - values[:, entry])
        return Reconstruction(view.rows, torch.from_numpy(values).float())


def _candidates(embeddings: Matrix, generator: np.random.Generator) -> Matrix:
    """Released columns; where these have hardly a value twice also what is found in their span, (n, k)."""
    varied = embeddings[:, embeddings.std(axis=0) > 1e-9]
    tied = [len(distinct_values(column)[0]) <= (1 - _MIN_DISTINCT_SHARE) * len(column) for column in varied.T]
    if np.mean(tied or [True]) >= 0.5:
        return varied
    found, _ = two_valued_vectors(embeddings, generator)
    return np.column_stack([varied, found.astype(float), components(embeddings)])


class Assignment(NamedTuple):
    """Columns of a table and their candidates.

    Attributes:
        entries: Indices of the columns, int64 (c,).
        chosen: Indices of their candidates, int64 (c,).
        signs: Signs of these, (c,).
        trust: Share of the likelihood that each candidate has among all of them, times that of its sign less that of
            the other sign, 0 to 1, (c,).
    """

    entries: npt.NDArray[np.int64]
    chosen: npt.NDArray[np.int64]
    signs: Matrix
    trust: Matrix


def assign_candidates(table: Matrix, candidates: Matrix) -> Assignment:
    """Candidates for the columns of a table (m, e) among those of other rows (n, k)."""
    from scipy.optimize import linear_sum_assignment

    own, other = _standardised(table), _standardised(candidates)
    shape = np.quantile(own, _LEVELS, axis=0).T
    shapes = np.quantile(other, _LEVELS, axis=0).T
    # A sign turns the distribution round: (2, e, k).
    marginal = np.stack([np.abs(shape[:, None] - part).mean(axis=2) for part in (shapes, -shapes[:, ::-1])])
    marginal += _two_valued_cost(table, candidates)
    within, across = own.T @ own / len(own), other.T @ other / len(other)
    cost = marginal
    for _ in range(ROUNDS):
        entries, chosen = linear_sum_assignment(cost.min(axis=0))
        signs = np.where(cost[0, entries, chosen] <= cost[1, entries, chosen], 1.0, -1.0)
        weights, named = _weights(table, marginal, entries, chosen), across[:, chosen] * signs
        rows = [(row[entries], weight) for row, weight in zip(within, weights, strict=True)]
        together = np.stack([[np.abs(row - part) @ weight for row, weight in rows] for part in (named, -named)])
        cost = marginal + _CORRELATION_WEIGHT * together
    entries, chosen = linear_sum_assignment(cost.min(axis=0))
    signs = np.where(cost[0, entries, chosen] <= cost[1, entries, chosen], 1.0, -1.0)
    own, other = within[np.ix_(entries, entries)], across[np.ix_(chosen, chosen)]
    pairs = _weights(table, marginal, entries, chosen)[entries] * (np.abs(own - other) - np.abs(own + other))
    alone = (marginal[0] - marginal[1])[entries, chosen]
    signs, sure = _signs(signs, alone / 2, _CORRELATION_WEIGHT / 2 * (pairs + pairs.T))
    # Of candidates that agree as well each is as likely; copies and complements of the one chosen are the same.
    least = cost.min(axis=0)[entries, chosen]
    odds = np.exp(np.minimum((least[:, None] - cost[:, entries]) / _COST_RESOLUTION, 1.0))
    other_one = np.abs(across[chosen]) < 0.999
    alike = (least < MAX_COST) & (np.mean(least < MAX_COST) >= MIN_NAMED)
    return Assignment(entries, chosen, signs, sure * alike / (1 + (odds * other_one).sum(axis=(0, 2))))


def _weights(table: Matrix, marginal: Matrix, entries: npt.NDArray[np.int64], chosen: npt.NDArray[np.int64]) -> Matrix:
    """Weight of each named column in the comparison of correlations of each column of the table, (e, c).

    Columns that vary more, and that are named by a closer distribution, are better to compare with. A column is not
    compared with itself: that speaks for the candidate and the sign that it has, whatever these are.
    """
    weights = np.tile(table.std(axis=0)[entries] / (0.05 + marginal.min(axis=0)[entries, chosen]), (table.shape[1], 1))
    weights[entries, np.arange(len(entries))] = 0
    return np.asarray(weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-12))


def _signs(begun: Matrix, alone: Matrix, pairs: Matrix) -> tuple[Matrix, Matrix]:
    """Signs of least cost of all columns together, and the likelihood of each less that of the other sign, (c,) each.

    Correlations tell a sign by other signs alone: columns of symmetric distributions can all have the wrong one.

    Args:
        begun: Signs to begin with, (c,).
        alone: Half of what a positive sign costs more than a negative one, by distributions, (c,).
        pairs: Half of what equal signs cost more than different ones, symmetric with zeros on the diagonal, (c, c).
    """
    sure, places = np.zeros(len(begun)), range(len(begun))
    signs, linked = begun, 2 * pairs * np.outer(begun, begun)
    for index in (*places, *places):  # once to improve them all, then for the odds
        gains = signs * (alone + pairs @ signs)  # half of what each saves on the other side
        step, order, saved = index, [], np.zeros(len(signs))
        for place in places:  # those that save most with it on the other side, one after another
            order.append(step)
            saved[place] = gains[step]
            gains -= linked[step]
            gains[step] = -np.inf
            step = int(gains.argmax())
        costs = -2 * saved.cumsum()
        turned = order[: int(costs.argmin()) + 1]
        least = costs.min()
        # Columns that go together err together: their evidence is that of one.
        sure[index] = np.tanh(abs(least) / len(turned) / (2 * _COST_RESOLUTION))
        if least < 0:
            signs = signs.copy()
            signs[turned] *= -1
            linked = 2 * pairs * np.outer(signs, signs)
    return signs, sure


def _two_valued_cost(table: Matrix, candidates: Matrix) -> Matrix:
    """What speaks against pairs of a column of the table and a candidate of which one has two values, (2, e, k).

    The square root's arc sine of a share has nearly the same error for all shares.
    """
    shares = [np.array([_share(column) for column in matrix.T]) for matrix in (table, candidates)]
    angles = [np.arcsin(np.sqrt(part)) for part in shares]
    apart = np.abs(angles[0][:, None] - np.stack([angles[1], np.pi / 2 - angles[1]])[:, None])
    one = np.isnan(angles[0])[:, None] != np.isnan(angles[1])
    return np.asarray(np.where(one, _TWO_VALUED_COST, np.nan_to_num(_SHARE_WEIGHT * apart)))


def _share(column: Matrix) -> float:
    """Share of the larger value of a column of two; NaN for other columns."""
    values, index = distinct_values(column)
    return float(index.mean()) if len(values) == 2 else float("nan")


def _on_scale(candidate: Matrix, known: Matrix) -> Matrix:
    """A candidate mapped to the scale of known values, as the quantiles of both say."""
    ends = np.unique(candidate)
    if len(ends) == 2:
        low, high = known.min(), known.max()
        return np.asarray(np.where(candidate == ends[1], high, low))
    levels = np.quantile(candidate, _LEVELS)
    if np.ptp(levels) <= 1e-9 * np.ptp(ends):  # but for a few rows it is constant
        return np.full(len(candidate), known.mean())
    slope, offset = np.polyfit(levels, np.quantile(known, _LEVELS), 1)
    return np.asarray(np.clip(offset + slope * candidate, known.min(), known.max()))


def _standardised(matrix: Matrix) -> Matrix:
    centred = matrix - matrix.mean(axis=0)
    return np.asarray(centred / np.maximum(centred.std(axis=0), 1e-12))
