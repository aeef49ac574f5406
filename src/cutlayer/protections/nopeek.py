"""NoPeek: train the bottom model to embeddings that depend less on its own inputs."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from cutlayer.accounting import Event, ReleasePlan
from cutlayer.config import FrozenModel
from cutlayer.errors import ConfigError, NotApplied
from cutlayer.lazy import Tensor
from cutlayer.protections.contract.base import FeatureProtection
from cutlayer.protections.contract.views import PassiveView


class NoPeekConfig(FrozenModel):
    """Weight of the term.

    Attributes:
        alpha: Weight of the term relative to the task's gradient.
    """

    alpha: float = Field(gt=0, strict=True, description="0.1 is a start")


class NoPeek(FeatureProtection[NoPeekConfig]):
    """Add alpha dCor(X, E) to the bottom model's loss, X the batch's encoded columns and E its embedding.

    X has the numbers as the bottom model reads them, pixels included, and each categorical column one-hot. E is what is
    released, after other protections of the embedding. dCor = dCov2(X, E) / sqrt(dCov2(X, X) dCov2(E, E)): the squared
    distance correlation, without a further root, as of `dcor`. The task's gradient keeps its weight of 1, where the
    paper weighs both terms: only their ratio matters to what is learnt.

    Reference: Vepakomma et al. 2020, NoPeek: information leakage reduction to share activations in distributed deep
    learning (arXiv 2008.09161), section 3.

    Guarantee: none, empirical. It is a penalty, paid against the task, on a dependence estimated from each batch. The
    embeddings of the first steps, which it has hardly changed, are sent as well.

    Advice: a penalty bounds nothing (docs/how-to/protect-features.md).
    """

    name = "nopeek"
    config = NoPeekConfig
    reference = "Vepakomma et al. 2020 (arXiv 2008.09161), section 3"
    start = NoPeekConfig(alpha=0.1)
    rank = 30
    no_guarantee = "a penalty on the estimated dependence of embeddings on inputs bounds nothing"
    counters = ("terms",)

    def local_loss(self, view: PassiveView) -> Tensor | None:
        """The term of this step.

        Raises:
            NotApplied: The party handed over no inputs.
        """
        from cutlayer.kernels.dependence.distance_correlation import distance_correlation_sqr

        if view.embedding is None or view.inputs is None:
            raise NotApplied(f"nopeek of {self.context.party} was given no inputs or no embedding to compare")
        self.count(terms=1)
        return self.settings.alpha * distance_correlation_sqr(view.embedding, view.inputs(view.rows))

    def event(self, plan: ReleasePlan) -> Event:
        """No formal guarantee.

        Raises:
            ConfigError: Rows are released once, before training: the bottom model takes no step that it could change.
        """
        if plan.once:
            raise ConfigError.expected("a release in every step with nopeek", "one release", "leave nopeek out")
        return super().event(plan)

    def metrics(self) -> Mapping[str, float]:
        """Terms added. Their values depend on the private inputs, and a passive party's metrics are sent."""
        return {**super().metrics(), "alpha": self.settings.alpha}
