"""Results of attacks on features against the truth, compared with an attacker that saw no embedding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cutlayer.attacks.feature.attribute import MAX_CODES, Inferences, InferredColumn
from cutlayer.attacks.feature.base import Reconstruction, encoded_matrix, encoded_slices
from cutlayer.attacks.feature.best_guess import Guesses
from cutlayer.attacks.feature.readings import Readings
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Auxiliary, Knowledge
from cutlayer.attacks.label.base import Scores
from cutlayer.audit.features.exact_share import measure_readings
from cutlayer.audit.features.images import ImagePairs
from cutlayer.audit.leak import leak_interval, leak_of
from cutlayer.data.encoded import ColumnSpec
from cutlayer.errors import NotApplicable
from cutlayer.problem.metrics.roc import true_positive_rate
from cutlayer.results.features import ColumnValue, FeatureResult

REPEATS = 1000
"""Bootstrap replicates of an interval."""
FALSE_POSITIVE_RATE = 0.01
_REPEATS_AT_A_TIME = 100


@dataclass(frozen=True, eq=False)
class FeatureCase:
    """View and knowledge of an attack, and the truth about the attacked rows.

    Attributes:
        release: Which release of the rows' embeddings is attacked.
        view: The attacker's view.
        knowledge: What the attacker is assumed to know besides its view.
        truth: Encoded codes int32 (n, c) and numbers float32 (n, d) of the rows that are not auxiliary; or whether each
            row was a training row, bool (n,).
        column: A column that is reported whatever its value; `None` for none.
        columns: Shape and names of the party's columns; needed where the attacker knows no row.
        numbers: Numbers of the attacked rows in the units of the table, float64 (n, d).
    """

    release: str
    view: FeatureView
    knowledge: Knowledge
    truth: tuple[Tensor, Tensor] | Tensor
    column: str | None = None
    columns: ColumnSpec | None = None
    numbers: Tensor | None = None

    def identity(self) -> dict[str, Any]:
        """The release, the number of known rows and the number of attacked rows, as fields of a result."""
        shadows, auxiliary = self.knowledge.shadow_rows, self.knowledge.auxiliary_rows or self.knowledge.other_rows
        known = len(shadows.rows) if shadows else len(auxiliary.codes) if auxiliary else 0
        attacked = len(self.truth) if isinstance(self.truth, Tensor) else len(self.truth[0])
        return {"release": self.release, "known": known, "rows": attacked}


def measure_feature_attack(result: object, case: FeatureCase, about: Mapping[str, Any]) -> Iterable[FeatureResult]:
    """Measure what an attack on features returned, whichever attack it was.

    Args:
        result: What the attack returned.
        case: The attack's input, and the truth.
        about: The fields of a `FeatureResult` that say which attack on which party and run it was.

    Raises:
        NotApplicable: There is no metric for such a result in such a case.
    """
    about = {**about, **case.identity()}
    match result, case.truth:
        case Reconstruction(), (codes, numbers):
            known = case.knowledge.other_rows or case.knowledge.auxiliary
            return [measure_reconstruction(result, known, (codes, numbers), about)]
        case Guesses(), (codes, numbers):
            parts = (result.values, result.classes) if result.classes else (result.values,)
            return [part for guess in parts for part in measure_feature_attack(guess, case, about)]
        case Readings(), (codes, numbers) if case.columns is not None:
            own = numbers if case.numbers is None else case.numbers
            return [measure_readings(result, case.columns, (codes, numbers), own, about)]
        case Inferences(), (codes, numbers):
            return measure_inferences(result, (codes, numbers), about, case.column)
        case Scores(), Tensor() as member:
            return [measure_membership(result, member, about)]
    wanted = "Readings, a Reconstruction or Inferences of rows that are not auxiliary, or Scores of membership"
    raise NotApplicable.expected(wanted, f"{type(result).__name__} of {case.release}")


def measure_reconstruction(
    result: Reconstruction, known: Auxiliary, truth: tuple[Tensor, Tensor], about: Mapping[str, Any]
) -> FeatureResult:
    """R² and MSE of a reconstruction; the baseline is the mean of the auxiliary rows.

    A column's R² is one minus the squared error over the squared distance to the mean of the attacked rows; all entries
    of a category, or of an image, together. The result's is the mean over the columns that vary.
    """
    columns = known.columns
    actual = encoded_matrix(columns, *truth).double()
    mean = encoded_matrix(columns, known.codes, known.numbers).double().mean(dim=0)
    slices = encoded_slices(columns)

    def by_column(squares: Tensor) -> Tensor:
        return torch.stack([squares[:, entries].sum(dim=1) for entries in slices.values()], dim=1)

    spread = by_column((actual - actual.mean(dim=0)).square())
    varies = spread.sum(dim=0) > 1e-12 * len(actual)
    names = [name for name, varying in zip(slices, varies.tolist(), strict=True) if varying]
    widths = torch.tensor([entries.stop - entries.start for entries in slices.values()])[varies]
    spread = spread[:, varies]
    errors = by_column((result.values.double() - actual).square())[:, varies]
    mean_errors = by_column((mean - actual).square())[:, varies]
    r2, mean_r2 = (1 - squares.sum(dim=0) / spread.sum(dim=0) for squares in (errors, mean_errors))
    mse, mean_mse = (squares.mean(dim=0) / widths for squares in (errors, mean_errors))
    low, high = _r2_interval(errors, spread)
    images = ImagePairs(columns, truth[1], result.values) if columns.image else None
    entries = actual.shape[1]
    overall = {"mse": float(errors.sum(1).mean()), "baseline_mse": float(mean_errors.sum(1).mean())}
    return FeatureResult(
        **about,
        metric="r2",
        value=float(r2.mean()),
        low=low,
        high=high,
        baseline=float(mean_r2.mean()),
        metrics={name: value / entries for name, value in overall.items()} | (images.metrics() if images else {}),
        columns=tuple(
            ColumnValue(column=name, value=value, baseline=baseline, mse=error, baseline_mse=baseline_error)
            for name, value, baseline, error, baseline_error in zip(
                names, r2.tolist(), mean_r2.tolist(), mse.tolist(), mean_mse.tolist(), strict=True
            )
        ),
        pictures=images.pictures() if images else (),
    )


def measure_inferences(
    inferences: Inferences, truth: tuple[Tensor, Tensor], about: Mapping[str, Any], stated: str | None
) -> Iterator[FeatureResult]:
    """AUC of the column inferred best, chosen after the fact, and of the stated one, each with a table of all columns.

    Raises:
        NotApplicable: The stated column is none of those inferred; all results come before.
    """
    classes = {name: inferred.question.classes(*truth) for name, inferred in inferences.items()}
    columns = {name: _column(inferred, classes[name]) for name, inferred in inferences.items()}
    values = {name: column.value for name, column in columns.items() if column.value is not None}
    best = [max(values, key=lambda name: values[name])] if values else []
    for name in dict.fromkeys(best + [name for name in (stated,) if name in columns]):
        low, high = leak_interval(*_comparable(inferences[name].scores, classes[name]))
        yield FeatureResult(
            **about,
            metric="auc",
            value=columns[name].value,
            low=low,
            high=high,
            baseline=0.5,
            column=name,
            metrics={"accuracy": columns[name].accuracy or 0.0, "majority": columns[name].majority},
            columns=tuple(columns.values()),
        )
    if stated is not None and stated not in inferences:
        wanted = f"audit.attribute to name a number, or a category of {MAX_CODES} codes at most"
        raise NotApplicable.expected(wanted, repr(stated), f"there are {', '.join(inferences)}")


def measure_membership(scores: Scores, member: Tensor, about: Mapping[str, Any]) -> FeatureResult:
    """AUC, accuracy, and the true positive rate at 1 % false positives, of membership scores."""
    numbered = replace(scores, rows=torch.arange(len(member)))
    leak = leak_of(numbered, member)
    low, high = leak_interval(numbered, member)
    share = float(member.double().mean())
    return FeatureResult(
        **about,
        metric="auc",
        value=leak.pooled_auc,
        low=low,
        high=high,
        baseline=0.5,
        metrics={
            "accuracy": leak.hard_accuracy or 0.0,
            "majority": max(share, 1 - share),
            "tpr_at_1_percent_fpr": true_positive_rate(scores.values, member, FALSE_POSITIVE_RATE),
        },
    )


def _r2_interval(errors: Tensor, spread: Tensor) -> tuple[float, float]:
    """Bootstrap 95 % interval of the mean R² over columns; rows are redrawn, the mean of each column stays."""
    generator = np.random.default_rng(0)
    n = len(errors)
    ratios = []
    for _ in range(REPEATS // _REPEATS_AT_A_TIME):
        drawn = generator.integers(n, size=(_REPEATS_AT_A_TIME, n)) + n * np.arange(_REPEATS_AT_A_TIME)[:, None]
        counts = torch.from_numpy(np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)).double()
        ratios.append((1 - (counts @ errors) / (counts @ spread).clamp_min(1e-300)).mean(dim=1))
    low, high = torch.cat(ratios).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high


def _column(inferred: InferredColumn, classes: Tensor) -> ColumnValue:
    hard = inferred.scores.hard
    return ColumnValue(
        column=inferred.question.column,
        value=leak_of(*_comparable(inferred.scores, classes)).pooled_auc if bool((classes >= 0).any()) else math.nan,
        baseline=0.5,
        accuracy=math.nan if hard is None else float((hard == classes).double().mean()),
        majority=float((classes == inferred.majority).double().mean()),
    )


def _comparable(scores: Scores, classes: Tensor) -> tuple[Scores, Tensor]:
    """The rows whose class the classifier could know, and the truth about them."""
    known = classes >= 0
    actual = classes[known]
    rows, batch = torch.arange(len(actual)), scores.batch[known]
    chosen = replace(scores, rows=rows, values=scores.values[known], batch=batch, hard=None)
    return chosen, actual == 1 if scores.values.dim() == 1 else actual
