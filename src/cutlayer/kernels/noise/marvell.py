"""The Gaussian noise of a given power that hides two classes best: Marvell's sumKL programme.

With ``A_x`` and ``B_x`` the variance of class x across and along the difference of the class means, noise included,
``2 sumKL = (d-1)(A0-A1)^2/(A0 A1) + (B0-B1)^2/(B0 B1) + g/B0 + g/B1``: the programme's objective without its
cancelling ``-d``. Let ``u <= v`` (else swap the classes). Two facts make the four-variable programme one-dimensional:

* Along the difference, for a total ``S = p B1 + (1-p) B0`` the best split is ``(B0/B1)^2 = (S + g p)/(S + g (1-p))``,
  moved to the nearest point with ``B0 >= u`` and ``B1 >= v``. It gives the price of variance, ``-d(2 sumKL)/dS``.
* Across it, the positives get no noise and the negatives' ``A0`` follows from that price in closed form.

So everything is a function of x, the power spent along the difference: sumKL falls with x, the whole power rises
with it, and either equation is a bracketed root.

Reference: O. Li, J. Sun et al., *Label leakage and protection in two-party split learning*, ICLR 2022
(arXiv 2102.08504), section 4.2 and theorem 2. The closed forms above are ours.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from cutlayer.errors import DataError

_EPSILON = sys.float_info.epsilon


@dataclass(frozen=True, slots=True)
class SumKLNoise:
    """The optimal noise and what it leaves to tell the classes apart by.

    Attributes:
        lam10: Variance of the negatives' noise along the difference of the class means, >= lam20.
        lam20: Variance of the negatives' noise along every other direction, >= 0.
        lam11: Variance of the positives' noise along the difference of the class means, >= lam21.
        lam21: Variance of the positives' noise along every other direction, >= 0.
        sum_kl: KL(positive || negative) + KL(negative || positive) in nats after the noise, >= 0; infinite where a
            class without any variance differs from the other.
    """

    lam10: float
    lam20: float
    lam11: float
    lam21: float
    sum_kl: float


def minimise_sum_kl(u: float, v: float, d: int, g: float, p: float, power: float) -> SumKLNoise:
    """Find the noise of at most ``power`` that leaves the smallest sumKL between the classes.

    Lambdas and power are in the units of u, v and g (squared gradients); multiplying all by one factor multiplies the
    lambdas by it and leaves sumKL. Where sumKL reaches 0 (g = 0), power beyond that point is not spent.

    Args:
        u: Mean variance per coordinate of the negatives' gradients, >= 0.
        v: Mean variance per coordinate of the positives' gradients, >= 0.
        d: Width of the gradient, >= 1.
        g: Squared Euclidean distance of the class means, >= 0.
        p: Share of positives, in (0, 1).
        power: Bound on ``p lam11 + p(d-1) lam21 + (1-p) lam10 + (1-p)(d-1) lam20``, >= 0.

    Returns:
        The noise and its sumKL. With u = v = 0 there is no noise across the difference of the means, and the
        directions without variance count as equal in both classes.

    Raises:
        DataError: An argument is outside its range or not finite.

    Reference:
        arXiv 2102.08504, section 4.2 (the programme), theorem 2 (the four variances suffice).
    """
    _check(u, v, d, g, p)
    programme, scale, swapped = _normalised(u, v, d, g, p)
    if not (power >= 0.0 and math.isfinite(power / scale)):
        raise DataError.expected("a finite power >= 0", power)
    point = programme.spending(power / scale)
    negative = (point.lam11 * scale, 0.0)
    positive = (point.lam10 * scale, point.lam20 * scale)
    if not swapped:
        negative, positive = positive, negative
    return SumKLNoise(*negative, *positive, point.sum_kl)


def power_for_sum_kl(u: float, v: float, d: int, g: float, p: float, sum_kl: float) -> float:
    """Find the smallest power whose optimal noise leaves exactly ``sum_kl``.

    Args:
        u: Mean variance per coordinate of the negatives' gradients, >= 0.
        v: Mean variance per coordinate of the positives' gradients, >= 0.
        d: Width of the gradient, >= 1.
        g: Squared Euclidean distance of the class means, >= 0.
        p: Share of positives, in (0, 1).
        sum_kl: Target in nats, >= 0, and > 0 where g > 0.

    Returns:
        The power in the units of u, v and g; 0.0 when the gradients satisfy the target without noise.

    Raises:
        DataError: An argument is outside its range or not finite, or ``sum_kl`` is 0 and the class means differ,
            which no finite power reaches.

    Reference:
        arXiv 2102.08504, section 4.2; the search there raises the power by steps and overshoots the target.
    """
    _check(u, v, d, g, p)
    remedy = "0.16 to 0.64 is a usual range"
    if not (sum_kl >= 0.0 and math.isfinite(sum_kl)):
        raise DataError.expected("a finite sum_kl >= 0", sum_kl, remedy)
    if sum_kl == 0.0 and g > 0.0:
        raise DataError.expected("sum_kl > 0 where the class means differ", sum_kl, remedy)
    programme, scale, _ = _normalised(u, v, d, g, p)
    power = programme.reaching(sum_kl).power * scale
    if not math.isfinite(power):
        raise DataError.expected("a sum_kl that a finite power reaches", sum_kl, remedy)
    return power


class _Point(NamedTuple):
    """One optimum of the programme: its noise (the wider class has none across), its sumKL and its power."""

    lam10: float
    lam20: float
    lam11: float
    sum_kl: float
    power: float


class _Programme(NamedTuple):
    """The programme with ``u <= v``; ``q`` is 1 - p, stored with p so that a swap loses no digits."""

    u: float
    v: float
    d: int
    g: float
    p: float
    q: float

    def clean(self) -> _Point:
        """The optimum of no power."""
        return _Point(0.0, 0.0, 0.0, self._sum_kl(self.u, self.v, self.u), 0.0)

    def at(self, x: float) -> _Point:
        """The optimum that spends ``x > 0`` along the difference of the means."""
        u, v, d, g, p, q = self
        total = p * v + q * u + x
        ratio = math.sqrt((total + g * p) / (total + g * q))
        b1 = total / (p + q * ratio)
        b0 = ratio * b1
        if b1 < v:
            # All of x goes to the negatives; the price is then (v + g)/b0^2 - 1/v, and v/sqrt(1 + price v) is short.
            lam10, lam11 = x / q, 0.0
            b0, b1 = u + lam10, v
            across = max(u, b0 * math.sqrt(v / (v + g)))
        elif b0 < u:
            lam10, lam11 = 0.0, x / p
            b0, b1 = u, v + lam11
            across = u
        else:
            lam10, lam11 = b0 - u, b1 - v
            across = max(u, v / math.sqrt(1.0 + q * v * (g / total) * (1.0 / b0 + 1.0 / b1)))
        lam20 = min(across - u, lam10) if d > 1 else 0.0
        return _Point(lam10, lam20, lam11, self._sum_kl(b0, b1, across), x + q * (d - 1) * lam20)

    def _sum_kl(self, b0: float, b1: float, across: float) -> float:
        """SumKL of the variances along (b0, b1) and across (of the negatives; the positives' is v) the difference."""
        total = _ratio_gap(b0, b1)
        if self.d > 1:
            total += (self.d - 1) * _ratio_gap(across, self.v)
        if self.g > 0.0:
            total += self.g / b0 + self.g / b1 if b0 > 0.0 and b1 > 0.0 else math.inf
        return 0.5 * total

    def spending(self, power: float) -> _Point:
        """The optimum of ``power``."""
        if self.g == 0.0:
            power = min(power, self._equalising_power())
        if power == 0.0:
            return self.clean()
        end = self.at(power)
        if end.power <= power:
            return end
        return self.at(_increasing_root(lambda x: self.at(x).power - power, power, -power))

    def reaching(self, sum_kl: float) -> _Point:
        """The optimum of least power whose sumKL is ``sum_kl``."""
        clean = self.clean()
        if clean.sum_kl <= sum_kl:
            return clean
        if sum_kl == 0.0:
            return self.at(self.q * (self.v - self.u))._replace(power=self._equalising_power())
        # Equal variances g / sum_kl or more in both classes satisfy the target, so the optimum spends no more.
        bound = self._equalising_power() + max(0.0, self.g / sum_kl - self.v)

        # The reciprocal of sumKL is nearly linear in x, which the interpolating steps need.
        def shortfall(x: float) -> float:
            return sum_kl / self.at(x).sum_kl - 1.0

        if not shortfall(bound) > 0.0:  # or the bound is infinite
            return self.at(bound)
        return self.at(_increasing_root(shortfall, bound, sum_kl / clean.sum_kl - 1.0))

    def _equalising_power(self) -> float:
        """The power that gives both classes the wider one's variance in every direction."""
        return self.d * self.q * (self.v - self.u)


def _ratio_gap(a: float, b: float) -> float:
    """``a/b + b/a - 2`` without cancellation; two point masses (0, 0) are alike."""
    if a == b:
        return 0.0
    if a <= 0.0 or b <= 0.0:
        return math.inf
    return ((a - b) / a) * ((a - b) / b)


def _normalised(u: float, v: float, d: int, g: float, p: float) -> tuple[_Programme, float, bool]:
    """Order the classes and divide by a power of two, so that squares of tiny gradients neither underflow nor round."""
    largest = max(u, v, g)
    scale = math.ldexp(1.0, math.frexp(largest)[1] - 1) if largest > 0.0 else 1.0
    q = 1.0 - p
    swapped = u > v
    if swapped:
        u, v, p, q = v, u, q, p
    return _Programme(u / scale, v / scale, d, g / scale, p, q), scale, swapped


def _increasing_root(f: Callable[[float], float], high: float, f_low: float) -> float:
    """Root of an increasing f on [0, high] to the last digits; f(high) > 0, and f_low < 0 is the limit of f at 0."""
    from scipy.optimize import brentq

    return float(brentq(lambda x: f(x) if x else f_low, 0.0, high, xtol=1e-300, rtol=4.0 * _EPSILON, maxiter=200))


def _check(u: float, v: float, d: int, g: float, p: float) -> None:
    """Refuse statistics that no batch can have."""
    for name, value in (("u", u), ("v", v), ("g", g)):
        if not (value >= 0.0 and math.isfinite(value)):
            raise DataError.expected(f"a finite {name} >= 0", value)
    if d < 1:
        raise DataError.expected("a width d >= 1", d)
    if not 0.0 < p < 1.0:
        raise DataError.expected("a share of positives 0 < p < 1", p, "a batch of one class has no optimum")
