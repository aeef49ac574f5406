"""What attacks on features reached: against the true features, beside an attacker that saw no embedding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from cutlayer.attacks.base import Scores
from cutlayer.attacks.feature.attribute import Inferred
from cutlayer.attacks.feature.base import Auxiliary, Reconstruction, encoded_matrix, encoded_places
from cutlayer.attacks.knowledge import AUXILIARY_ROWS
from cutlayer.audit.leak import leak_interval, leak_of
from cutlayer.audit.pictures import Picture, Rebuilt
from cutlayer.kernels.roc import true_positive_rate

_PURPOSE = 5
REPEATS = 1000
FALSE_POSITIVES = 0.01
_ROWS_AT_A_TIME = 100


@dataclass(frozen=True)
class ColumnFigure:
    """One column.

    Attributes:
        value, baseline: R2 for `inversion`; AUC for `attribute`, whose baseline is 0.5.
        mse, baseline_mse: for `inversion`, in encoded units.
        accuracy, majority: for `attribute`: of the attack, and of always answering the most frequent class.
    """

    column: str
    value: float
    baseline: float
    mse: float | None = None
    baseline_mse: float | None = None
    accuracy: float | None = None
    majority: float | None = None


@dataclass(frozen=True)
class FeatureFigure:
    """One attack on the features of one party, in one run.

    Attributes:
        run, party, attack: which. column: the one that the value is of; empty where it is of all.
        release: which release of the rows' embeddings was read.
        known: rows whose features the attacker had. rows: others, that were attacked.
        metric: of `value`, which `low` and `high` bound (95 % bootstrap over rows): `r2` or `auc`.
        baseline: the same metric of an attacker that saw no embedding.
        metrics: other metrics.
    """

    run: str
    party: str
    attack: str
    release: str
    known: int
    rows: int
    metric: str
    value: float
    low: float
    high: float
    baseline: float
    column: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    columns: tuple[ColumnFigure, ...] = ()
    pictures: tuple[Picture, ...] = ()

    @property
    def gains(self) -> bool:
        """Whether the whole interval is above the baseline."""
        return self.low > self.baseline


def auxiliary_places(rows: int, seed: int) -> Tensor:
    """Places of the auxiliary rows among `rows`, drawn at random, ascending: 1,000, or half if that is fewer."""
    draw = np.random.default_rng([seed, _PURPOSE])
    return torch.from_numpy(np.sort(draw.permutation(rows)[: min(AUXILIARY_ROWS, rows // 2)]))


def inversion_figure(
    base: FeatureFigure, made: Reconstruction, known: Auxiliary, truth: tuple[Tensor, Tensor]
) -> FeatureFigure:
    """Hold a reconstruction against the true features, beside the mean of the auxiliary rows.

    A column's R2 is one minus the squared error over the squared distance to the mean of the attacked rows; all entries
    of a category, or of an image, together. The figure's is the mean over the columns that vary.

    Args:
        base: with its run, party, attack and release.
        truth: codes and numbers of the attacked rows.
    """
    columns = known.columns
    actual = encoded_matrix(columns, *truth).double()
    mean = encoded_matrix(columns, known.codes, known.numbers).double().mean(dim=0)
    places = encoded_places(columns)
    spread = _by_column((actual - actual.mean(dim=0)).square(), places)
    errors = _by_column((made.values.double() - actual).square(), places)
    blind = _by_column((mean - actual).square(), places)
    varies = spread.sum(dim=0) > 1e-12 * len(actual)
    names = [name for name, kept in zip(places, varies.tolist(), strict=True) if kept]
    widths = torch.tensor([place.stop - place.start for place in places.values()])[varies]
    spread, errors, blind = spread[:, varies], errors[:, varies], blind[:, varies]
    reached, without = _r2(errors, spread), _r2(blind, spread)
    mse, blind_mse = errors.mean(dim=0) / widths, blind.mean(dim=0) / widths
    low, high = _r2_interval(errors, spread)
    images = Rebuilt(columns, truth[1], made.values) if columns.image else None
    entries = actual.shape[1]
    return replace(
        base,
        metric="r2",
        value=float(reached.mean()),
        low=low,
        high=high,
        baseline=float(without.mean()),
        metrics={"mse": float(errors.sum(1).mean()) / entries, "baseline_mse": float(blind.sum(1).mean()) / entries}
        | (images.figures() if images else {}),
        columns=tuple(
            ColumnFigure(name, *values)
            for name, *values in zip(
                names, reached.tolist(), without.tolist(), mse.tolist(), blind_mse.tolist(), strict=True
            )
        ),
        pictures=images.pictures() if images else (),
    )


def attribute_figures(
    base: FeatureFigure, found: Mapping[str, Inferred], truth: tuple[Tensor, Tensor], stated: str | None, seed: int
) -> list[FeatureFigure]:
    """The column that is told best, picked after the fact, and the stated one, each with the table of all columns.

    Args:
        base: with its run, party, attack and release.
        truth: codes and numbers of the attacked rows.
        stated: a column that is reported whatever it comes to; `None` for none.
    """
    columns = {name: _column(inferred, inferred.question.classes(*truth)) for name, inferred in found.items()}
    table = tuple(columns.values())
    known = [one for one in table if not math.isnan(one.value)]
    strongest = [max(known, key=lambda one: one.value).column] if known else []
    wanted = dict.fromkeys(strongest + [name for name in (stated,) if name in columns])
    figures = []
    for name in wanted:
        one, inferred = columns[name], found[name]
        low, high = _auc_interval(inferred.scores, inferred.question.classes(*truth), seed)
        further = {"accuracy": one.accuracy or 0.0, "majority": one.majority or 0.0}
        figures.append(
            replace(
                base,
                metric="auc",
                value=one.value,
                low=low,
                high=high,
                baseline=0.5,
                column=name,
                metrics=further,
                columns=table,
            )
        )
    return figures


def membership_figure(base: FeatureFigure, scores: Scores, member: Tensor, seed: int) -> FeatureFigure:
    """Hold membership scores against the truth.

    Args:
        base: with its run, party, attack and release.
        member: bool (n,), whether the row trained.
    """
    own = replace(scores, rows=torch.arange(len(member)))
    leak = leak_of(own, member)
    low, high = leak_interval(own, member, seed)
    return replace(
        base,
        metric="auc",
        value=leak.pooled_auc,
        low=low,
        high=high,
        baseline=0.5,
        metrics={
            "accuracy": leak.hard_accuracy or 0.0,
            "majority": float(max(member.double().mean(), 1 - member.double().mean())),
            "tpr_at_1_percent_fpr": true_positive_rate(scores.values, member, FALSE_POSITIVES),
        },
    )


def _by_column(squares: Tensor, places: Mapping[str, slice]) -> Tensor:
    """Squares (n, entries) summed over the entries of each column, (n, columns)."""
    return torch.stack([squares[:, place].sum(dim=1) for place in places.values()], dim=1)


def _r2(errors: Tensor, spread: Tensor) -> Tensor:
    return 1 - errors.sum(dim=0) / spread.sum(dim=0)


def _r2_interval(errors: Tensor, spread: Tensor, repeats: int = REPEATS) -> tuple[float, float]:
    """Bootstrap 95 % interval of the mean R2 over columns; rows are redrawn, the mean of each column stays."""
    draw = np.random.default_rng(0)
    n = len(errors)
    ratios = []
    for _ in range(repeats // _ROWS_AT_A_TIME):
        counts = torch.from_numpy(draw.multinomial(n, np.full(n, 1 / n), size=_ROWS_AT_A_TIME)).double()
        ratios.append((1 - (counts @ errors) / (counts @ spread).clamp_min(1e-300)).mean(dim=1))
    low, high = torch.cat(ratios).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high


def _column(inferred: Inferred, classes: Tensor) -> ColumnFigure:
    known = classes >= 0
    hard = inferred.scores.hard
    right = float("nan") if hard is None else float((hard == classes).double().mean())
    usual = float((classes == inferred.majority).double().mean())
    scores, actual = _comparable(inferred.scores, classes)
    value = leak_of(scores, actual).pooled_auc if int(known.sum()) else math.nan
    return ColumnFigure(inferred.question.column, value, 0.5, accuracy=right, majority=usual)


def _auc_interval(scores: Scores, classes: Tensor, seed: int) -> tuple[float, float]:
    return leak_interval(*_comparable(scores, classes), seed)


def _comparable(scores: Scores, classes: Tensor) -> tuple[Scores, Tensor]:
    """The rows whose class the classifier could know, and the truth about them."""
    kept = classes >= 0
    actual = classes[kept]
    chosen = replace(
        scores, rows=torch.arange(len(actual)), values=scores.values[kept], batch=scores.batch[kept], hard=None
    )
    return chosen, actual == 1 if scores.values.dim() == 1 else actual


def strongest_figures(figures: Sequence[FeatureFigure]) -> list[FeatureFigure]:
    """Of each party's and attack's figures that gain, the one farthest above its baseline."""
    best: dict[tuple[str, str], FeatureFigure] = {}
    for one in figures:
        key = one.party, one.attack
        if one.gains and (key not in best or one.value - one.baseline > best[key].value - best[key].baseline):
            best[key] = one
    return list(best.values())
