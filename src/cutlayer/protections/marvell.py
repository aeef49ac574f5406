"""Marvell: the Gaussian noise of least power that makes the classes' gradients hard to distinguish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from cutlayer.config import FrozenModel
from cutlayer.kernels.class_statistics import ClassStatistics, Contrast, class_statistics, one_against_rest
from cutlayer.kernels.marvell import SumKLNoise, minimise_sum_kl, power_for_sum_kl
from cutlayer.kernels.noise import standard_normal
from cutlayer.protections.base import ActiveView, Asset, Protection, Side

_RANGE = "a sum_kl of 0.16 to 0.64 is the range the authors recommend"
_GROWTH = 1.5


class MarvellConfig(FrozenModel):
    """Difficulty of distinguishing the classes: exactly one of the first three.

    Attributes:
        sum_kl: target of KL(positive || negative) + KL(negative || positive) in nats; 0.16 to 0.64 is recommended
            (leak AUC 0.5 to 0.6 at a loss of test AUC under 0.02), 3.6 hides little, 0.01 costs about 0.04.
        error_lower_bound: L in (0, 0.5), of the mean of a detector's false positive and false negative rates; the
            target is then (2 - 4 L)^2.
        s: power of the noise over the squared distance of the class means, without a target (the paper uses 0.1 to 4,
            the study of forward leakage 8).
        search: `exact`: the smallest power that reaches the target. `geometric`: the published search, from `s` = 1
            upwards by 1.5, which overshoots and adds noise where none is needed.
    """

    sum_kl: float | None = Field(default=None, gt=0, strict=True, description=_RANGE)
    error_lower_bound: float | None = Field(
        default=None, gt=0, lt=0.5, strict=True, description="0.3 to 0.4 is sum_kl 0.64 to 0.16"
    )
    s: float | None = Field(default=None, gt=0, strict=True, description="the paper uses 0.1 to 4")
    search: Literal["exact", "geometric"] = "exact"

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        given = [name for name in ("sum_kl", "error_lower_bound", "s") if getattr(self, name) is not None]
        if len(given) != 1:
            got = " and ".join(given) or "none"
            raise ValueError(f"exactly one of sum_kl, error_lower_bound and s, got {got}; {_RANGE}")
        if self.s is not None and self.search != "exact":
            raise ValueError("search with sum_kl or error_lower_bound, got it with s; a fixed s searches for nothing")
        return self

    @property
    def target(self) -> float | None:
        """SumKL to reach; `None` with a fixed `s`."""
        if self.error_lower_bound is not None:
            return (2.0 - 4.0 * self.error_lower_bound) ** 2
        return self.sum_kl


@dataclass(frozen=True)
class _ClassNoise:
    """Noise of each class.

    Attributes:
        directions: unit vector of each class, float32 (classes, width).
        deviations: standard deviations along that direction alone and in every direction, float64 (2, classes).
    """

    directions: Tensor
    deviations: Tensor

    @property
    def present(self) -> Tensor:
        """Whether each class gets noise, bool (classes,)."""
        return self.deviations.any(0)

    def set(self, code: int, direction: Tensor, along: float, across: float) -> None:
        """Set one class's noise from its variances along the direction and across it."""
        self.directions[code] = direction
        self.deviations[:, code] = torch.tensor([max(along - across, 0.0), across], dtype=torch.float64).sqrt()

    def updated(self, newer: _ClassNoise) -> _ClassNoise:
        """A copy with the noise of every class that `newer` has noise for."""
        present = newer.present
        return _ClassNoise(
            torch.where(present[:, None], newer.directions, self.directions),
            torch.where(present, newer.deviations, self.deviations),
        )


