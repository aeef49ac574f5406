"""Cross-validation of candidates, and the weights of their average."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.kernels.statistics.tweedie import least_loss, log_link_loss, log_link_slope
from cutlayer.models.top_estimators.linear import constant_model
from cutlayer.models.top_estimators.result import Candidate
from cutlayer.models.top_estimators.rows import FitRows, FittedPart, Floats, Integers
from cutlayer.problem.task import Task

FitPart = Callable[[FitRows, int], FittedPart]
"""Fits a model to rows, with a seed."""

AVERAGE, OWN_COLUMNS = "average", "own columns"
MIN_WEIGHT = 0.1
"""Weight in the average below which a candidate is left out."""
MAX_ROWS = 16_000
"""Maximum number of rows that candidates are chosen on."""
_GROUPS = 5
_CLEAR_STANDARD_ERRORS = 3.0
"""Standard errors of its mean loss that a candidate is behind the best in the first fold to be ruled out by it."""
_MIN_JUDGING = 50
"""Minimum number of scored rows of a fold that rules out a candidate."""


@dataclass(frozen=True)
class Choice:
    """Choice by cross-validation.

    Attributes:
        chosen: Name of a candidate, or `average_predictions`.
        candidates: Every candidate, and their average if there are several.
        weights: Weight of each candidate of the model, by name, above 0 and 1 in all.
        folds: Number of folds; 1 if a fifth was held out once.
        held_out: What the choice predicts of rows that are left out of its fit.
    """

    chosen: str
    candidates: tuple[Candidate, ...]
    weights: Mapping[str, float]
    folds: int
    held_out: HeldOut


@dataclass(frozen=True)
class HeldOut:
    """Predictions of rows by models that were not fitted to them.

    Attributes:
        rows: Numbers of the rows, (m,), each once, among those that candidates are chosen on.
        predictions: As of `FittedPart.predicted`, (m, outputs).
    """

    rows: Integers
    predictions: Floats

    def of(self, rows: Integers) -> Floats:
        """Predictions of some of these rows, by their numbers."""
        order = np.argsort(self.rows)
        return self.predictions[order[np.searchsorted(self.rows, rows, sorter=order)]]


def folds_of(rows: int) -> int:
    """Number of folds for so many rows; 1 stands for a fifth held out once."""
    return 5 if rows < 500 else 3 if rows <= 10_000 else 1


def fit_part(fit: FitPart, rows: FitRows, seed: int) -> FittedPart:
    """Fit a candidate; without a column, or with one class alone, there is nothing to learn but the shares."""
    columns = rows.codes.shape[1] + rows.numbers.shape[1]
    is_zero = rows.power is not None and not rows.targets.any()
    if not columns or len(rows) < 2 or (rows.classes and len(rows.present) < 2) or is_zero:
        return constant_model(rows)
    return fit(rows, seed)


def choose_candidates(
    rows: FitRows,
    labels: Tensor,
    task: Task,
    fits: Mapping[str, FitPart],
    folds: int | Literal["auto"],
    seed: int,
    scored: npt.NDArray[np.bool_],
    groups: Integers | None = None,
    own: HeldOut | None = None,
) -> Choice:
    """Try candidates on held-out rows, and weigh them.

    The weights of the average are those of the least loss on the held-out rows. Its own score is of weights from the
    other rows, so that it competes on equal terms; where it predicts no better than the best candidate, that one is
    chosen.

    The first of several folds rules a candidate out, which is then not fitted again, if the average has no use for it
    there and its mean loss is above that of the best by more than 3 standard errors of the difference.

    Args:
        rows: Training rows.
        labels: Their labels, as the task's metrics take them.
        task: Task, for its headline metric.
        fits: Candidates by name.
        folds: Number of folds, or `auto` by the number of rows.
        seed: Seed of folds and fits.
        scored: Which rows scores are taken of, (n,): at least one; candidates are fitted to others as well.
        groups: Group of each row, (n,), which no fold divides; `None` where each row is one.
        own: What a choice among models of some of the columns predicts, by the same seed, rows and groups: one more
            candidate, `own columns`, unless its metric is behind another's by more than an error: noise on a partner's
            columns can make the loss of a better ranking greater. Columns that add nothing then have little weight.
    """
    count = folds_of(len(rows)) if folds == "auto" else folds
    if len(rows) > MAX_ROWS:
        some = _sample_rows(len(rows), groups if task.target == "ranking" else None, seed)
        rows = rows.take(some)
        labels = labels[torch.from_numpy(some)]
        scored = scored[some]
        groups = None if groups is None else groups[some]
    parts = fold_parts(rows, groups, max(count, _GROUPS) if count == 1 else min(count, len(rows)), seed)
    left_out = parts[:1] if count == 1 else parts
    held = [part[scored[part]] for part in left_out]
    if not sum(map(len, held)):
        held = left_out
    first = _HeldOutRows(rows.take(held[0]), labels[torch.from_numpy(held[0])], task, [np.arange(len(held[0]))])
    whole, seconds, ruled_out = _held_out_predictions(rows, fits, left_out, held, first, seed)
    if own is not None:
        whole[OWN_COLUMNS] = np.concatenate([own.of(judged) for judged in held])
    order = np.concatenate(held)
    held_out = _HeldOutRows(rows.take(order), labels[torch.from_numpy(order)], task, _groups(held))
    results = {name: (first if name in ruled_out else held_out).score(part) for name, part in whole.items()}
    left = {name: part for name, part in whole.items() if name not in ruled_out}
    if _is_own_behind(results):
        del left[OWN_COLUMNS]
    chosen, weights, best = _chosen(held_out, left, results)
    shown = {**weights, AVERAGE: float(chosen == AVERAGE)}
    candidates = tuple(
        Candidate(
            name=name,
            score=_finite_or_none(score),
            error=_finite_or_none(error),
            loss=loss,
            weight=shown.get(name, 0.0),
            ruled_out=name in ruled_out,
            seconds=seconds.get(name, 0.0),
        )
        for name, (score, error, loss) in results.items()
    )
    return Choice(chosen, candidates, weights, count, HeldOut(order, best))


def _held_out_predictions(
    rows: FitRows,
    fits: Mapping[str, FitPart],
    left_out: Sequence[Integers],
    held: Sequence[Integers],
    first: _HeldOutRows,
    seed: int,
) -> tuple[dict[str, Floats], dict[str, float], Collection[str]]:
    """Each candidate's predictions of the judged rows of each fold, its seconds, and those that the first ruled out.

    Args:
        rows: Training rows.
        fits: Candidates by name.
        left_out: Rows of each fold, which no candidate is fitted to.
        held: Those of them that are judged.
        first: The judged rows of the first fold.
        seed: Seed of the fits.
    """
    predictions: dict[str, list[Floats]] = {name: [] for name in fits}
    seconds = dict.fromkeys(fits, 0.0)
    ruled_out: Collection[str] = ()
    for fold, (out, judged) in enumerate(zip(left_out, held, strict=True)):
        train = rows.take(np.setdiff1d(np.arange(len(rows)), out))
        for name in (name for name in fits if name not in ruled_out):
            began = time.perf_counter()
            predictions[name].append(fit_part(fits[name], train, seed).predicted(rows.take(judged)))
            seconds[name] += time.perf_counter() - began
        if not fold and len(held) > 1:
            ruled_out = first.hopeless({name: predictions[name][0] for name in fits})
            predictions |= {name: predictions[name][:1] for name in ruled_out}
    return {name: np.concatenate(parts) for name, parts in predictions.items()}, seconds, ruled_out


def _sample_rows(rows: int, groups: Integers | None, seed: int) -> Integers:
    """Numbers of `MAX_ROWS` rows, ascending; where groups are ranked, of the rows of whole groups, about as many."""
    draw = np.random.default_rng(seed)
    if groups is None:
        return np.sort(draw.choice(rows, MAX_ROWS, replace=False))
    names, sizes = np.unique(groups, return_counts=True)
    order = draw.permutation(len(names))
    upto = np.cumsum(sizes[order])
    return np.flatnonzero(np.isin(groups, names[order[: max(1, np.searchsorted(upto, MAX_ROWS, side="right"))]]))


def _is_own_behind(results: Mapping[str, tuple[float, float, float]]) -> bool:
    """Whether the metric of own columns alone is behind the best of the others by more than its error."""
    if OWN_COLUMNS not in results:
        return False
    metric, error, _ = results[OWN_COLUMNS]
    best = max((score for name, (score, _, _) in results.items() if name != OWN_COLUMNS), default=math.nan)
    return metric + (error if math.isfinite(error) else 0.0) < best


def _chosen(
    scored: _HeldOutRows, predictions: Mapping[str, Floats], results: dict[str, tuple[float, float, float]]
) -> tuple[str, Mapping[str, float], Floats]:
    """Name of the best candidate, or of the average, whose scores are added to the results; weights; predictions."""
    best = min(predictions, key=lambda name: results[name][2])
    if len(predictions) > 1:
        every = list(predictions.values())
        crossed = scored.crossed(every)
        results[AVERAGE] = scored.score(crossed)
        if results[AVERAGE][2] < results[best][2]:
            found = scored.weights(every, np.arange(len(scored.rows)))
            return AVERAGE, {name: float(w) for name, w in zip(predictions, found, strict=True) if w > 0}, crossed
    return best, {best: 1.0}, predictions[best]


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def average_predictions(predictions: Sequence[Floats], weights: Floats, classes: int) -> Floats:
    """The weighted mean of probabilities, as log probabilities; or of values."""
    stacked = np.stack(predictions)
    if not classes:
        return np.tensordot(weights, stacked, 1)
    tiny = np.finfo(np.float64).tiny
    mixed: Floats = np.log(np.maximum(np.tensordot(weights, np.exp(stacked), 1), tiny))
    return mixed


@dataclass(frozen=True)
class _HeldOutRows:
    """Held-out rows.

    Attributes:
        rows: The rows.
        labels: Their labels.
        task: Task.
        groups: Row numbers of each group whose score is taken.
    """

    rows: FitRows
    labels: Tensor
    task: Task
    groups: Sequence[Integers]

    def score(self, predicted: Floats) -> tuple[float, float, float]:
        """Mean metric, its standard error, and loss."""
        scores = np.array([self._metric(predicted[group], group) for group in self.groups])
        known = scores[np.isfinite(scores)]
        error = float(known.std(ddof=1) / np.sqrt(len(known))) if len(known) > 1 else float("nan")
        return float(known.mean()) if len(known) else float("nan"), error, self.loss(predicted)

    def _metric(self, predicted: Floats, group: Integers) -> float:
        labels = self.labels[torch.from_numpy(group)]
        return float(self.task.evaluate(logits_of(torch.from_numpy(predicted), self.task), labels)[self.task.metric])

    def loss(self, predicted: Floats) -> float:
        """Log loss, root mean squared error in the unit of the labels, or half the mean deviance on the log link."""
        mean = float(np.average(self._losses(predicted), weights=self.rows.weights))
        return mean if self.rows.classes or self.rows.power else mean**0.5 * self.task.scale

    def _losses(self, predicted: Floats) -> Floats:
        targets = self.rows.targets
        if self.rows.power is not None:
            least: Floats = least_loss(torch.from_numpy(targets), self.rows.power).numpy()
            return _log_link_losses(predicted[:, 0], self.rows, log_link_loss) - least
        if not self.rows.classes:
            squares: Floats = np.square(predicted[:, 0] - targets)
            return squares
        losses: Floats = -predicted[np.arange(len(targets)), targets]
        return losses

    def hopeless(self, predictions: Mapping[str, Floats]) -> Collection[str]:
        """Names of predictions without a weight in the average whose mean loss is clearly above the least."""
        if len(self.rows) < _MIN_JUDGING:
            return ()
        losses = {name: self._losses(predicted) for name, predicted in predictions.items()}
        best = min(predictions, key=lambda name: self.loss(predictions[name]))
        weights = self.weights(list(predictions.values()), np.arange(len(self.rows)))
        return [
            name
            for name, weight in zip(predictions, weights, strict=True)
            if not weight and self._is_clear(losses[name] - losses[best])
        ]

    def _is_clear(self, differences: Floats) -> bool:
        """Whether the mean of the rows' differences is above 0 by more than its error explains."""
        weighted = differences if self.rows.weights is None else differences * self.rows.weights
        return bool(weighted.mean() > _CLEAR_STANDARD_ERRORS * weighted.std() / math.sqrt(len(weighted)))

    def crossed(self, predictions: Sequence[Floats]) -> Floats:
        """The average, in each group with the weights from the other groups."""
        result = np.empty_like(predictions[0])
        for group in self.groups:
            others = np.setdiff1d(np.arange(len(self.rows)), group)
            found = self.weights(predictions, others if len(others) else group)
            result[group] = average_predictions([each[group] for each in predictions], found, self.rows.classes)
        return result

    def weights(self, predictions: Sequence[Floats], rows: Integers) -> Floats:
        """The weights, 0 or more and 1 in all, of the least loss on some of the rows."""
        return weights_of([each[rows] for each in predictions], self.rows.take(rows))


