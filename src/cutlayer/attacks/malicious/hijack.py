"""Hijacking of a partner's training: gradients that make its bottom model an encoder which the sender inverts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cutlayer.attacks.feature.base import encoded_matrix, encoded_slices
from cutlayer.attacks.feature.inversion import column_weights
from cutlayer.attacks.malicious.base import Tampering
from cutlayer.lazy import Tensor, nn, torch

if TYPE_CHECKING:
    from cutlayer.attacks.knowledge import Auxiliary
    from cutlayer.data.batches import Schedule

HIDDEN = 128
BATCH, STEPS = 128, 4
"""Known rows of a step of the inverse's training, and such steps for each batch that arrives."""
LR = 2e-3
SLOPE = 0.2


class Inverse:
    """The inverse of one partner's bottom model, which learns while that model is trained.

    Args:
        known: Rows whose features the attacker knows; their `indices` are row numbers of the common order.
        width: Number of columns of the embedding.

    Attributes:
        network: From embeddings to encoded features.
    """

    def __init__(self, known: Auxiliary, width: int) -> None:
        from cutlayer.kernels.fits.optimizers import Adam

        self._features = encoded_matrix(known.columns, known.codes, known.numbers)
        self._weights = column_weights(self._features, encoded_slices(known.columns))
        self._index = torch.full((int(known.indices.max()) + 1,), -1)
        self._index[known.indices] = torch.arange(len(known.indices))
        self._latest = torch.zeros(len(known.indices), width)
        self._seen = torch.zeros(len(known.indices), dtype=torch.bool)
        self.network = nn.Sequential(
            nn.Linear(width, HIDDEN), nn.LeakyReLU(SLOPE), nn.Linear(HIDDEN, HIDDEN), nn.LeakyReLU(SLOPE),
            nn.Linear(HIDDEN, self._features.shape[1]),
        )  # fmt: skip
        self._optimizer = Adam(list(self.network.parameters()), LR)

    def known_in(self, rows: Tensor) -> Tensor:
        """Index among the known rows of each of some rows, int64 (n,); -1 where its features are not known."""
        within = rows < len(self._index)
        return torch.where(within, self._index[rows.clamp_max(len(self._index) - 1)], -1)

    def gradient(self, index: Tensor, embeddings: Tensor) -> Tensor:
        """Learn from the embeddings of known rows, and return the gradient of their mean reconstruction error.

        Args:
            index: Indices of known rows, int64 (m,).
            embeddings: Their embeddings as they just arrived, float32 (m, width).
        """
        self._latest[index] = embeddings
        self._seen[index] = True
        with torch.enable_grad():
            for _ in range(STEPS):
                seen = self._seen.nonzero().flatten()
                chosen = seen[torch.randint(len(seen), (BATCH,))]
                self._optimizer.zero_grad()
                self._error(self._latest[chosen], chosen).backward()  # type: ignore[no-untyped-call]
                self._optimizer.step()
            leaf = embeddings.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(self._error(leaf, index), leaf)
        return gradient

    def _error(self, embeddings: Tensor, index: Tensor) -> Tensor:
        missing = (self.network(embeddings) - self._features[index]).square()
        error: Tensor = (missing * self._weights).sum(dim=1).mean()
        return error


@dataclass(eq=False)
class Hijack(Tampering):
    """Train the partners' bottom models into encoders that the attacker can invert, by the rows that it knows.

    The attacker is the active party. It knows the features of some training rows, as the curious `inversion` does.
    While all parties train, it trains an inverse of each partner's bottom model on the embeddings of these rows. It
    returns the gradients of the task for all other rows, and for these rows the gradients of the inverse's error: the
    bottom model learns to send what the inverse can rebuild, and the model of the task hardly suffers.

    Where this differs from the paper: the paper's attacker knows rows of the population but no embedding of them, so it
    needs a pilot of the bottom model, and a discriminator to pull the partner's embeddings towards the pilot's; every
    row is sent the discriminator's gradient. With known training rows, which a label owner has of customers in common,
    the error itself has a gradient, and most rows can have honest ones. The paper's form is not here.

    Reference: Pasquini, Ateniese and Bernaschi, Unleashing the tiger: inference attacks on split learning (CCS 2021),
    section 3, the feature-space hijacking attack.

    Attributes:
        known: From the batches of the run to the known rows of each partner, by name; see `Inverse`.
        strength: Size of the gradients of the known rows of a batch, over that of the batch's honest gradients: both
            are the root mean square over all rows. The attacker lowers it to stay below a guard.
        cover: Part of the energy of each of these gradients that has the direction of the row's honest one, 0 to 1, by
            which an attacker stays below a guard that judges the directions of single rows.
    """

    name = "hijack"
    target = "features"
    known: Callable[[Schedule], Mapping[str, Auxiliary]]
    strength: float = 1.0
    cover: float = 0.0

    def begin(self, schedule: Schedule) -> None:
        """Choose the known rows."""
        self._known = self.known(schedule)
        self._inverses: dict[str, Inverse] = {}
        self._sizes: dict[str, float] = {}

    def gradients(
        self, rows: Tensor, embeddings: Mapping[str, Tensor], honest: Mapping[str, Tensor]
    ) -> Mapping[str, Tensor]:
        """The honest gradients, with others for the known rows."""
        return {name: self._hijacked(name, rows, embeddings[name], task) for name, task in honest.items()}

    def _hijacked(self, name: str, rows: Tensor, embedding: Tensor, task: Tensor) -> Tensor:
        if name not in self._known:
            return task
        flat = embedding.detach().flatten(1).cpu()
        if name not in self._inverses:
            self._inverses[name] = Inverse(self._known[name], flat.shape[1])
        index = self._inverses[name].known_in(rows)
        chosen = index >= 0
        # The largest so far: honest gradients shrink while the models learn, and the hijack must not.
        size = max(float(task.square().sum().sqrt()), self._sizes.get(name, 0.0))
        self._sizes[name] = size
        if not bool(chosen.any()) or not size:
            return task
        gradient = self._inverses[name].gradient(index[chosen], flat[chosen])
        sent = task.detach().clone()
        if self.cover:
            gradient = _covered(gradient, sent[chosen.to(sent.device)].flatten(1).cpu(), self.cover)
        scale = self.strength * size / float(gradient.square().sum().sqrt().clamp_min(1e-30))
        sent[chosen.to(sent.device)] = (scale * gradient).view(-1, *task.shape[1:]).to(sent)
        return sent


def _covered(gradient: Tensor, honest: Tensor, cover: float) -> Tensor:
    """Gradients of one length each: the honest direction with a part of the energy, and what is across it of another.

    Args:
        gradient: Gradients of an attack (m, width).
        honest: Honest gradients of the same rows (m, width).
        cover: Part of the energy.
    """
    along = nn.functional.normalize(honest, dim=1)
    across = nn.functional.normalize(gradient - (gradient * along).sum(dim=1, keepdim=True) * along, dim=1)
    covered: Tensor = cover**0.5 * along + (1 - cover) ** 0.5 * across
    return covered
