"""The guarantee, tested: canaries that differ in what a ledger says nobody can tell, and a bound on what can be told.

A bound above the ledger's epsilon shows that the mechanism is not what the ledger says. One below shows nothing more
than that this test found no fault.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from cutlayer.accounting import Composition, GaussianRelease, RandomizedResponse
from cutlayer.kernels import gaussian_mechanism as gaussian
from cutlayer.kernels.empirical_epsilon import epsilon_bound, mu_bound
from cutlayer.protections.base import Context, Mode, PassiveView
from cutlayer.protections.chain import Chain

CONFIDENCE = 0.999
"""A correct mechanism is blamed in one test of a thousand; at the usual 0.95 it would be in some of a hundred."""
_BATCH = 4096
_LENGTH = 1e6
"""Norm of a canary's embedding: any clipping makes it as long as it lets pass."""


@dataclass(frozen=True)
class GuaranteeTest:
    """One guarantee, and what a game against its mechanism showed.

    Attributes:
        epsilon, delta: of the ledger.
        bound: lower bound on epsilon at the same delta, with the stated confidence.
        reach: the largest bound that so many canaries can show; a fault that spends more than this looks like this.
        canaries: rows played with, of both neighbours together.
        releases: of each canary in one run.
    """

    protection: str
    party: str
    protects: Literal["labels", "features", "model"]
    epsilon: float
    delta: float
    bound: float
    reach: float
    confidence: float
    canaries: int
    releases: int

    @property
    def exceeded(self) -> bool:
        """Whether the mechanism spends more than the ledger says."""
        return self.bound > self.epsilon

    @property
    def telling(self) -> bool:
        """Whether there are canaries enough for a fault to show at all."""
        return self.reach > self.epsilon


@dataclass(frozen=True)
class Outcome:
    """What a game showed: see `GuaranteeTest`."""

    bound: float
    reach: float
    canaries: int
    releases: int

    def against(
        self,
        event: RandomizedResponse | GaussianRelease,
        delta: float,
        *,
        protection: str,
        party: str,
        protects: Literal["labels", "features", "model"],
    ) -> GuaranteeTest:
        """Hold it against what the ledger says the event costs at `delta`."""
        epsilon = Composition.of([event]).epsilon(delta)
        stated = 0.0 if isinstance(event, RandomizedResponse) else delta
        return GuaranteeTest(protection, party, protects, epsilon, stated, confidence=CONFIDENCE, **vars(self))


def label_game(votes: Tensor, truth: Tensor, releases: int) -> Outcome:
    """Tell rows of class 1 from rows of class 0 by the labels that training used for them.

    Args:
        votes: (n,) how many of the labels used for a row over the whole run were 1, less how many were 0.
        truth: (n,) its true class, 0 or 1.
        releases: labels used for a row.
    """
    absent, present = votes[truth == 0], votes[truth == 1]
    bound = epsilon_bound(absent, present, confidence=CONFIDENCE)
    reach = epsilon_bound(torch.zeros(len(absent)), torch.ones(len(present)), confidence=CONFIDENCE)
    return Outcome(bound, reach, len(truth), releases)


def embedding_game(chain: Chain, context: Context, event: GaussianRelease, delta: float, canaries: int) -> Outcome:
    """Tell canaries by the sum of all that a run releases of them.

    The neighbours' embeddings are opposite and longer than any clipping norm. Training rows and held-out rows are
    played apart, since they are released on other occasions; the bound is the larger, each with half the risk.

    Args:
        chain: the party's protections, fresh.
        context: of the run, with a key of its own.
        event: what the ledger says is released.
        delta: where epsilon is stated.
        canaries: how many rows, of both kinds and neighbours together.
    """
    plan = event.releases
    kinds = [[(Mode.TRAIN, plan.training)], [(Mode.EVALUATE, max(plan.validation, plan.test))]]
    played = [[*kind, (Mode.SERVE, plan.serving)] for kind in kinds if kind[0][1]]
    confidence, rows = 1 - (1 - CONFIDENCE) / len(played), canaries // len(played)
    signs = torch.ones(rows)
    signs[: rows // 2] = -1
    scores = _scores(chain, replace(context, training=torch.arange(rows)), played, signs)
    mu = max(mu_bound(one[signs < 0], one[signs > 0], confidence) for one in scores)
    most = mu_bound(torch.zeros(rows // 2), torch.ones(rows - rows // 2), confidence)
    return Outcome(gaussian.epsilon(mu, delta), gaussian.epsilon(most, delta), rows * len(played), plan.most)


def _scores(chain: Chain, context: Context, played: list[list[tuple[Mode, int]]], signs: Tensor) -> list[Tensor]:
    """For each kind of rows, (rows,): the sum of a row's releases along the line on which its neighbours lie."""
    rows, width = len(signs), context.widths[context.party]
    chain.setup(context)
    draw = torch.Generator().manual_seed(0)
    found = []
    for place, occasions in enumerate(played):
        lines = torch.nn.functional.normalize(torch.randn(rows, width, generator=draw), dim=1)
        numbers = torch.arange(rows) + place * rows
        total = torch.zeros(rows, dtype=torch.float64)
        for mode, count in occasions:
            for epoch in range(count):
                total += _released(chain, mode, epoch, numbers, lines, signs)
        found.append(total)
    return found


@torch.no_grad()
def _released(chain: Chain, mode: Mode, epoch: int, numbers: Tensor, lines: Tensor, signs: Tensor) -> Tensor:
    """Release every canary once, (rows,) along its line."""
    embeddings = lines * (signs * _LENGTH)[:, None]
    first = int(numbers[0])
    batches = torch.split(torch.arange(len(numbers)), _BATCH)
    parts = []
    for place, batch in enumerate(batches):
        step = epoch * len(batches) + place if mode is Mode.TRAIN else place
        part = str(first)  # the kinds of rows are counted apart, as the parts of a split are
        view = PassiveView(mode, epoch, step, numbers[batch], lambda rows: embeddings[rows - first], part=part)
        released = chain.embedding_out(embeddings[batch], view)
        parts.append((released.double() * lines[batch]).sum(1))
    return torch.cat(parts)