def weights_of(predictions: Sequence[Floats], rows: FitRows) -> Floats:
    """The weights of an average, (k,), 0 or more and 1 in all, of the least loss on rows.

    Args:
        predictions: Log probabilities of the classes, or values, of each of k models, (n, outputs).
        rows: Rows that the models were not fitted to.
    """
    given = np.ones(len(rows)) if rows.weights is None else rows.weights
    targets = rows.targets
    if rows.classes:
        found = _mixture(np.exp([each[np.arange(len(rows)), targets] for each in predictions]), given)
    elif rows.power is not None:
        found = _log_link(np.stack([each[:, 0] for each in predictions]), rows, given)
    else:
        found = _least_squares(np.stack([each[:, 0] - targets for each in predictions]), given)
    found = np.where(found < MIN_WEIGHT, 0.0, found)
    shares: Floats = found / found.sum()
    return shares


def _mixture(likelihoods: Floats, weights: Floats) -> Floats:
    """Weights of a mixture (k,) of the greatest likelihood, given that of each row under each part (k, n)."""

    def loss(shares: Floats) -> tuple[float, Floats]:
        mixed = np.maximum(shares @ likelihoods, np.finfo(np.float64).tiny)
        return -float(np.average(np.log(mixed), weights=weights)), -(likelihoods / mixed) @ weights / weights.sum()

    return _least_loss_shares(loss, len(likelihoods))


