"""URVFL: a hijack whose gradients are those of a discriminator that also knows the classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cutlayer.attacks.feature.base import encoded_matrix, encoded_slices
from cutlayer.attacks.feature.inversion import column_weights
from cutlayer.attacks.knowledge import Auxiliary
from cutlayer.attacks.malicious.base import Tampering
from cutlayer.data.batches import Schedule
from cutlayer.kernels.fits.optimizers import Adam

HIDDEN, SLOPE, LR = 128, 0.2, 2e-3
BATCH, STEPS, FIRST_STEPS = 128, 4, 600
"""Known rows of a step, steps of the discriminator for each batch, and steps of the autoencoder before the run."""


class Pilot:
    """What the attacker has for one partner: an autoencoder of the known rows, and a discriminator of 2 C classes.

    Args:
        known: Rows whose columns the attacker knows.
        labels: Their labels, int64 (m,).
        classes: Number of classes C.
        like: Embeddings that arrived, float32 (n, width); the encoder has their width, and their signs.
        linear: Whether the discriminator has no hidden layer, so that its gradients lie near few directions.
    """

    def __init__(self, known: Auxiliary, labels: Tensor, classes: int, like: Tensor, linear: bool) -> None:
        self._features = encoded_matrix(known.columns, known.codes, known.numbers)
        self._weights = column_weights(self._features, encoded_slices(known.columns))
        self._labels, width, columns = labels, like.shape[1], self._features.shape[1]
        end: list[nn.Module] = [nn.ReLU()] if bool((like >= 0).all()) else []
        self._encoder = nn.Sequential(_network(columns, width), *end)
        self._decoder = _network(width, columns)
        self._judge = nn.Linear(width, 2 * classes) if linear else _network(width, 2 * classes)
        self._optimizer = Adam(list(self._judge.parameters()), LR)
        with torch.enable_grad():
            self._learn_to_rebuild()

    def gradient(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The gradient that pulls embeddings to those of known rows of the same class; then the discriminator learns.

        Args:
            embeddings: As they arrived, float32 (n, width).
            labels: Labels of their rows, int64 (n,).
        """
        entropy = nn.functional.cross_entropy
        with torch.enable_grad():
            leaf = embeddings.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(entropy(self._judge(leaf), 2 * labels + 1), leaf)
            for _ in range(STEPS):
                chosen = self._chosen()
                with torch.no_grad():
                    own = self._encoder(self._features[chosen])
                self._optimizer.zero_grad()
                real = entropy(self._judge(embeddings), 2 * labels)
                (real + entropy(self._judge(own), 2 * self._labels[chosen] + 1)).backward()  # type: ignore[no-untyped-call]
                self._optimizer.step()
        return gradient

    def rebuilt(self, embeddings: Tensor) -> Tensor:
        """What the decoder makes of embeddings, with the mean of the known rows and at most their spread, (n, columns).

        Far from the encoder's embeddings its output has no scale.
        """
        with torch.no_grad():
            made = self._decoder(embeddings).clamp(self._features.amin(dim=0), self._features.amax(dim=0))
        spread = (self._features.std(dim=0) / made.std(dim=0).clamp_min(1e-9)).clamp_max(1.0)
        rebuilt: Tensor = self._features.mean(dim=0) + (made - made.mean(dim=0)) * spread
        return rebuilt

    def _learn_to_rebuild(self) -> None:
        optimizer = Adam([*self._encoder.parameters(), *self._decoder.parameters()], LR)
        for _ in range(FIRST_STEPS):
            rows = self._features[self._chosen()]
            optimizer.zero_grad()
            missing = (self._decoder(self._encoder(rows)) - rows).square()
            (missing * self._weights).sum(dim=1).mean().backward()
            optimizer.step()

    def _chosen(self) -> Tensor:
        return torch.randint(len(self._features), (BATCH,))


@dataclass(eq=False)
class Urvfl(Tampering):
    """Pull each row's embedding to what the attacker's own encoder gives rows of its class, for every row.

    The attacker is the active party. Before the run it trains an encoder and a decoder on rows whose columns it knows.
    While the partners train, a discriminator learns to name the class of an embedding, and whether it is the partner's
    or the encoder's. The partner is sent the gradient by which its embedding would count as the encoder's of the row's
    own class. In the end the decoder rebuilds the partner's rows.

    Where this differs from the paper: networks are perceptrons, the rates are larger and the discriminator takes four
    steps a batch, since runs are short. Gradients are scaled to the size of the batch's honest ones. The known rows are
    rows of the run, as a hijack has them; the attacker of the paper needs none of these.

    Reference: Yao et al., URVFL: undetectable data reconstruction attack on vertical federated learning (NDSS 2025,
    arXiv 2404.19582); losses as in the published code, duanyiyao/URVFL.

    Attributes:
        known: From the batches of the run to the known rows of each partner, by name.
        linear: Whether the discriminator is linear: an attacker that knows that a guard counts directions.
    """

    name = "urvfl"
    target = "features"
    known: Callable[[Schedule], Mapping[str, Auxiliary]]
    linear: bool = False

    def begin(self, schedule: Schedule) -> None:
        """Choose the known rows."""
        self._known = self.known(schedule)
        self.pilots: dict[str, Pilot] = {}
        self._sizes: dict[str, float] = {}

    def labels(self, labels: Tensor) -> Tensor:
        """Remember the labels."""
        self._labels = labels.long()
        return labels

    def gradients(
        self, rows: Tensor, embeddings: Mapping[str, Tensor], honest: Mapping[str, Tensor]
    ) -> Mapping[str, Tensor]:
        """The discriminator's gradients for all rows of every partner."""
        return {name: self._pulled(name, rows, embeddings[name], task) for name, task in honest.items()}

    def _pulled(self, name: str, rows: Tensor, embedding: Tensor, task: Tensor) -> Tensor:
        if name not in self._known:
            return task
        flat = embedding.detach().flatten(1).cpu()
        if name not in self.pilots:
            known, classes = self._known[name], int(self._labels.max()) + 1
            self.pilots[name] = Pilot(known, self._labels[known.indices], classes, flat, self.linear)
        gradient = self.pilots[name].gradient(flat, self._labels[rows])
        size = max(float(task.square().sum().sqrt()), self._sizes.get(name, 0.0))
        self._sizes[name] = size
        scale = size / float(gradient.square().sum().sqrt().clamp_min(1e-30))
        return (scale * gradient).view_as(task).to(task)


def _network(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, HIDDEN), nn.LeakyReLU(SLOPE), nn.Linear(HIDDEN, HIDDEN), nn.LeakyReLU(SLOPE),
        nn.Linear(HIDDEN, outputs),
    )  # fmt: skip
