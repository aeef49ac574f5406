"""Empirical tests of guarantees: how well two neighbours are distinguished, as a lower bound on epsilon.

A bound above the ledger's epsilon shows that the mechanism is not the one in the ledger. A bound below it shows only
that this test detected no fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cutlayer.accounting import DPSGD, Composition, GaussianRelease, RandomizedGrade, RandomizedResponse
from cutlayer.accounting.total import Asset
from cutlayer.kernels.noise import gaussian_mechanism as gaussian
from cutlayer.kernels.noise.empirical_epsilon import mu_bound, one_run_epsilon
from cutlayer.results.guarantee import GuaranteeTest

CONFIDENCE = 0.999
"""A correct mechanism fails one test of a thousand; at the usual 0.95 it would fail one of twenty."""


_NoisyEvent = RandomizedResponse | RandomizedGrade | GaussianRelease | DPSGD


@dataclass(frozen=True)
class GameResult:
    """Result of a game; the attributes are those of `GuaranteeTest`."""

    lower_bound: float
    detectable: float
    canaries: int
    releases: int

    def against(
        self, event: _NoisyEvent, delta: float, *, protection: str, party: str, protects: Asset
    ) -> GuaranteeTest:
        """Compare the bound with the epsilon of the ledger's event at `delta`, which a pure one does not have."""
        epsilon = Composition.of([event]).epsilon(delta)
        stated = 0.0 if isinstance(event, RandomizedResponse | RandomizedGrade) else delta
        names = {"protection": protection, "party": party, "protects": protects}
        return GuaranteeTest(**names, epsilon=epsilon, delta=stated, confidence=CONFIDENCE, **vars(self))


@dataclass(frozen=True)
class Score:
    """One statistic of every canary.

    Attributes:
        name: Name of the statistic and of the group of rows.
        values: Value of each canary, float64 (n,), larger where the second neighbour is more likely.
        present: Whether each canary is the second neighbour, bool (n,).
    """

    name: str
    values: Tensor
    present: Tensor


def label_game(votes: Tensor, truth: Tensor, releases: int) -> GameResult:
    """Guess the class of each row as the label that training used for it most often, or its grade as the one sent.

    Two tests share the risk: the first guesses wherever there is a majority, the second only where the majority is
    largest, which detects labels that were drawn several times. The bound is that of one run with many canaries,
    which assumes nothing about how the canaries' draws depend on each other; on the same canaries it is tighter than a
    bound of both error rates (0.97 against 0.94 of eps 1 at 50,000).

    Args:
        votes: Count of the labels of class 1 used for each row over the whole run, minus that of class 0, int64 (n,).
        truth: True class of each row, 0 or 1, drawn by a fair coin, int64 (n,).
        releases: Number of labels used for a row.
    """
    confidence = 1 - (1 - CONFIDENCE) / 2
    margin = votes.abs()
    bounds = []
    for guessed in (margin > 0, (margin > 0) & (margin == margin.max())):
        correct = int(((votes > 0) == (truth == 1))[guessed].sum())
        bounds.append(one_run_epsilon(correct, int(guessed.sum()), confidence=confidence))
    detectable = one_run_epsilon(len(truth), len(truth), confidence=confidence)
    return GameResult(max(bounds), detectable, len(truth), releases)


def gaussian_game(scores: Sequence[Score], delta: float, releases: int) -> GameResult:
    """Distinguish the neighbours by each score and take the largest bound; the scores share the risk equally.

    Args:
        scores: Scores of a single run.
        delta: Delta of the bound on epsilon.
        releases: Number of releases of the row that is released most often.

    Raises:
        DataError: Fewer than 2 canaries of a neighbour in a score.
    """
    confidence = 1 - (1 - CONFIDENCE) / len(scores)
    mu = max(mu_bound(score.values[~score.present], score.values[score.present], confidence) for score in scores)
    sizes = [(int((~score.present).sum()), int(score.present.sum())) for score in scores]
    absent, present = max(sizes, key=sum)
    upper = mu_bound(torch.zeros(absent), torch.ones(present), confidence)
    canaries = sum(len(score.values) for score in scores if score.name.startswith("sum"))
    return GameResult(gaussian.epsilon(mu, delta), gaussian.epsilon(upper, delta), canaries, releases)
