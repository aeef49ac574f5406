"""SDAR: a simulator of the bottom model, matched to the real embeddings by an adversary, and a decoder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cutlayer.attacks.feature.base import FeatureAttack, Reconstruction, encoded_matrix, encoded_slices
from cutlayer.attacks.feature.inversion import column_weights
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Auxiliary, Knowledge, Need, Simulation
from cutlayer.errors import NotApplicable
from cutlayer.lazy import Tensor, functional, nn, torch

if TYPE_CHECKING:
    from cutlayer.attacks.completion.training import Standardised
    from cutlayer.problem.task import Task


BATCH, PASSES = 128, 128
"""Rows of each step, and how often every auxiliary row comes: a step for every auxiliary row."""
SIMULATORS = 2
STEPS_PER_DEVIATION = 64
"""Steps per deviation that embeddings are rounded to: adversaries multiply the error of a last bit."""
MIN_DEVIATION = 1e-6
"""Deviation over the largest value of a column, up to which it is rounding."""
HIDDEN = 128
LR = 2e-3
SIMULATOR_LR = 5e-3
DISCRIMINATOR_LR = 2e-3
DROPOUT, SLOPE = 0.4, 0.2
SIMULATOR_WEIGHT, DECODER_WEIGHT = 0.2, 0.01
"""Weights of the adversarial losses, lambda_1 and lambda_2 of the paper."""


class Sdar(FeatureAttack[Reconstruction]):
    """Reconstruct all columns of a row without knowing the embedding of any row whose features are known.

    The attacker has auxiliary rows of the same population with their labels, and its own top model. A simulator of the
    bottom model's design, with weights of its own, is trained so that the top model predicts the labels of the
    auxiliary rows from it. A discriminator is trained to tell its embeddings from the real ones, given the labels, and
    the simulator to deceive it. A decoder learns to rebuild the auxiliary rows from the simulator's embeddings and
    the labels; a second discriminator is trained to tell its output for real embeddings from the auxiliary rows, and
    the decoder to deceive that one. The result is the decoder's output for the real embeddings. What the labels alone
    tell of the features is in it.

    Where this differs from the paper: the attack runs once, against the final models, and not beside the training. The
    decoder and the discriminators are perceptrons, also for images. Where the published code normalises batches inside
    the decoder, its input is normalised here, the simulator's embeddings by their batch and the real ones by all.
    The discriminators learn at the decoder's rate and weigh more (0.2 and 0.01; the published code has 0.02 and 1e-5,
    and rates smaller by these factors), since it takes as many steps as there are auxiliary rows in place of 20,000.
    The output is shifted to the mean of the auxiliary rows and shrunk to no more than the spread of the decoded
    auxiliary rows. Two such attacks are averaged, and each column is shrunk by how little both agree on it. Without
    either, what cannot be identified is rebuilt worse than by the mean.

    Takes about 10 s of processor time for 1,000 auxiliary rows of a small network, on a busy machine.

    Reference: Zhu et al., Passive inference attacks on split learning via adversarial regularization (NDSS 2025, arXiv
    2310.10483), the attack on features in vanilla split learning; settings of the published code, zhxchd/SDAR_SplitNN.
    """

    name = "sdar"
    reference = "Zhu et al. 2025 (arXiv 2310.10483), vanilla split learning"
    needs = frozenset({Need.SIMULATOR})

    def check(self, view: FeatureView, knowledge: Knowledge) -> None:
        """Raise `NotApplicable` without labels or enough auxiliary rows."""
        super().check(view, knowledge)
        if view.labels is None:
            raise NotApplicable.expected(f"labels of the rows for {self.name}", "embeddings alone")

    def run(self, view: FeatureView, knowledge: Knowledge) -> Reconstruction:
        """Train all four networks, and decode the embeddings of the rows that are not auxiliary."""
        from cutlayer.attacks.completion.training import Standardised

        known = knowledge.auxiliary
        attacked = knowledge.auxiliary.unknown(len(view.rows))
        features = encoded_matrix(known.columns, known.codes, known.numbers)
        conditions = conditions_of(knowledge.simulation, view)
        embeddings = round_embeddings(view.embeddings[attacked])
        standard = Standardised(embeddings)
        width = embeddings.shape[1]
        real = torch.cat([standard(embeddings), conditions[attacked]], dim=1)
        made = []
        for _ in range(SIMULATORS):
            networks = Networks.sized(width, conditions.shape[1], features.shape[1], knowledge.simulation)
            game = AdversarialTraining(
                networks, known, features, conditions[known.indices], real, standard, knowledge.simulation, view
            )
            game.play()
            made.append(game.decoded())
        return Reconstruction(
            view.rows[attacked], shrink_to_agreement(torch.stack(made), features, encoded_slices(known.columns))
        )


def round_embeddings(embeddings: Tensor) -> Tensor:
    """Embeddings (n, width) rounded to a power of two near a 64th of the deviation of each column.

    A column that varies by rounding alone is constant: its values may lie on either side of a grid's border.
    """
    spread, largest = embeddings.std(dim=0, correction=0), embeddings.abs().amax(dim=0)
    unit = torch.maximum(spread, 1e-3 * largest).clamp_min(1e-30) / STEPS_PER_DEVIATION
    unit = torch.exp2(unit.log2().round())
    on_grid = (embeddings / unit).round() * unit
    return torch.where(spread > MIN_DEVIATION * largest, on_grid, on_grid[:1])


def shrink_to_agreement(made: Tensor, features: Tensor, slices: dict[str, slice]) -> Tensor:
    """Mean of several reconstructions (k, n, entries), each column shrunk to its mean by what they have in common.

    Args:
        made: Reconstructions.
        features: Encoded features of the auxiliary rows, (m, entries).
        slices: Entries of each column.
    """
    centre, count = features.mean(dim=0), len(made)
    moved = made - made.mean(dim=1, keepdim=True)
    result = moved.mean(dim=0)
    for entries in slices.values():
        total = moved[:, :, entries].sum(dim=0).square().sum()
        single = moved[:, :, entries].square().sum()
        common = (
            (total - single) / (count - 1) / total.clamp_min(1e-12) * count
        )  # covariance of two over variance of mean
        result[:, entries] *= common.clamp(0, 1)
    return (centre + result).clamp(features.amin(dim=0), features.amax(dim=0))


def conditions_of(simulation: Simulation, view: FeatureView) -> Tensor:
    """Labels of all rows as inputs of a network: one column for each class, or the scaled target, (n, columns)."""
    task: Task = simulation.task
    assert view.labels is not None  # noqa: S101 - `check` refuses a view without them
    if task.kind == "regression":
        return ((view.labels.float() - task.center) / task.scale)[:, None]
    return functional.one_hot(view.labels.long(), len(task.classes)).float()


@dataclass(frozen=True, eq=False)
class Networks:
    """The four networks.

    Attributes:
        simulator: From codes and numbers to embeddings.
        decoder: From standardised embeddings and labels to encoded features.
        of_embeddings: From standardised embeddings and labels to how real they are.
        of_features: From encoded features and labels to how real they are.
    """

    simulator: nn.Module
    decoder: nn.Module
    of_embeddings: nn.Module
    of_features: nn.Module

    @classmethod
    def sized(cls, width: int, conditions: int, entries: int, simulation: Simulation) -> Networks:
        """Networks for embeddings of so many columns, columns of labels, and entries of encoded features."""
        decoder = nn.Sequential(
            nn.Linear(width + conditions, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(),
            nn.Linear(HIDDEN, entries),
        )  # fmt: skip
        judges = _discriminator(width + conditions), _discriminator(entries + conditions)
        return cls(simulation.build().train(), decoder, *judges)

    def judges(self) -> Iterator[nn.Module]:
        """Both discriminators."""
        yield from (self.of_embeddings, self.of_features)

    def freeze_judges(self, frozen: bool) -> None:
        """Whether losses leave the discriminators as they are."""
        for judge in self.judges():
            judge.requires_grad_(not frozen)


def _discriminator(inputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, HIDDEN), nn.LeakyReLU(SLOPE), nn.Linear(HIDDEN, HIDDEN), nn.LeakyReLU(SLOPE),
        _Dropout(), nn.Linear(HIDDEN, 1),
    )  # fmt: skip


class _Dropout(nn.Module):
    """Dropout by uniform numbers: the Bernoulli numbers of `nn.Dropout` took a quarter of the attack's time."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rand_like(x).gt_(DROPOUT).div_(1 - DROPOUT)


