"""Membership inference by a likelihood ratio for every row (LiRA), from shadow models with and without that row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cutlayer.attacks.feature.base import FeatureAttack
from cutlayer.attacks.feature.model_outputs import class_logits, regression_errors
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Knowledge, Need, Shadows
from cutlayer.attacks.label.base import Scores
from cutlayer.lazy import Tensor, functional, torch

if TYPE_CHECKING:
    from cutlayer.problem.task import Task


SHADOW_PAIRS = 8
"""Number of pairs of shadow models. Of the two models of a pair exactly one is trained on any given row."""
TREES = 100
"""Number of boosted trees."""
PRIOR_ROWS = 4
"""Weight, in rows, of the common variance in the variance of a row's confidence: a row has 8 values of each kind."""


@dataclass(frozen=True, eq=False)
class Confidences:
    """Confidence of each shadow model in each attacked row.

    Attributes:
        values: Confidences, float64 (models, n).
        inside: Whether the model was trained on the row, bool (models, n).
    """

    values: Tensor
    inside: Tensor

    def without(self, pair: int) -> Confidences:
        """All models but those of one pair."""
        others = torch.arange(len(self.values)) // 2 != pair
        return Confidences(self.values[others], self.inside[others])


class Lira(FeatureAttack[Scores]):
    """Score a row by how much likelier its confidence is under models that were trained on it than under others.

    Eight pairs of shadow models of the job's own kind are trained. In each pair one model learns from a random half of
    the attacked rows, the other model from the other half; random rows of the attacker's own, the same for both, fill
    them up to the number of rows that the real model was trained on. The scaled confidence of a row, log(p / (1 - p))
    with p the probability of its label, or the scaled residual in a regression, has one normal distribution over the
    models with the row and another over those without. The score of the paper is the logarithm of the ratio of the two
    densities at the confidence under the real model.

    Where this differs from the paper: 16 models instead of 256. So the variance of a row is shrunk towards that of all
    rows, and the ratio is one of six inputs (the confidence, both means and both differences are the others) of boosted
    trees that are fitted on the shadow models themselves: both models of a pair take the part of the real model, and
    the remaining pairs give the two distributions. The paper's pool is half training rows; here the attacker's own rows
    were mostly training rows, and the shadow models start from the initial weights of the job, which no active party
    knows. Both err on the attacker's side.

    Reference: Carlini et al., Membership inference attacks from first principles (IEEE S&P 2022, arXiv 2112.03570),
    section V, algorithm 1 (online).
    """

    name = "lira"
    reference = "Carlini et al. 2022 (arXiv 2112.03570), section V, algorithm 1"
    needs = frozenset({Need.CANDIDATE_ROWS})

    def run(self, view: FeatureView, knowledge: Knowledge) -> Scores:
        """Train the shadow models, fit the trees on them, and apply the trees to the attacked rows."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        shadows = knowledge.shadows
        drawn = shadow_confidences(view.rows, shadows)
        inputs, members = [], []
        for model, (values, inside) in enumerate(zip(drawn.values, drawn.inside, strict=True)):
            inputs.append(statistics(values, drawn.without(model // 2)))
            members.append(inside)
        trees = HistGradientBoostingClassifier(learning_rate=0.05, max_iter=TREES, early_stopping=False, random_state=0)
        trees.fit(torch.cat(inputs).numpy(), torch.cat(members).numpy())
        scores = torch.from_numpy(trees.decision_function(statistics(confidence(view, shadows.task), drawn).numpy()))
        return Scores.of_rows(view.rows, scores, hard=scores > 0, scale=torch.ones_like(scores)).with_ties()


def shadow_confidences(rows: Tensor, shadows: Shadows) -> Confidences:
    """Train the pairs of shadow models, each pair on the two halves of the attacked rows and the same further rows.

    Args:
        rows: The attacked rows, int64 (n,).
        shadows: The attacker's own rows, and the means to train.
    """
    further = max(0, shadows.training_rows - len(rows) // 2)
    values, inside = [], []
    for pair in range(SHADOW_PAIRS):
        order = rows[torch.randperm(len(rows))]
        own = shadows.rows[torch.randperm(len(shadows.rows))[:further]]
        for number, part in enumerate(order.tensor_split(2)):
            view_of = shadows.train(torch.cat([part, own]).sort().values, 2 * pair + number)
            values.append(confidence(view_of(rows), shadows.task))
            inside.append(torch.isin(rows, part))
    return Confidences(torch.stack(values), torch.stack(inside))


def confidence(view: FeatureView, task: Task) -> Tensor:
    """Scaled confidence of a model in the label of each row, float64 (n,).

    log(p / (1 - p)) of the probability p of the label; in a regression the prediction minus the label, in deviations.

    Args:
        view: A view with logits and labels.
        task: Task of the model.
    """
    if task.kind == "regression":
        return regression_errors(view, task)
    scores, codes = class_logits(view)
    own = functional.one_hot(codes, scores.shape[1]).bool()
    return scores[own] - scores.masked_fill(own, -torch.inf).logsumexp(dim=1)


def statistics(values: Tensor, shadows: Confidences) -> Tensor:
    """Log-likelihood ratio of each row, its confidence, both means, and the differences to them, float64 (n, 6).

    Args:
        values: Confidences under one model, float64 (n,).
        shadows: Confidences under other models.
    """
    (with_row, mean_in), (without_row, mean_out) = (
        log_density(values, shadows.values, chosen) for chosen in (shadows.inside, ~shadows.inside)
    )
    parts = [with_row - without_row, values, mean_in, mean_out, values - mean_in, values - mean_out]
    return torch.stack(parts, dim=1)


def log_density(values: Tensor, drawn: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Logarithm of a normal density at each row's value, up to a constant, and its mean.

    Args:
        values: Values, float64 (n,).
        drawn: Draws of each row, float64 (models, n).
        chosen: Which draws the density is fitted to, bool (models, n), at least one of each row.
    """
    count = chosen.sum(dim=0)
    mean = (drawn * chosen).sum(dim=0) / count
    squares = ((drawn - mean).square() * chosen).sum(dim=0)
    common = squares.sum() / (count - 1).sum().clamp_min(1)
    variance = ((squares + PRIOR_ROWS * common) / (count - 1 + PRIOR_ROWS)).clamp_min(1e-12)
    return -(values - mean).square() / (2 * variance) - variance.log() / 2, mean
