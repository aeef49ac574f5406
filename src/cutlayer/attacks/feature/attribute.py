"""Attribute inference: one hidden column read off the embedding by a classifier fitted on rows where it is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cutlayer.attacks.feature.base import FeatureAttack
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Auxiliary, Knowledge
from cutlayer.attacks.label.base import Scores
from cutlayer.attacks.label.probe import FOLDS, fit_probe
from cutlayer.errors import NotApplicable
from cutlayer.lazy import Tensor, functional, torch

if TYPE_CHECKING:
    from cutlayer.attacks.feature.decoder import Linear, Loss


MAX_CODES = 20
"""Maximum number of codes of an inferred category."""


MIN_PROBABILITY = 1e-6
"""Minimum probability that a regression may give a class."""
KERNEL_SHARES = (0.0, 0.25, 0.5, 0.75)
"""Weights of the kernel ridge regression that are tried; never all, since it ranks no rows of probability 0."""


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
class InferredColumn:
    """Inferred values of a column.

    Attributes:
        question: What was asked.
        scores: Scores of the rows that are not auxiliary; `values` (n,) for two classes, else (n, classes).
        majority: The most frequent class among the auxiliary rows.
    """

    question: Question
    scores: Scores
    majority: int

    @classmethod
    def of(cls, question: Question, rows: Tensor, logs: Tensor, counts: Tensor) -> InferredColumn:
        """Values inferred by log probabilities.

        Args:
            question: What was asked.
            rows: Row numbers, int64 (n,).
            logs: Logarithm of the probability of each class, (n, classes).
            counts: Number of auxiliary rows of each class, (classes,).
        """
        values = logs[:, 1] - logs[:, 0] if logs.shape[1] == 2 else logs
        scale = torch.ones(len(rows), dtype=torch.float64)
        scores = Scores.of_rows(rows, values, hard=logs.argmax(dim=1), scale=scale)
        return cls(question, scores.with_ties(), int(counts.argmax()))


class Inferences(dict[str, InferredColumn]):
    """Inferred values, by name of the column."""


class Attribute(FeatureAttack[Inferences]):
    """Infer single columns from the embedding: each category of up to 20 codes, and if a number is above its median.

    A classifier is fitted for each column by cross-entropy on the auxiliary rows: a logistic regression, then a
    perceptron that starts from it; a fifth of the rows chooses the epoch. Its probabilities are averaged with those of
    a kernel ridge regression of the classes, with the weight of least log loss on the rows that chose the epoch.
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
        from cutlayer.attacks.feature.kernel_ridge import fit_kernel_ridge

        known = knowledge.auxiliary
        asked = list(questions(known))
        classes = [question.classes(known.codes, known.numbers) for question in asked]
        hot = [functional.one_hot(own, max(2, int(own.max()) + 1)) for own in classes]
        # One fit for all columns: they share the kernels, whose decomposition takes the time.
        targets = torch.cat(hot, dim=1)
        kernels = fit_kernel_ridge(
            view.embeddings[known.indices],
            targets,
            {str(entry): slice(entry, entry + 1) for entry in range(targets.shape[1])},
        )
        widths = [part.shape[1] for part in hot]
        parts = torch.split(kernels(view.embeddings[known.unknown(len(view.rows))]), widths, dim=1)
        pairs = zip(torch.split(kernels.left_out, widths, dim=1), parts, strict=True)
        return Inferences(
            (question.column, _infer_column(view, known, question, *pair))
            for question, pair in zip(asked, pairs, strict=True)
        )


def _infer_column(
    view: FeatureView, known: Auxiliary, question: Question, left_out: Tensor, kernels: Tensor
) -> InferredColumn:
    """Classify the rows that are not auxiliary.

    Args:
        view: The view.
        known: The auxiliary rows.
        question: The question.
        left_out: Kernel ridge regression of the classes of each auxiliary row, fitted without it, (m, classes).
        kernels: The same of the other rows, (n, classes).
    """
    from cutlayer.attacks.feature.decoder import fit_decoder

    classes = question.classes(known.codes, known.numbers)
    counts = torch.bincount(classes, minlength=2)

    def start(x: Tensor, targets: Tensor) -> Linear:
        return fit_linear_start(x, targets, len(counts))

    embeddings = view.embeddings[known.indices]
    model = fit_decoder(embeddings, classes, start, log_loss(len(counts)))
    attacked = known.unknown(len(view.rows))
    judged = model.validation
    with torch.no_grad():
        own, other = (model(part).double().softmax(dim=1) for part in (embeddings[judged], view.embeddings[attacked]))
    share = best_kernel_share(own, probabilities(left_out[judged]), classes[judged])
    logs = ((1 - share) * other + share * probabilities(kernels)).log()
    return InferredColumn.of(question, view.rows[attacked], logs, counts)


def log_loss(number: int) -> Loss:
    """The mean log loss of logits (n, number) against class codes, int64 (n,)."""
    from cutlayer.attacks.feature.decoder import Loss

    def slope(logits: Tensor, classes: Tensor) -> Tensor:
        return (logits.softmax(dim=1) - functional.one_hot(classes, number)) / len(classes)

    return Loss(functional.cross_entropy, slope)


def probabilities(regressed: Tensor) -> Tensor:
    """Class probabilities from a regression of one-hot classes: at least `MIN_PROBABILITY`, of sum 1, (n, classes)."""
    positive = regressed.clamp_min(MIN_PROBABILITY)
    return positive / positive.sum(dim=1, keepdim=True)


def best_kernel_share(first: Tensor, second: Tensor, classes: Tensor) -> float:
    """Weight of the second of two classifiers in the average with the least log loss, of `KERNEL_SHARES`.

    Args:
        first: Class probabilities, float64 (n, classes).
        second: Those of the other classifier.
        classes: Class of each row, int64 (n,).
    """
    rows = torch.arange(len(classes))
    chances = [((1 - share) * first + share * second)[rows, classes] for share in KERNEL_SHARES]
    losses = [float(-chance.clamp_min(MIN_PROBABILITY).log().mean()) for chance in chances]
    return KERNEL_SHARES[losses.index(min(losses))]


def fit_linear_start(x: Tensor, classes: Tensor, number: int) -> Linear:
    """Logistic regression, its strength chosen by cross-validation; a class of too few rows is given its frequency.

    Args:
        x: Standardised embeddings, (n, width).
        classes: Class of each row, int64 (n,), below `number`.
        number: Number of classes.
    """
    counts = torch.bincount(classes, minlength=number)
    weight = torch.zeros(number, x.shape[1])
    bias = (counts / len(classes)).clamp_min(1e-6).log()
    common = (counts >= FOLDS).nonzero().flatten()
    if len(common) < 2:
        return weight, bias
    rows = torch.isin(classes, common)
    model = fit_probe(x[rows].double().numpy(), classes[rows].numpy())
    slope = torch.from_numpy(model.weights).T
    offset = torch.from_numpy(model.intercepts)
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