@dataclass(frozen=True, eq=False)
class AdversarialTraining:
    """The training of the networks.

    Attributes:
        networks: The networks.
        known: The auxiliary rows.
        features: Their encoded features, (m, entries).
        conditions: Their labels, (m, columns).
        real: Standardised embeddings and labels of the attacked rows, (n, width + columns).
        standard: Scales embeddings by the mean and deviation of the real ones.
        simulation: The top model.
        view: The attacked view.
    """

    networks: Networks
    known: Auxiliary
    features: Tensor
    conditions: Tensor
    real: Tensor
    standard: Standardised
    simulation: Simulation
    view: FeatureView

    def play(self) -> None:
        """Train for as many steps as there are auxiliary rows."""
        from torch.optim.lr_scheduler import LinearLR

        from cutlayer.kernels.fits.optimizers import Adam

        nets = self.networks
        steps = max(1, len(self.features) * PASSES // BATCH)
        tuned = [
            {"params": list(part.parameters()), "lr": rate}
            for part, rate in ((nets.simulator, SIMULATOR_LR), (nets.decoder, LR))
            if list(part.parameters())
        ]
        learning = Adam(tuned, fused=True)
        judging = Adam([p for judge in nets.judges() for p in judge.parameters()], DISCRIMINATOR_LR, fused=True)
        fading = LinearLR(learning, 1.0, 0.0, steps)
        weights = column_weights(self.features, encoded_slices(self.known.columns))
        for _ in range(steps):
            rows = torch.randint(len(self.features), (BATCH,))
            real = self.real[torch.randint(len(self.real), (BATCH,))]
            nets.freeze_judges(True)
            loss, simulated, rebuilt = self._losses(rows, real, weights)
            learning.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            learning.step()
            fading.step()
            nets.freeze_judges(False)
            judging.zero_grad()
            self._judged(rows, real, simulated, rebuilt).backward()  # type: ignore[no-untyped-call]
            judging.step()

    def _losses(self, rows: Tensor, real: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Loss of simulator and decoder, the simulated embeddings, and what the decoder makes of the real ones."""
        nets = self.networks
        features = self.features[rows]
        conditions = self.conditions[rows]
        simulated = nets.simulator(self.known.codes[rows], self.known.numbers[rows]).flatten(1)
        assert self.view.labels is not None  # noqa: S101 - `check` refuses a view without them
        indices = self.known.indices[rows]
        predicted = self.simulation.task.loss(self.simulation.top(simulated, indices), self.view.labels[indices])
        scaled = torch.cat([self.standard(simulated), conditions], dim=1)
        own = torch.cat([_by_batch(scaled[:, : simulated.shape[1]].detach()), conditions], dim=1)
        decoded, rebuilt = nets.decoder(torch.cat([own, real])).split(BATCH)
        wrong = ((decoded - features).square() * weights).sum(dim=1).mean()
        seen = torch.cat([rebuilt, real[:, -conditions.shape[1] :]], dim=1)
        deceived = SIMULATOR_WEIGHT * _as_real(nets.of_embeddings(scaled))
        deceived = deceived + DECODER_WEIGHT * _as_real(nets.of_features(seen))
        return predicted + wrong + deceived, scaled.detach(), seen.detach()

    def _judged(self, rows: Tensor, real: Tensor, simulated: Tensor, rebuilt: Tensor) -> Tensor:
        """Loss of both discriminators."""
        truth = torch.cat([self.features[rows], self.conditions[rows]], dim=1)
        of_embeddings = self.networks.of_embeddings(torch.cat([real, simulated])).split(BATCH)
        of_features = self.networks.of_features(torch.cat([truth, rebuilt])).split(BATCH)
        return sum((_as_real(a) + _as_real(-b) for a, b in (of_embeddings, of_features)), torch.zeros(()))

    def decoded(self) -> Tensor:
        """Encoded features of the attacked rows, (n, entries)."""
        decoder, features = self.networks.decoder, self.features
        with torch.no_grad():
            simulated = self.networks.simulator.eval()(self.known.codes, self.known.numbers).flatten(1)
            own = decoder(torch.cat([_by_batch(self.standard(simulated)), self.conditions], dim=1))
            low, high = features.amin(dim=0), features.amax(dim=0)
            rebuilt = decoder(self.real).clamp(low, high)
            spread = rebuilt.std(dim=0, correction=0)
            shrunk = (own.std(dim=0, correction=0) / spread.clamp_min(1e-6)).clamp_max(1.0)
            moved: Tensor = features.mean(dim=0) + shrunk * (rebuilt - rebuilt.mean(dim=0))
            return moved.clamp(low, high)


def _by_batch(embeddings: Tensor) -> Tensor:
    """Embeddings (n, width) near scale 1 with the mean and deviation of their batch taken out."""
    return functional.batch_norm(embeddings, None, None, training=True, eps=1e-2)


def _as_real(scores: Tensor) -> Tensor:
    """Mean loss of scores (n, 1) that should say real."""
    return functional.softplus(-scores).mean()
