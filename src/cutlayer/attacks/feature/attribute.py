"""Attribute inference: one hidden column read off the embedding by a classifier fitted on rows where it is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from cutlayer.attacks.feature.base import FeatureAttack, FeatureView
from cutlayer.attacks.feature.decoder import Linear, fit_decoder
from cutlayer.attacks.knowledge import Auxiliary, Knowledge
from cutlayer.attacks.label.base import Scores
from cutlayer.attacks.label.probe import FOLDS, fit
from cutlayer.errors import NotApplicable

MAX_CODES = 20
"""Maximum number of codes of an inferred category."""


@dataclass(frozen=True, eq=False)
class Question:
    """A question about a column.

    Attributes:
        column: Name of the column.
        index: Its index among the codes, or among the numbers.
        codes: The classes of a category, ascending; empty for a number.
        above: A number's class is whether it is above this, the median of the auxiliary rows.
    """

    column: str
    index: int
    codes: tuple[int, ...] = ()
    above: float = 0.0

    def classes(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """The class of each row, int64 (n,); -1 where no auxiliary row had that code.

        Args:
            codes: Codes of all categories, int (n, c).
            numbers: All numbers, float32 (n, d).
        """
        if not self.codes:
            return (numbers[:, self.index] > self.above).long()
        table = torch.full((max(int(codes[:, self.index].max()), self.codes[-1]) + 1,), -1)
        table[list(self.codes)] = torch.arange(len(self.codes))
        return table[codes[:, self.index].long()]


@dataclass(frozen=True, eq=False)
class Inferred:
    """Inferred values of a column.

    Attributes:
        question: What was asked.
        scores: Scores of the rows that are not auxiliary; `values` (n,) for two classes, else (n, classes).
        majority: The most frequent class among the auxiliary rows.
    """

    question: Question
    scores: Scores
    majority: int


class Inferences(dict[str, Inferred]):
    """Inferred values, by name of the column."""


class Attribute(FeatureAttack[Inferences]):
    """Infer single columns from the embedding: each category of up to 20 codes, and if a number is above its median.

    A classifier is fitted for each column by cross-entropy on the auxiliary rows: a logistic regression, then a
    perceptron that starts from it; a fifth of the rows chooses the epoch.
    Pixels are left to `inversion`. A column that is constant among the auxiliary rows is left out.

    Reference: Song and Shmatikov, Overlearning reveals sensitive attributes (ICLR 2020, arXiv 1905.11742), section 3.1:
    inference from a representation.
    """

    name = "attribute"
    reference = "Song and Shmatikov 2020 (arXiv 1905.11742), section 3.1"

    def check(self, view: FeatureView, knowledge: Knowledge) -> None:
        """Raise `NotApplicable` unless there are auxiliary rows, and a column to ask about."""
        super().check(view, knowledge)
        if not any(questions(knowledge.auxiliary)):
            wanted = f"a number, or a category of {MAX_CODES} codes at most, that varies for {self.name}"
            raise NotApplicable.expected(wanted, "none", "try inversion")

    def run(self, view: FeatureView, knowledge: Knowledge) -> Inferences:
        """Fit and apply one classifier per column."""
        known = knowledge.auxiliary
        return Inferences((question.column, _infer(view, known, question)) for question in questions(known))


def _infer(view: FeatureView, known: Auxiliary, question: Question) -> Inferred:
    classes = question.classes(known.codes, known.numbers)
    counts = torch.bincount(classes, minlength=2)

    def start(x: Tensor, targets: Tensor) -> Linear:
        return logistic(x, targets, len(counts))

    model = fit_decoder(view.embeddings[known.indices], classes, start, functional.cross_entropy)
    attacked = known.unknown(len(view.rows))
    with torch.no_grad():
        logs = model(view.embeddings[attacked]).double().log_softmax(dim=1)
    values = logs[:, 1] - logs[:, 0] if logs.shape[1] == 2 else logs
    batch = torch.zeros(len(attacked), dtype=torch.int64)
    scale = torch.ones(len(attacked), dtype=torch.float64)
    scores = Scores(view.rows[attacked], values, batch, logs.argmax(dim=1), scale=scale).with_ties()
    return Inferred(question, scores, int(counts.argmax()))


def logistic(x: Tensor, classes: Tensor, number: int) -> Linear:
    """Logistic regression, its strength chosen by cross-validation; a class of too few rows is given its frequency.

    Args:
        x: Standardised embeddings, (n, width).
        classes: Class of each row, int64 (n,), below `number`.
        number: Number of classes.
    """
    counts = torch.bincount(classes, minlength=number)
    weight, bias = torch.zeros(number, x.shape[1]), (counts / len(classes)).clamp_min(1e-6).log()
    common = (counts >= FOLDS).nonzero().flatten()
    if len(common) < 2:
        return weight, bias
    rows = torch.isin(classes, common)
    fitted = fit(x[rows].double().numpy(), classes[rows].numpy())
    scaler, model = fitted
    slope = torch.from_numpy(model.coef_ / scaler.scale_)
    offset = torch.from_numpy(model.intercept_) - slope @ torch.from_numpy(scaler.mean_)
    if len(common) == 2:
        slope, offset = (torch.cat([torch.zeros_like(part), part]) for part in (slope, offset))
    level = (x[rows].double() @ slope.T + offset).logsumexp(dim=1).mean()
    weight[common], bias[common] = slope.float(), (offset - level).float()
    return weight, bias


def questions(known: Auxiliary) -> Iterator[Question]:
    """The questions that these auxiliary rows allow, categories first."""
    columns = known.columns
    for index, name in enumerate(columns.category_names):
        seen = sorted(set(known.codes[:, index].tolist()))
        if 2 <= len(seen) <= MAX_CODES:
            yield Question(name, index, codes=tuple(seen))
    for index, name in enumerate(columns.number_names):
        values = known.numbers[:, index]
        median = float(values.median())
        if 0 < int((values > median).sum()) < len(values):
            yield Question(name, index, above=median)
