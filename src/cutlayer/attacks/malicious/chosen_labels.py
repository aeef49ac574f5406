"""Chosen labels: the label owner trains on what it wants the embeddings to tell, by gradients of the usual form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cutlayer.attacks.feature.base import encoded_matrix
from cutlayer.attacks.malicious.base import Tampering
from cutlayer.lazy import Tensor, torch

if TYPE_CHECKING:
    from cutlayer.attacks.knowledge import Auxiliary
    from cutlayer.data.batches import Schedule


@dataclass(eq=False)
class ChosenLabels(Tampering):
    """Train on labels that say which side of a direction of the partners' columns a row is on, where that is known.

    The attacker is the active party, which knows the features of some training rows as `inversion` does. Its labels of
    these rows become the quantile of their first principal component, in as many groups as there are classes; all
    other rows keep theirs, and several partners share the known ones. The bottom models learn to send that component.
    The gradients are those of an honest training on these labels, so that no guard on their form can see anything.

    Reference: this project; the idea to train an encoder by a task of the attacker's own is that of Pasquini, Ateniese
    and Bernaschi, Unleashing the tiger (CCS 2021), section 5, property inference.

    Attributes:
        known: From the batches of the run to the known rows of each partner, by name.
    """

    name = "chosen_labels"
    target = "features"
    known: Callable[[Schedule], Mapping[str, Auxiliary]]

    def begin(self, schedule: Schedule) -> None:
        """Choose the known rows."""
        self._known = self.known(schedule)

    def labels(self, labels: Tensor) -> Tensor:
        """The labels, with those of the known rows chosen by their columns."""
        classes = torch.unique(labels[labels >= 0])
        chosen = labels.clone()
        for place, known in enumerate(self._known.values()):
            features = encoded_matrix(known.columns, known.codes, known.numbers).double()
            centred = features - features.mean(dim=0)
            component = centred @ torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -1]
            ranks = component.argsort().argsort()
            mine = slice(place, None, len(self._known))
            chosen[known.indices[mine]] = classes[ranks[mine] * len(classes) // len(ranks)]
        return chosen
