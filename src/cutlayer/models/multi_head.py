"""The `multi_head` kind: a further head for every set of parties that may be absent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from cutlayer.lazy import Tensor, nn, torch
from cutlayer.models.absence import absent_sets
from cutlayer.models.base import TopModel
from cutlayer.models.mlp import DenseTopConfig, MlpTop
from cutlayer.models.sections import TopKind
from cutlayer.problem.training_loss import TrainingLoss


class MultiHeadTopConfig(DenseTopConfig):
    """Dense layers as in `mlp`, once over all embeddings, and once more for sets of parties that may be absent.

    There is a further head for every set of passive parties, over the remaining embeddings. That is 2^K - 1 heads for
    up to 6 passive parties, and one for each party beyond that. All are trained on the sum of their losses
    (docs/how-to/departures.md).

    Attributes:
        hidden: Widths of the layers of every head; empty for linear heads.
        activation: Activation after each layer.
    """

    kind: Literal["multi_head"] = "multi_head"


class MultiHeadTop(TopModel):
    """A head over all embeddings, and one over the remaining embeddings for each set of absent parties.

    Up to 6 parties that may leave, every nonempty set of them has a head: 2^K - 1, which is what it costs. Of more
    parties only each single one does, and a larger set is answered as by any other top model, with zeros. All heads are
    trained in every step on the sum of their losses, so that the bottom models learn for each of them too.

    Reference: Sun, Du et al., Robust and IP-protecting vertical federated learning against unexpected quitting of
    parties (arXiv 2303.18178), the multi-head baseline. The paper has two parties and so one further head; a head for
    every set is the same idea for more.

    Args:
        config: Settings of every head.
        widths: Number of columns of every embedding, in the job's order.
        outputs: Number of logits of the task.
        may_leave: Parties that may leave.
    """

    reads_presence = True

    def __init__(
        self, config: MultiHeadTopConfig, widths: Mapping[str, int], outputs: int, may_leave: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self.whole = MlpTop(config, widths, outputs)
        sets = absent_sets(may_leave, keep_one=len(may_leave) == len(widths), sizes=(1,))
        self.absent = tuple(frozenset(names) for names in sets)
        remaining = [{name: w for name, w in widths.items() if name not in names} for names in self.absent]
        self.further = nn.ModuleList(MlpTop(config, left, outputs) for left in remaining)

    @property
    def extra_heads(self) -> Sequence[nn.Module]:
        """The heads for absent parties."""
        return tuple(self.further)

    def forward(self, embeddings: Mapping[str, Tensor]) -> Tensor:
        """Logits of the head that reads all embeddings."""
        return self.whole(embeddings)

    def answer(self, embeddings: Mapping[str, Tensor], present: Collection[str]) -> Tensor:
        """Logits of the head for those who are present; see `TopModel.answer`."""
        absent = frozenset(embeddings) - frozenset(present)
        if absent not in self.absent:
            return super().answer(embeddings, present)
        head = self.further[self.absent.index(absent)]
        result: Tensor = head({name: e for name, e in embeddings.items() if name not in absent})
        return result

    def objective_of_sets(
        self, embeddings: Mapping[str, Tensor], present: Collection[str], labels: Tensor, loss: TrainingLoss
    ) -> Tensor:
        """The sum of the losses of all heads that read no other than the present parties."""
        lacking = embeddings.keys() - {*present}
        losses = [] if lacking else [loss(self(embeddings), labels)]
        losses += [
            loss(self.answer(embeddings, embeddings.keys() - absent), labels)
            for absent in self.absent
            if lacking <= absent
        ]
        if not losses:  # no head is for so few parties: the one for all answers, with zeros
            losses = [loss(self.answer(embeddings, present), labels)]
        return torch.stack(losses).sum()


MULTI_HEAD = TopKind(MultiHeadTopConfig, MultiHeadTop, needs_departures=True)
