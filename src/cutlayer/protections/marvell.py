"""Marvell: the Gaussian noise of least power that makes the classes' gradients hard to distinguish."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.kernels.noise.aes import standard_normal
from cutlayer.kernels.noise.marvell import SumKLNoise, minimise_sum_kl, power_for_sum_kl
from cutlayer.kernels.noise.shared_noise import bounded_rows, class_second_moments, leak_of_sum_kl, shared_noise
from cutlayer.kernels.rows.to_device import to_device
from cutlayer.kernels.statistics.class_statistics import (
    ClassStatistics,
    Contrast,
    class_counts,
    class_statistics,
    one_against_rest,
)
from cutlayer.lazy import Tensor, torch
from cutlayer.protections.contract.base import LabelProtection
from cutlayer.protections.contract.views import ActiveView
from cutlayer.protections.past_batches import PastBatches, follows_batch

_RANGE_TEXT = "a sum_kl of 0.16 to 0.64 is a usual range"
_MAX_COORDINATE = 3.0
"""Bound on a coordinate of a row, over its root mean square in past batches."""


class MarvellConfig(FrozenModel):
    """Difficulty of distinguishing the classes: either `sum_kl` or `s`.

    Attributes:
        sum_kl: Target of KL(positive || negative) + KL(negative || positive) in nats. It is for all releases of a row
            in the run together, and with `form: paper` for each release. The leak AUC of a divergence is
            Phi(sqrt(sum_kl / 2)): 0.556 at 0.04, 0.611 at 0.16, 0.714 at 0.64, 0.910 at 3.6. The paper's lower bound L
            on the mean of a detector's false positive and false negative rates is a sum_kl of (2 - 4 L)^2.
        form: `past`: one noise for all classes, shaped by the second moment of past batches' gradients. `shared`: by
            that of the batch itself, which tells how many of its rows are of the rarer class. `paper`: the published
            noise of each class, which marks the class.
        s: With `form: paper`, power of the noise over the squared distance of the class means, without a target. The
            paper uses 0.1 to 4, the study of forward leakage 8.
    """

    sum_kl: float | None = Field(default=None, gt=0, strict=True, description=_RANGE_TEXT)
    form: Literal["past", "shared", "paper"] = "past"
    s: float | None = Field(default=None, gt=0, strict=True, description="the paper uses 0.1 to 4")

    def _faults(self) -> Iterator[str]:
        if (self.sum_kl is None) == (self.s is None):
            got = "none" if self.s is None else "both"
            yield f"either sum_kl or s, got {got}; {_RANGE_TEXT}"
        if self.form != "paper" and self.s is not None:
            yield f"sum_kl in form: {self.form}, got s; write form: paper with it"

    def per_release(self, epochs: int) -> float | None:
        """SumKL to reach in each release of a row, of which there is one in every epoch; `None` with a fixed `s`."""
        return self.sum_kl / epochs if self.sum_kl is not None and self.form != "paper" else self.sum_kl


@dataclass(frozen=True)
class _ClassNoise:
    """Noise of each class.

    Attributes:
        directions: Unit vector of each class, float32 (classes, width).
        deviations: Standard deviations along that direction alone and in every direction, float64 (2, classes).
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


class _SharedNoise(NamedTuple):
    """One noise for all classes.

    Attributes:
        mean: Second moment that it was made for, float64 (width, width).
        factor: Root of its covariance, float64 (width, width); `None` where there is nothing to hide.
        target: Divergence that it leaves of gradients of that moment.
        power_over_g: Its power over that of the gradients, without axes.
    """

    mean: Tensor
    factor: Tensor | None = None
    target: float = 0.0
    power_over_g: Tensor | float = 0.0