def _log_link(logarithms: Floats, rows: FitRows, weights: Floats) -> Floats:
    """Weights (k,) of the least deviance of the mean of predicted logarithms (k, n)."""

    def loss(shares: Floats) -> tuple[float, Floats]:
        mixed = shares @ logarithms
        slopes = _log_link_losses(mixed, rows, log_link_slope)
        mean = float(np.average(_log_link_losses(mixed, rows, log_link_loss), weights=weights))
        return mean, logarithms @ (weights * slopes) / weights.sum()

    return _least_loss_shares(loss, len(logarithms))


def _log_link_losses(logarithms: Floats, rows: FitRows, of: Callable[[Tensor, Tensor, float], Tensor]) -> Floats:
    return of(torch.from_numpy(logarithms), torch.from_numpy(rows.targets), rows.power or 1.0).numpy()


def _least_squares(errors: Floats, weights: Floats) -> Floats:
    """Weights (k,) of the least mean square of the weighted errors (k, n)."""
    products = (errors * weights) @ errors.T / weights.sum()
    products /= max(np.abs(products).max(), np.finfo(np.float64).tiny)
    return _least_loss_shares(lambda shares: (float(shares @ products @ shares), 2 * products @ shares), len(errors))


def _least_loss_shares(loss: Callable[[Floats], tuple[float, Floats]], count: int) -> Floats:
    """Shares (count,), 0 or more and 1 in all, of the least convex loss, which comes with its gradient.

    On drawn labels the losses of models hardly differ, and steps of a fixed length would not leave the start.
    """
    from scipy.optimize import minimize

    start, whole = np.full(count, 1 / count), {"type": "eq", "fun": lambda shares: shares.sum() - 1}
    options = {"bounds": [(0, 1)] * count, "constraints": whole, "options": {"ftol": 1e-12}}
    found = np.maximum(minimize(loss, start, jac=True, method="SLSQP", **options).x, 0.0)
    shares: Floats = found / found.sum()
    return shares


