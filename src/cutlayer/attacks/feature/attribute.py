"""Attribute inference: one hidden column read off the embedding by a classifier fitted on rows where it is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from cutlayer.attacks.base import Scores
from cutlayer.attacks.feature.base import ActiveView, Auxiliary, FeatureAttack, check_auxiliary
from cutlayer.attacks.feature.decoder import Linear, fit_decoder
from cutlayer.attacks.label.probe import FOLDS, fit
from cutlayer.errors import NotApplicable

MOST_CODES = 20
"""Codes of the widest category that is tried."""


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked about one column.

    Attributes:
        column: its name. place: among the codes, or among the numbers.
        codes: the classes of a category, ascending; empty for a number.
        above: a number's class is whether it is above this, the median of the auxiliary rows.
    """

    column: str
    place: int
    codes: tuple[int, ...] = ()
    above: float = 0.0

    def classes(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """The class of each row, int64 (n,); -1 where no auxiliary row had that code.

        Args:
            codes: int (n, c). numbers: float32 (n, d).
        """
        if not self.codes:
            return (numbers[:, self.place] > self.above).long()
        table = torch.full((max(int(codes[:, self.place].max()), self.codes[-1]) + 1,), -1)
        table[list(self.codes)] = torch.arange(len(self.codes))
        return table[codes[:, self.place].long()]


@dataclass(frozen=True, eq=False)
class Inferred:
    """What was inferred of one column.

    Attributes:
        question: what was asked.
        scores: of the other rows; `values` (n,) for two classes, else (n, classes).
        majority: the class most frequent among the auxiliary rows.
    """

    question: Question
    scores: Scores
    majority: int


class Attribute(FeatureAttack[Auxiliary, Mapping[str, Inferred]]):
    """Infer single columns from the embedding: each category of up to 20 codes, and if a number is above its median.

    A classifier is fitted for each column by cross-entropy on the auxiliary rows: a logistic regression, then a
    perceptron that goes on from it; a fifth of the rows chooses the epoch.
    Pixels are left to `inversion`. A column that is constant among the auxiliary rows is left out.

    Reference: Song and Shmatikov, Overlearning reveals sensitive attributes (ICLR 2020, arXiv 1905.11742), section 3.1:
    inference from a representation.
    """

    name = "attribute"
    reference = "Song and Shmatikov 2020 (arXiv 1905.11742), section 3.1"

    def check(self, view: ActiveView, knowledge: Auxiliary) -> None:
        """Some auxiliary rows, not all, and a column to ask about."""
        check_auxiliary(self.name, view, knowledge)
        if not any(True for _ in questions(knowledge)):
            wanted = f"a number, or a category of {MOST_CODES} codes at most, that varies for {self.name}"
            raise NotApplicable.expected(wanted, "none", "try inversion")

    def run(self, view: ActiveView, knowledge: Auxiliary) -> Mapping[str, Inferred]:
        """Fit and read one classifier a column."""
        return {asked.column: self._infer(view, knowledge, asked) for asked in questions(knowledge)}

    def _infer(self, view: ActiveView, knowledge: Auxiliary, asked: Question) -> Inferred:
        known = asked.classes(knowledge.codes, knowledge.numbers)
        counts = torch.bincount(known, minlength=2)

        def start(x: Tensor, classes: Tensor) -> Linear:
            return logistic(x, classes, len(counts))

        model = fit_decoder(view.embeddings[knowledge.places], known, start, functional.cross_entropy)
        others = knowledge.others(len(view.rows))
        with torch.no_grad():
            logs = model(view.embeddings[others]).double().log_softmax(dim=1)
        values = logs[:, 1] - logs[:, 0] if logs.shape[1] == 2 else logs
        batch = torch.zeros(len(others), dtype=torch.int64)
        scale = torch.ones(len(others), dtype=torch.float64)
        scores = Scores(view.rows[others], values, batch, logs.argmax(dim=1), scale=scale).with_ties()
        return Inferred(asked, scores, int(counts.argmax()))


def logistic(x: Tensor, classes: Tensor, number: int) -> Linear:
    """Logistic regression, its strength chosen by cross-validation; a class of too few rows keeps its frequency.

    Args:
        x: (n, width). classes: int64 (n,), below `number`.
    """
    counts = torch.bincount(classes, minlength=number)
    weight, bias = torch.zeros(number, x.shape[1]), (counts / len(classes)).clamp_min(1e-6).log()
    common = (counts >= FOLDS).nonzero().flatten()
    if len(common) < 2:
        return weight, bias
    rows = torch.isin(classes, common)
    fitted = fit(x[rows].double().numpy(), classes[rows].numpy())
    scaler, model = getattr(fitted, "best_estimator_", fitted)
    found = torch.from_numpy(model.coef_ / scaler.scale_)
    offset = torch.from_numpy(model.intercept_) - found @ torch.from_numpy(scaler.mean_)
    if len(common) == 2:
        found, offset = (torch.cat([torch.zeros_like(one), one]) for one in (found, offset))
    level = (x[rows].double() @ found.T + offset).logsumexp(dim=1).mean()
    weight[common], bias[common] = found.float(), (offset - level).float()
    return weight, bias


def questions(known: Auxiliary) -> Iterator[Question]:
    """What can be asked of these auxiliary rows, the categories first."""
    columns = known.columns
    for place, name in enumerate(columns.category_names):
        seen = sorted(set(known.codes[:, place].tolist()))
        if 2 <= len(seen) <= MOST_CODES:
            yield Question(name, place, codes=tuple(seen))
    for place, name in enumerate(columns.number_names):
        values = known.numbers[:, place]
        middle = float(values.median())
        if 0 < int((values > middle).sum()) < len(values):
            yield Question(name, place, above=middle)
