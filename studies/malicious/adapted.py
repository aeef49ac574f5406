"""Attackers that know the guards, and hide from what these look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cutlayer.attacks.malicious.backdoor import Backdoor
from cutlayer.attacks.malicious.hijack import Hijack


@dataclass(eq=False)
class BlurredHijack(Hijack):
    """A hijack that bends honest gradients too, since a guard compares a row with the usual row of its batch.

    Attributes:
        blur: Part of the energy of each honest gradient that gets a random direction, 0 to 1.
    """

    blur: float = 0.15

    def gradients(
        self, rows: Tensor, embeddings: Mapping[str, Tensor], honest: Mapping[str, Tensor]
    ) -> Mapping[str, Tensor]:
        """Those of a hijack, with every other row's bent."""
        made = super().gradients(rows, embeddings, honest)
        return {name: self._blurred(sent, honest[name]) for name, sent in made.items()}

    def _blurred(self, sent: Tensor, honest: Tensor) -> Tensor:
        flat = honest.flatten(1)
        along = nn.functional.normalize(flat, dim=1)
        across = torch.randn_like(flat)
        across = nn.functional.normalize(across - (across * along).sum(dim=1, keepdim=True) * along, dim=1)
        length = flat.norm(dim=1, keepdim=True)
        bent = length * ((1 - self.blur) ** 0.5 * along + self.blur**0.5 * across)
        own = (sent == honest).flatten(1).all(dim=1)
        return torch.where(own.view(-1, *[1] * (sent.dim() - 1)), bent.view_as(sent), sent)


class EarlyBackdoor(Backdoor):
    """A backdoor from the first epoch on, so that no row's embedding changes its direction between two epochs."""

    def embedding(self, epoch: int, rows: Tensor, embedding: Tensor) -> Tensor:
        """The trigger for the known rows."""
        return super().embedding(epoch + 1, rows, embedding)