def fold_parts(rows: FitRows, groups: Integers | None, count: int, seed: int) -> list[Integers]:
    """Disjoint parts of the row numbers; every part has its share of each class, and of each range of a target.

    Of groups every part has its share of these instead.
    """
    if groups is not None:
        names, of_rows = np.unique(groups, return_inverse=True)
        part = np.random.default_rng(seed).permutation(len(names))[of_rows] % min(count, len(names))
        return [np.flatnonzero(part == number) for number in range(min(count, len(names)))]
    order = np.random.default_rng(seed).permutation(len(rows))
    if rows.classes:
        order = order[np.argsort(rows.targets[order], kind="stable")]
    return [np.sort(order[start::count]) for start in range(count)]


def _groups(held: Sequence[npt.NDArray[np.int64]]) -> list[Integers]:
    """Positions, among the held-out rows, of each fold; of a single one, of five parts."""
    sizes = np.array([len(part) for part in held])
    if len(held) > 1:
        starts = np.cumsum(sizes) - sizes
        return [np.arange(start, start + size) for start, size in zip(starts, sizes, strict=True) if size]
    return [np.arange(start, sizes[0], _GROUPS) for start in range(min(_GROUPS, int(sizes[0])))]


def logits_of(predicted: Tensor, task: Task) -> Tensor:
    """Logits (n, outputs) from log probabilities (n, classes) or values (n, 1)."""
    return predicted[:, 1:] - predicted[:, :1] if task.kind == "binary" else predicted
