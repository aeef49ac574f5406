"""Label differential privacy: training labels go through randomised response, once."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from pydantic import Field
from torch import Tensor

from cutlayer.accounting import Event, RandomizedResponse
from cutlayer.config import Section
from cutlayer.kernels.randomized_response import flip_probability, randomized_response
from cutlayer.protections.base import Asset, Context, Protection, Side


class LabelDPConfig(Section):
    """How private a label is.

    Attributes:
        eps: 0 or more. 0 is a coin flip, 1 flips 27 % of binary labels, 5 flips 0.7 %.
    """

    eps: float = Field(ge=0, strict=True)


class LabelDP(Protection[LabelDPConfig]):
    """Replace each training label by randomised response before training sees it.

    Of n classes a label is kept with probability e^eps / (n - 1 + e^eps), else one of the others is taken uniformly;
    a binary label so flips with 1 / (1 + e^eps). The draw is a keyed function of the row's id: the same in every
    epoch, after a resume and in the next training on the same secret. Evaluation rows keep their true labels.

    Reference: Warner 1965, Randomized response; Ghazi et al. 2021, Deep learning with label differential privacy
    (arXiv 2102.06062), section 1, for training on it; MindSpore Federated's label_dp has the same probabilities but
    redraws in every batch.

    Guarantee: eps-label differential privacy per row for the whole run, however many epochs (neighbours differ in one
    row's label; all else is post-processing), while the secret stays with the label's owner.
    """

    name = "label_dp"
    config = LabelDPConfig
    side = Side.ACTIVE
    protects = Asset.LABELS
    reference = "Warner 1965; Ghazi et al. 2021 (arXiv 2102.06062), section 1"
    rank = 10
    tasks = frozenset({"binary", "multiclass"})

    def __init__(self, settings: LabelDPConfig) -> None:
        super().__init__(settings)
        self._rows = 0
        self._flipped = 0
        self._classes = 2
        if settings.eps == 0:
            warnings.warn("label_dp at eps 0 is a coin flip: the labels carry nothing to learn", stacklevel=2)

    def setup(self, context: Context) -> None:
        """Learn the number of classes; refuses a regression."""
        super().setup(context)
        if context.task is not None:
            self._classes = max(2, len(context.task.classes))

    def labels(self, y: Tensor, ids: Tensor) -> Tensor:
        """Draw the protected labels: int64 (n,) codes and uint8 (n, 16) id digests in, codes out."""
        context = self.context
        drawn = randomized_response(y, ids, self._classes, self.settings.eps, context.secret, context.label_column)
        self._rows, self._flipped = len(y), int((drawn != y).sum())
        return drawn

    def event(self) -> Event:
        """One randomised response per row for the whole run."""
        return RandomizedResponse(self.settings.eps, self._classes)

    def figures(self) -> Mapping[str, float]:
        """Rows drawn, labels flipped, their share, and the share to expect."""
        return {
            "rows": self._rows,
            "labels_flipped": self._flipped,
            "flipped_share": self._flipped / max(self._rows, 1),
            "expected_share": flip_probability(self.settings.eps, self._classes),
        }

    def state_dict(self) -> dict[str, Any]:
        """What was counted; the draws themselves repeat from the secret."""
        return {"rows": self._rows, "flipped": self._flipped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._rows, self._flipped = int(state["rows"]), int(state["flipped"])