class Marvell(Protection[MarvellConfig]):
    """Add to each class's gradients the noise that minimises sumKL between the classes under a bound on its power.

    With u, v the mean variances per coordinate of the negatives' and positives' gradients of the batch, g the squared
    distance of their means, p the positive share and d the width, the optimum of the paper's four-variable programme
    gives class x the noise eps sqrt(lam1x - lam2x) along the unit vector of the difference of means plus
    sqrt(lam2x) N(0, I). Labels are the protected ones, so under label DP this is post-processing of them.

    Where it differs from the published code (github.com/OscarcarLi/label-protection): the optimum is exact, not the end
    of an alternation from a random start; the power is the smallest that reaches the target, where theirs goes from g
    up by 1.5 and overshoots (`search: geometric` does the same, with the exact optimum); where the clean batch
    satisfies the target nothing is added and evidence says so, where theirs adds noise of power g. Their code divides
    by zero on a batch of one class: here such a batch gets the noise of the last batch that needed some, and before
    that the gradient is withheld (zeros). g = 0, as of a party that the model ignores, needs no noise.

    With more than two classes, which the paper does not treat, a row gets the noise of the positives in its own class
    against all other classes together.

    Reference: Li, Sun et al., Label leakage and protection in two-party split learning (arXiv 2102.08504, ICLR 2022),
    section 4.2 and theorem 2.

    Guarantee: none, empirical. The bound on a detector's error, 1/2 - sqrt(sumKL)/4, holds for one row of one batch
    whose classes are isotropic Gaussians; real gradients are not, and a row returns in every epoch.
    """

    name = "marvell"
    config = MarvellConfig
    side = Side.ACTIVE
    protects = Asset.LABELS
    reference = "Li, Sun et al. 2021 (arXiv 2102.08504), section 4.2"
    rank = 20
    excludes = frozenset({"max_norm", "iso_noise", "noisy_gradient", "ppdl"})
    tasks = frozenset({"binary", "multiclass"})
    no_guarantee = "Marvell's bound on detection holds for Gaussian gradients and one release of a row"
    counters = (
        "batches",
        "batches_already_satisfying",
        "batches_without_difference",
        "one_class_batches_served",
        "one_class_batches_withheld",
    )
    means = (("mean_sum_kl", "sum_kl", "solved"), ("mean_power_over_g", "power_over_g", "solved"))

    def __init__(self, settings: MarvellConfig) -> None:
        super().__init__(settings)
        self._last: dict[str, _ClassNoise] = {}

    def gradient_out(self, g: Tensor, party: str, view: ActiveView) -> Tensor:
        """Hide the classes in the cut gradient (n, width) of `party`."""
        self.count(batches=1)
        statistics = class_statistics(g, view.labels, self.classes)
        if len(statistics.present) < 2:
            noise = self._last.get(party)
            if noise is None or not bool(noise.present[statistics.present].all()):
                self.count(one_class_batches_withheld=1)
                return torch.zeros_like(g)
            self.count(one_class_batches_served=1)
        else:
            noise = self._fit(statistics)
            self._last[party] = self._last[party].updated(noise) if party in self._last else noise
        return self._perturbed(g, noise, party, view)

    def _fit(self, statistics: ClassStatistics) -> _ClassNoise:
        """The noise of every class that has rows."""
        width = statistics.means.shape[1]
        noise = _ClassNoise(torch.zeros(self.classes, width), torch.zeros(2, self.classes, dtype=torch.float64))
        satisfying, different = True, False
        for code in [1] if self.classes == 2 else statistics.present:
            contrast = one_against_rest(statistics, code)
            if contrast.g == 0.0:
                continue
            different = True
            optimum, satisfied = self._optimum(contrast)
            satisfying &= satisfied
            noise.set(code, contrast.direction, optimum.lam11, optimum.lam21)
            if self.classes == 2:
                noise.set(0, contrast.direction, optimum.lam10, optimum.lam20)
        self.count(batches_without_difference=not different, batches_already_satisfying=different and satisfying)
        return noise

    def _optimum(self, contrast: Contrast) -> tuple[SumKLNoise, bool]:
        """The optimal noise, and whether the target was reached without any."""
        u, v, d, g, p = contrast.u, contrast.v, contrast.d, contrast.g, contrast.p
        target, satisfied = self.settings.target, False
        if target is None:
            power = (self.settings.s or 0.0) * g
        elif self.settings.search == "exact":
            power = power_for_sum_kl(u, v, d, g, p, target)
            satisfied = power == 0.0
        else:
            power = g
            satisfied = minimise_sum_kl(u, v, d, g, p, 0.0).sum_kl <= target
            while minimise_sum_kl(u, v, d, g, p, power).sum_kl > target:
                power *= _GROWTH
        optimum = minimise_sum_kl(u, v, d, g, p, power)
        self.count(solved=1, sum_kl=optimum.sum_kl, power_over_g=power / g)
        return optimum, satisfied

    def _perturbed(self, g: Tensor, noise: _ClassNoise, party: str, view: ActiveView) -> Tensor:
        if not bool(noise.present[view.labels].any()):
            return g
        along, across = noise.deviations.float()
        rows = (across[view.labels] > 0).nonzero()[:, 0]
        key = self.context.noise.key(hook="marvell", peer=party, step=view.step, content=g)
        lengths = standard_normal(key, b"along", (len(g),)).mul_(along[view.labels])
        isotropic = standard_normal(key, b"across", (len(rows), g.shape[1])).mul_(across[view.labels[rows]][:, None])
        if self.classes == 2:  # one direction, up to its sign: no matrix of directions
            sent = torch.addr(g, lengths, noise.directions[view.labels[0]])
        else:
            sent = torch.addcmul(g, noise.directions[view.labels], lengths[:, None])
        return sent.index_add_(0, rows, isotropic)

    def state_dict(self) -> dict[str, Any]:
        """The last noise of every party."""
        return {"last": {party: vars(noise) for party, noise in self._last.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._last = {party: _ClassNoise(**noise) for party, noise in state["last"].items()}
