"""The term `adjust`: a contrastive loss on rows whose returned gradients are alike."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.lazy import Tensor, torch
from cutlayer_published.embedding.cluster_gain import cluster_gain
from cutlayer_published.embedding.fuzzy_c_means import fuzzy_c_means

# A pseudo-label needs no third digit of a membership.
_TOLERANCE = 1e-3
# Over so many batches of 64 rows and 10 clusters the mean gain of shuffled clusters is within some 0.01 of 0.
_WINDOW = 50


class AdjustConfig(FrozenModel):
    """Pseudo-labels, and the weight of the term.

    Attributes:
        classes: Number of classes of the labels: knowledge that the party states.
        threshold: Minimum membership of a row's gradient in its cluster; other rows are left out.
        weight: Weight of the term relative to the task's gradient.
        temperature: Temperature of the contrastive loss.
        fuzzifier: Fuzzifier of the clustering; towards 1 memberships become 0 and 1. The usual 2 gives every row of a
            wide gradient the same membership in all clusters, which masks every row.
        rounds: Maximum number of updates of the clusters in a batch, which start from those of the batch before. With
            1 the term takes half the time, and its clusters are a little less pure.
        stop: Mean gain of the clusters over 50 batches (`cluster_gain`) at which the term ends for the rest of
            the run. 0 is that of shuffled clusters, 1 that of rows that coincide; 0.05 is a start. It never ends by
            default. `share_adjusted` is then not reported, since it would reveal where the term ended; the time of a
            step still does.
    """

    classes: int = Field(ge=2, le=1000, strict=True, description="how many classes the labels have")
    threshold: float = Field(default=0.7, ge=0, lt=1, strict=True)
    weight: float = Field(default=0.1, gt=0, strict=True)
    temperature: float = Field(default=0.5, gt=0, strict=True)
    fuzzifier: float = Field(default=1.1, gt=1, strict=True)
    rounds: int = Field(default=20, ge=1, strict=True)
    stop: float | None = Field(default=None, ge=0, lt=1, strict=True, description="0.05 is a start")


def pseudo_labels(
    gradient: Tensor, settings: AdjustConfig, centres: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Cluster one batch's returned gradients.

    Args:
        gradient: Returned gradient, (n, width), finite.
        settings: Number of clusters, threshold, fuzzifier and rounds.
        centres: Centres of the batch before; `None` to begin anew.

    Returns:
        The cluster of each row, int64 (n,); which rows are confident of it, bool (n,); and the centres for the next
        batch: `None` where no row is confident, since centres that coincide would never separate again.
    """
    clusters = fuzzy_c_means(
        gradient,
        settings.classes,
        fuzzifier=settings.fuzzifier,
        tolerance=_TOLERANCE,
        rounds=settings.rounds,
        start=centres,
    )
    largest, labels = clusters.memberships.max(1)
    confident = largest >= settings.threshold
    return labels, confident, clusters.centres if bool(confident.any()) else None


class Adjustment:
    """Weight times the supervised contrastive loss of the rows with a confident pseudo-label.

    Pseudo-labels are the clusters of the gradients that came back, by fuzzy c-means (equation 7). Rows whose largest
    membership is under the threshold are masked: neither anchors, nor positives, nor in a denominator. The paper leaves
    the exact form of equation 8 open; here it is the loss of Khosla et al. 2020 on the embeddings before the noise, at
    length 1.

    As the model learns, the gradients of rows that it predicts well vanish, and clusters of the rest may have nothing
    in common. The term would then pull random rows together. With `stop` it ends for good where the embeddings of a
    cluster are hardly more alike than those of shuffled clusters, which a party can measure without labels. The paper
    has no such stop.

    Gradients are what the active party sent, so their clusters reveal nothing new to it; the loss is of the party's own
    rows, and reaches the active party through the bottom model alone.

    Reference: Mi et al. 2023 (arXiv 2308.02362), equations 7 and 8; Khosla et al. 2020 (arXiv 2004.11362), equation 2.
    """

    def __init__(self, settings: AdjustConfig) -> None:
        self.settings = settings
        self._centres: Tensor | None = None
        self._counts = {"rows": 0, "confident": 0}
        self._gains: list[float] = []
        self._stopped = False

    def loss(self, rows: Tensor, gradient: Tensor) -> Tensor | None:
        """The term of a batch; `None` where no two rows share a confident pseudo-label, and once it has stopped.

        Args:
            rows: Embeddings without noise, with their graph, (n, width).
            gradient: Gradient that came back, (n, width).
        """
        from cutlayer_published.embedding.contrastive import contrastive_loss

        if self._stopped:
            return None
        self._counts["rows"] += len(rows)
        if not math.isfinite(float(gradient.abs().max())):
            return None
        labels, confident, self._centres = pseudo_labels(gradient, self.settings, self._centres)
        chosen = confident.nonzero()[:, 0]
        self._counts["confident"] += len(chosen)
        if not len(chosen):
            return None
        if len(chosen) < len(rows):
            rows, labels = rows.index_select(0, chosen), labels[chosen]
        if int(torch.bincount(labels).max()) < 2:
            return None
        if self._no_better_than_shuffled(rows, labels):
            return None
        return self.settings.weight * contrastive_loss(rows, labels, self.settings.temperature)

    def _no_better_than_shuffled(self, rows: Tensor, labels: Tensor) -> bool:
        """Whether the term ends with this batch."""
        if self.settings.stop is None:
            return False
        self._gains = [*self._gains[1 - _WINDOW :], cluster_gain(rows, labels)]
        self._stopped = len(self._gains) == _WINDOW and math.fsum(self._gains) <= self.settings.stop * _WINDOW
        return self._stopped

    def metrics(self) -> Mapping[str, float]:
        """The share of rows with a confident pseudo-label, which the gradients alone decide.

        None with `stop`: where the term ended depends on the rows before the noise, and metrics are sent.
        """
        if self.settings.stop is not None:
            return {}
        return {"share_adjusted": self._counts["confident"] / max(self._counts["rows"], 1)}

    def state_dict(self) -> dict[str, Any]:
        """The counts, the centres of the last batch, and what `stop` is decided by."""
        centres = {} if self._centres is None else {"last": self._centres.clone()}
        return {**self._counts, "centres": centres, "gains": list(self._gains), "stopped": self._stopped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._counts = {name: state[name] for name in self._counts}
        self._centres = state["centres"].get("last")
        self._gains, self._stopped = list(state["gains"]), state["stopped"]
