"""Membership inference: shadow models show what a training row looks like, and a classifier learns it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from cutlayer.attacks.base import Scores
from cutlayer.attacks.feature.base import FEWEST, ActiveView, FeatureAttack
from cutlayer.attacks.knowledge import Need
from cutlayer.attacks.label.probe import fit, read
from cutlayer.errors import NotApplicable
from cutlayer.tasks import Task

SHADOWS = 4
"""Shadow models."""
SHOWN = 2500
"""Rows of each shadow model's training rows, and as many of its others, that the classifier learns from."""
SPLIT_CLASSES = 10
"""Up to so many classes each one has coefficients of its own."""


@dataclass(frozen=True, eq=False)
class Shadows:
    """The attacker's own rows, and what it can make of them.

    Attributes:
        task: of the job.
        rows: row numbers of its own rows, int64 (n,): none of those that are attacked.
        train: from some of these rows and a number to what the active party would see of any rows, if the job's models
            had been trained on the former.
    """

    task: Task
    rows: Tensor
    train: Callable[[Tensor, int], Callable[[Tensor], ActiveView]]


class Membership(FeatureAttack[Shadows, Scores]):
    """Score a row by how much it looks like a training row: the higher, the likelier it was one.

    Four shadow models of the job's own kind are trained, each on a random half of the attacker's rows. What the active
    party would see of a row, in and out of the half, is turned into a few figures that mean the same under any model:
    the loss with the row's label, the logits from the largest down, the label's own, the norm of the embedding. A
    logistic regression on them, with coefficients for every class (one attack model a class in the paper), tells in
    from out, and is then applied to what was seen under the real model.

    The active party itself chose the training rows, so it learns nothing by this. The figure says what its view of a
    row would tell somebody who did not: whoever is shown its embeddings and outputs later.

    Reference: Shokri et al., Membership inference attacks against machine learning models (IEEE S&P 2017, arXiv
    1610.05820), section V; adapted to the cut: bottom and top model are trained together as one shadow.
    """

    name = "membership"
    reference = "Shokri et al. 2017 (arXiv 1610.05820), section V"
    needs = frozenset({Need.SHADOW_ROWS})

    def check(self, view: ActiveView, knowledge: Shadows) -> None:
        """Logits and labels of the rows, and enough rows for the shadows that are not among them."""
        if view.logits is None or view.labels is None:
            raise NotApplicable.expected(f"logits and labels of the rows for {self.name}", "embeddings alone")
        if len(knowledge.rows) < 2 * FEWEST:
            raise NotApplicable.expected(f"{2 * FEWEST} shadow rows or more for {self.name}", len(knowledge.rows))
        if bool(torch.isin(knowledge.rows, view.rows).any()):
            raise NotApplicable.expected(f"shadow rows that are not attacked for {self.name}", "some of those")

    def run(self, view: ActiveView, knowledge: Shadows) -> Scores:
        """Train the shadows, learn what tells in from out, and read it off the attacked rows."""
        figures, inside = [], []
        for number in range(SHADOWS):
            order = knowledge.rows[torch.randperm(len(knowledge.rows))]
            half = len(order) // 2
            see = knowledge.train(order[:half].sort().values, number)
            for rows, member in ((order[:half][:SHOWN], 1), (order[half:][:SHOWN], 0)):
                figures.append(row_figures(see(rows), knowledge.task))
                inside.append(torch.full((len(rows),), member))
        model = fit(torch.cat(figures).numpy(), torch.cat(inside).numpy())
        guess = read(model, row_figures(view, knowledge.task).numpy(), 1)
        batch = torch.zeros(len(view.rows), dtype=torch.int64)
        return Scores(view.rows, guess.values, batch, guess.hard, scale=guess.sizes()).with_ties()


def row_figures(view: ActiveView, task: Task) -> Tensor:
    """What is seen of each row, in figures that do not depend on a model's own coordinates, float64 (n, figures).

    Args:
        view: with logits and labels.
    """
    logits, labels = view.logits, view.labels
    assert logits is not None and labels is not None  # noqa: S101, PT018 - `check` has seen to it
    logits = logits.double().clamp(-50, 50)
    norm = torch.linalg.vector_norm(view.embeddings.double(), dim=1, keepdim=True)
    if task.kind == "regression":
        off = (logits[:, 0] - (labels.double() - task.center) / task.scale)[:, None]
        return torch.cat([off, off.abs(), off.square(), (off.abs() + 1e-12).log(), norm], dim=1)
    scores = torch.cat([torch.zeros_like(logits), logits], dim=1) if logits.shape[1] == 1 else logits
    codes = labels.long()
    loss = functional.cross_entropy(scores, codes, reduction="none")[:, None]
    own = scores.gather(1, codes[:, None])
    margin = own - scores.scatter(1, codes[:, None], -torch.inf).amax(dim=1, keepdim=True)
    top = scores.log_softmax(dim=1).sort(dim=1, descending=True).values[:, :3]
    figures = torch.cat([loss, (loss + 1e-12).log(), loss.neg().exp(), margin, top, norm], dim=1)
    if scores.shape[1] > SPLIT_CLASSES:
        return figures
    hot = functional.one_hot(codes, scores.shape[1]).double()
    return torch.cat([figures, *(figures * hot[:, [code]] for code in range(scores.shape[1])), hot], dim=1)
