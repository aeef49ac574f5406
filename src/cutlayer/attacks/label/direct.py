"""Direct label inference: where the top model only adds up, the cut gradient is that of the logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label.base import Guess, LabelAttack, LabelView, Scores, step_by_step
from cutlayer.errors import NotApplicable
from cutlayer.lazy import Tensor

if TYPE_CHECKING:
    from cutlayer.problem.task import Task


class Direct(LabelAttack):
    """Read each row's label off the sign of the logit gradient.

    Applies where the top model is a plain sum of the parties' embeddings (VFL "without model splitting"): then the cut
    gradient is the gradient of the loss by the logits, p - y over the number of rows, negative in the column of the
    row's own class and positive in every other. The attack checks that the cut has one column (binary) or one per class
    (multi-class); whether the top model really only adds up cannot be read off the messages, so `auto` excludes it.

    The score of a class is minus its column, the hard label the sign (the most negative column where there are
    several). In a binary task with a linear top model the AUC is below 0.5 where the weight of this party is negative.

    Reference: Fu et al., Label inference attacks against vertical federated learning (USENIX Security 2022), the direct
    label inference attack.
    """

    name = "direct"
    reference = "Fu et al. 2022 (USENIX Security), direct label inference attack"
    tasks = frozenset({"binary", "multiclass"})
    live = False

    def run(self, view: LabelView, knowledge: Knowledge) -> Scores:
        """Score each sampled step on its own.

        Raises:
            NotApplicable: The cut has another width than the logits.
        """
        return step_by_step(view, lambda gradients, _: guess(gradients, view.task))


def guess(gradients: Tensor, task: Task) -> Guess:
    """Class scores and labels of one batch.

    Args:
        gradients: Cut gradients, float (n, d).
        task: Task whose number of logits is d.

    Raises:
        NotApplicable: The task has another number of logits.
    """
    width = gradients.shape[1]
    if width != task.outputs:
        raise NotApplicable.expected(
            f"a cut of width {task.outputs}, one column per logit, for the attack direct",
            f"width {width}",
            "it is defined where the top model is a plain sum of the embeddings",
        )
    scores = -gradients.double()
    if task.kind == "multiclass":
        return Guess(scores, hard=scores.argmax(dim=1), scale=0.0)
    return Guess(scores[:, 0], hard=scores[:, 0] > 0, scale=0.0)
