"""Number of times that a run releases each row, known before it starts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, Self

from cutlayer.config.train import TrainConfig
from cutlayer.kernels.noise.gaussian_mechanism import epsilon, mu_of

ROUNDING = 0.0035
"""`Approximation.rounding` of a private fit, whose noise `kernels.fits.private_additive` keeps within it."""
Bottom = Literal["independent", "private", "fitted"]
"""How a bottom model depends on the private rows: not at all, by private training at a counted cost, or by a fit."""
Encoding = Literal["public", "fitted"]
"""Whether the columns are encoded by stated ranges and vocabularies alone, or by any that was fitted on the rows."""
Condition = Literal[
    "unconditional",
    "conditional on the encoding",
    "conditional on the bottom model",
    "conditional on the bottom model and the encoding",
]
"""A row's noisy embedding is private given the bottom model and the encoding of the columns. Where these were fitted on
the rows, through them one row moves what is released of others, which the noise does not cover."""


def condition_of(*, bottom: bool, encoding: bool) -> Condition:
    """Name a condition by its parts.

    Args:
        bottom: Whether the bottom model was fitted on the rows, at no cost that is counted.
        encoding: Whether scales or codes of the columns were fitted on the rows.
    """
    if bottom:
        return "conditional on the bottom model and the encoding" if encoding else "conditional on the bottom model"
    return "conditional on the encoding" if encoding else "unconditional"


@dataclass(frozen=True)
class Approximation:
    """By how much releases may be less private than the exact Gaussian mechanisms that they are counted as.

    Attributes:
        tail: Probability outside of which they are as private.
        rounding: Largest logarithm of the ratio of the probability of what was computed to that in real numbers, but
            with a probability below 1e-26.
    """

    tail: float = 0.0
    rounding: float = 0.0

    def __add__(self, other: Approximation) -> Approximation:
        return Approximation(self.tail + other.tail, self.rounding + other.rounding)

    @property
    def least_delta(self) -> float:
        """A delta at which there is an epsilon: that of the exact mechanisms at `tail`."""
        return 2 * self.tail * math.exp(self.rounding)

    def exact_delta(self, delta: float) -> float:
        """Delta that is left to the exact mechanisms; there is no epsilon where it is not above 0."""
        return delta * math.exp(-self.rounding) - self.tail

    @property
    def further_epsilon(self) -> float:
        """What the epsilon of the exact mechanisms is less than that of the computed ones: both neighbours' ratios."""
        return 2 * self.rounding - math.log1p(-self.tail)

    def auc(self, exact: float) -> float:
        """A bound on the AUC of a test, by that on exact mechanisms."""
        return min(1.0, 1 - math.exp(-2 * self.rounding) * (1 - exact) + 2 * self.tail)


EXACT = Approximation()


@dataclass(frozen=True)
class PrivateFit:
    """A fit of a bottom model that is differentially private in one row's columns.

    Attributes:
        mu: Parameter of Gaussian differential privacy of its noisy sums, above 0.
        delta: Delta of the epsilon that it is calibrated to. A tenth bounds the probability that a value of one row
            alone passes for a frequent one, outside of which the sums are as private as `mu` says.
    """

    mu: float
    delta: float

    @property
    def approximation(self) -> Approximation:
        """What its epsilon covers beyond `mu`."""
        return Approximation(self.delta / 10, ROUNDING)

    @property
    def epsilon(self) -> float:
        """Epsilon at `delta`."""
        beyond = self.approximation
        return epsilon(self.mu, beyond.exact_delta(self.delta)) + beyond.further_epsilon

    @classmethod
    def within(cls, epsilon: float, delta: float) -> PrivateFit:
        """The fit with the least noise that is (epsilon, delta)-differentially private."""
        fitted = cls(1.0, delta)
        beyond = fitted.approximation
        return replace(fitted, mu=mu_of(epsilon - beyond.further_epsilon, beyond.exact_delta(delta)))


@dataclass(frozen=True)
class ReleasePlan:
    """The releases of one row's embedding in the schedule, by the part of the split that the row belongs to.

    Every epoch releases each training row once at most, in a fixed order: nothing is sampled, so there is no credit for
    sampling. Held-out rows are released by evaluations.

    Attributes:
        training: Releases of a training row: one in every epoch.
        validation: Releases of a validation row: one evaluation after every epoch; a last one where no test rows are
            held out.
        test: Releases of a test row: one evaluation of the finished model; one after every epoch too where there are no
            validation rows.
        serving: Further releases of each row for predictions.
        beyond: Releases of any row outside of the schedule: by runs of the same job that did not end, and by
            repetitions with other content.
        once: Every row is released a single time by the schedule, before the epochs that use it.
        bottom: `independent` where no private row has a part in the bottom model, `private` where it is trained by a
            protection or a fit whose cost is counted, else `fitted`.
        encoding: `public` where every column is encoded by a range or vocabulary that the party states, else `fitted`.
        fit: The private fit of the bottom model, if it has one.
    """

    training: int
    validation: int = 0
    test: int = 0
    serving: int = 0
    beyond: int = 0
    once: bool = False
    bottom: Bottom = "fitted"
    encoding: Encoding = "fitted"
    fit: PrivateFit | None = None

    @classmethod
    def of(
        cls,
        train: TrainConfig,
        *,
        once: bool = False,
        bottom: Bottom = "fitted",
        encoding: Encoding = "fitted",
        serving: int = 0,
        fit: PrivateFit | None = None,
    ) -> Self:
        """The plan of a job's schedule; stopping early only releases less.

        Args:
            train: The schedule.
            once: Whether every row is released a single time in it.
            bottom: How the bottom model depends on the private rows.
            encoding: How the encoding of the columns depends on them.
            serving: Releases of each row for predictions, after the schedule.
            fit: As the attribute.
        """
        epochs, split = train.max_epochs, train.split
        if once:
            counts = 1, int(split.validation > 0), int(split.test > 0)
        elif not split.validation:
            counts = epochs, 0, epochs + 1
        else:
            counts = (epochs, epochs, 1) if split.test else (epochs, epochs + 1, 0)
        return cls(*counts, serving=serving, once=once, bottom=bottom, encoding=encoding, fit=fit)

    @property
    def condition(self) -> Condition:
        """The condition that the privacy of a row's released embedding depends on."""
        return condition_of(bottom=self.bottom == "fitted", encoding=self.encoding == "fitted")

    @property
    def max_releases(self) -> int:
        """Releases of the row that is released most often, which is the one an epsilon must hold for."""
        return max(self.training, self.validation, self.test) + self.serving + self.beyond

    @property
    def whose(self) -> str:
        """The rows that are released most often.

        >>> ReleasePlan(training=20, validation=20, test=1).whose
        'training and validation rows'
        """
        counts = {"training": self.training, "validation": self.validation, "test": self.test}
        return " and ".join(part for part, count in counts.items() if count == max(counts.values())) + " rows"