class Marvell(LabelProtection[MarvellConfig]):
    """Add noise that leaves a given sumKL between the classes, at the smallest power.

    `form: past`, the default, and `form: shared` are ours. All rows of a batch get noise of one covariance, the
    solution of

        minimise tr(Sigma)  subject to  mean over rows of 4 g_i' Sigma^-1 g_i = sum_kl / epochs,

    each class with the same weight: Sigma = c D^1/2 with D = 4 mean_x E[g g' | class x], see `kernels.shared_noise`.
    The divergence is that of g_i and -g_i, so it holds against an attacker who knows every gradient but for its sign,
    as one who knows w(e_i) of g_i = (p_i - y_i) w(e_i) does, and noise goes into every direction in which w varies.
    Divergences of a row's releases add up, so the run's is `sum_kl`, to one party; parties that collude add theirs up.
    A batch is withheld (zeros) until two classes were seen.

    With `past` the mean is that of a block of past batches (`PastBatches`), so that the noise of a batch has the size
    and the shape of others and says nothing of this one. Past gradients may not reach where a row lies, so each of its
    coordinates along the axes of the noise is bounded by three times its root mean square in the past: no row has more
    than nine times the divergence for a release, and `mean_sum_kl` of the metrics is what they had in the mean. With
    `shared` the mean is that of the batch itself, and an absent class counts with its last second moment: with a few
    positives the size of a message off its main direction tells how many there are, which is not in the divergence
    (`message_size`).

    `form: paper` is the published mechanism, for each release. With u, v the mean variances per coordinate of the
    negatives' and positives' gradients of the batch, g the squared distance of their means, p the positive share and d
    the width, the optimum of the paper's four-variable programme gives class x the noise eps sqrt(lam1x - lam2x) along
    the unit vector of the difference of means plus sqrt(lam2x) N(0, I). **It exposes the labels**: real gradients have
    about rank one, the optimum gives isotropic noise to one class only, and so the length of a gradient off the batch's
    first singular direction names the class (AUC 1.000 on Adult at sum_kl 0.16, without a known label). Without that,
    T releases of a row leak Phi(sqrt(T sum_kl / 2)). It is for comparison with the literature.

    Where the paper's form differs from the published code (github.com/OscarcarLi/label-protection): the optimum is
    exact, not the end of an alternation from a random start; the power is the smallest that reaches the target, where
    theirs goes from g up by 1.5 and overshoots; where the clean batch satisfies the target nothing is added and
    evidence says so, where theirs adds noise of power g. Their code divides by zero on a batch of one class: here such
    a batch gets the noise of the last batch that needed some, and before that the gradient is withheld (zeros). g = 0,
    as of a party that the model ignores, needs no noise. With more than two classes, which the paper does not treat, a
    row gets the noise of the positives in its own class against all other classes together.

    Labels are the protected ones, so under label DP this is post-processing of them.

    Reference: Li, Sun et al., Label leakage and protection in two-party split learning (arXiv 2102.08504, ICLR 2022),
    section 4.2 and theorem 2, for the paper's form.

    Guarantee: none, empirical. The divergence is a mean over rows, so single rows may be exposed more. It is that of
    gradients for a given model, and what later models reveal of a label is not in it.
    An attacker who knows p_i besides w(e_i) faces w(e_i) instead of 2 g_i, which is longer where p_i is near y_i. The
    paper's bound on a detector's error, 1/2 - sqrt(sumKL)/4, holds for one row of one batch whose classes are isotropic
    Gaussians.

    Advice: both forms under attacks on the whole run (docs/results/adaptive-audit.md).
    """

    name = "marvell"
    config = MarvellConfig
    reference = "Li, Sun et al. 2021 (arXiv 2102.08504), section 4.2"
    start = MarvellConfig(sum_kl=0.16)
    published_against = (("gradient", "norm"), ("gradient", "spectral"))
    rank = 20
    excludes = frozenset({"max_norm", "iso_noise", "noisy_gradient", "ppdl"})
    tasks = frozenset({"binary", "multiclass"})
    hides_lengths = True
    no_guarantee = "Marvell's divergence is a mean over the rows of a batch, for a given model"
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
        self._last: dict[str, _ClassNoise] = {}  # of the paper's form
        self._moments: dict[str, Tensor] = {}  # of the shared form: float64 (classes, width, width) by party
        self._past = PastBatches()  # the same, of past batches
        self._shapes: dict[str, tuple[Tensor, _SharedNoise | None]] = {}  # of these, with the moments

    def gradient_out(self, g: Tensor, party: str, view: ActiveView) -> Tensor:
        """Hide the classes in the cut gradient (n, width) of `party`."""
        self.count(batches=1)
        if self.settings.form != "paper":
            return self._with_shared_noise(g, party, view)
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

    def notes(self, epochs: int) -> Sequence[str]:
        """Leak of the run's divergence, and the weaknesses of the other forms."""
        per_release, notes = self.settings.per_release(epochs), list[str]()
        if per_release is not None:
            notes.append(
                f"sum_kl {per_release:.3g} per release, over {epochs:,} epochs, leaks an AUC of "
                f"{leak_of_sum_kl(epochs * per_release):.3f}; embeddings and a party's own columns may leak more"
            )
        if self.settings.form == "paper":
            notes.append(
                "the noise of form: paper differs by class and so reveals it; that of the default form does not"
            )
        if self.settings.form == "shared":
            notes.append(follows_batch("shared"))
        return notes

    def _with_shared_noise(self, g: Tensor, party: str, view: ActiveView) -> Tensor:
        # By `index_add_`, which repeats itself on a GPU, as `bincount` with weights does not.
        counts, past = class_counts(view.labels, self.classes), self.settings.form == "past"
        *sizes, differs = torch.cat([counts, g.any().view(1)]).tolist()  # the one reading of a batch
        if past and not differs:
            self.count(batches_without_difference=1)
            return g
        own, classes = class_second_moments(g, view.labels, sizes), sum(size > 0 for size in sizes)
        shape = self._past_shape(own, counts, party, view) if past else self._last_shape(own, counts > 0, party)
        if shape is None:
            self.count(one_class_batches_withheld=1)
            return torch.zeros_like(g)
        self.count(one_class_batches_served=classes < 2)
        if shape.factor is None:
            self.count(batches_without_difference=1)
            return g
        rows, left = g.double(), g.new_tensor(shape.target, dtype=torch.float64)
        if past:
            rows, divergences = bounded_rows(g, shape.mean, shape.factor, _MAX_COORDINATE)
            sums = divergences.new_zeros(self.classes).index_add_(0, view.labels, divergences)
            left = (sums / counts.clamp(min=1)).sum() / classes
        self.count(solved=1, sum_kl=left, power_over_g=shape.power_over_g)
        key = self.context.noise.key(hook="marvell shared", peer=party, step=view.step, content=g)
        normal = to_device(standard_normal(key, b"shared", tuple(g.shape)), g.device)
        return (rows + normal.double() @ shape.factor.T).to(g.dtype)

    def _past_shape(self, own: Tensor, counts: Tensor, party: str, view: ActiveView) -> _SharedNoise | None:
        """Noise by the second moments of past batches, the same for a block; takes the batch in, for later ones."""
        moments = self._past.means(party, view)
        self._past.add(party, view, own, counts.double())
        if moments is None:
            return None
        before, shape = self._shapes.get(party, (None, None))
        if moments is not before:
            shape = self._shape(moments, moments.flatten(1).any(1))
            self._shapes[party] = moments, shape
        return shape

    def _last_shape(self, own: Tensor, present: Tensor, party: str) -> _SharedNoise | None:
        """Noise by the second moment of each class in the last batch that had it, this one included."""
        last = self._moments.get(party, torch.zeros_like(own))
        moments = self._moments[party] = torch.where(present[:, None, None], own, last)
        return self._shape(moments, present | moments.flatten(1).any(1))

    def _shape(self, moments: Tensor, seen: Tensor) -> _SharedNoise | None:
        """Noise by the second moments of the classes, float64 (k, d, d); `None` where fewer than two were seen."""
        classes, target = int(seen.sum()), self.settings.per_release(self.context.epochs)
        if classes < 2:
            return None
        mean = moments.sum(0) / classes
        if target is None or not bool(mean.any()):
            return _SharedNoise(mean)
        factor = shared_noise(mean, target)
        return _SharedNoise(mean, factor, target, factor.square().sum() / mean.trace())

    def _fit(self, statistics: ClassStatistics) -> _ClassNoise:
        """The noise of every class that has rows."""
        means, width = statistics.means, statistics.means.shape[1]
        noise = _ClassNoise(means.new_zeros(self.classes, width, dtype=torch.float32), means.new_zeros(2, self.classes))
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
        if self.settings.sum_kl is None:
            power = (self.settings.s or 0.0) * g
        else:
            power = power_for_sum_kl(u, v, d, g, p, self.settings.sum_kl)
        satisfied = self.settings.sum_kl is not None and power == 0.0
        optimum = minimise_sum_kl(u, v, d, g, p, power)
        self.count(solved=1, sum_kl=optimum.sum_kl, power_over_g=power / g)
        return optimum, satisfied

    def _perturbed(self, g: Tensor, noise: _ClassNoise, party: str, view: ActiveView) -> Tensor:
        if not bool(noise.present[view.labels].any()):
            return g
        along, across = noise.deviations.float()
        rows = (across[view.labels] > 0).nonzero()[:, 0]
        key = self.context.noise.key(hook="marvell", peer=party, step=view.step, content=g)
        lengths = to_device(standard_normal(key, b"along", (len(g),)), g.device).mul_(along[view.labels])
        isotropic = to_device(standard_normal(key, b"across", (len(rows), g.shape[1])), g.device)
        isotropic.mul_(across[view.labels[rows]][:, None])
        if self.classes == 2:  # one direction, up to its sign: no matrix of directions
            sent = torch.addr(g, lengths, noise.directions[view.labels[0]])
        else:
            sent = torch.addcmul(g, noise.directions[view.labels], lengths[:, None])
        return sent.index_add_(0, rows, isotropic)

    def state_dict(self) -> dict[str, Any]:
        """The last noise of every party, the last second moments, or those of past batches."""
        last = {party: vars(noise) for party, noise in self._last.items()}
        return {"last": last, "moments": dict(self._moments), "past": self._past.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._last = {party: _ClassNoise(**noise) for party, noise in state["last"].items()}
        self._moments = dict(state["moments"])
        self._past.load_state_dict(state["past"])
