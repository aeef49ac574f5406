"""The search for Marvell's noise at a target sumKL: ours against the published way, both in plain Python.

The published way raises the power from g by 1.5 until sumKL is reached, overshooting, and at each power alternates
between the noise along the difference of the means, in closed form, and across it, by bisection of the derivative
(arXiv 2102.08504, section 4.2).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from cutlayer.kernels.noise.marvell import minimise_sum_kl, power_for_sum_kl

Case = tuple[float, float, int, float, float]
CASES = 200


def cases() -> list[Case]:
    """u, v, d, g, p as batches of a trained network have them, u < v."""
    draw = np.random.default_rng(0)
    u = 10.0 ** draw.uniform(-4, -1, CASES)
    v = u * draw.uniform(1.05, 4, CASES)
    g = 10.0 ** draw.uniform(-3, 0, CASES)
    p = draw.uniform(0.05, 0.6, CASES)
    return [(float(a), float(b), 128, float(c), float(q)) for a, b, c, q in zip(u, v, g, p, strict=True)]


def ours_side(target: float) -> Callable[[], float]:
    """Exact power, then the noise."""
    given = cases()

    def once() -> float:
        began = time.perf_counter()
        for case in given:
            minimise_sum_kl(*case, power_for_sum_kl(*case, target))
        return time.perf_counter() - began

    return once


def geometric_side(target: float) -> Callable[[], float]:
    """The published search, which overshoots."""
    given = cases()

    def once() -> float:
        began = time.perf_counter()
        for case in given:
            power = case[3]
            while alternate(*case, power) > target:
                power *= 1.5
        return time.perf_counter() - began

    return once


def _sum_kl(lam10: float, lam20: float, lam11: float, case: Case) -> float:
    u, v, d, g, _ = case
    across = (d - 1) * ((lam20 + u) / v + v / (lam20 + u))
    along = (lam10 + u + g) / (lam11 + v) + (lam11 + v + g) / (lam10 + u)
    return 0.5 * (across + along) - d


def _split(rest: float, lam20: float, case: Case) -> tuple[float, float]:
    """Best lam10, lam11 for the power left by lam20, in closed form."""
    u, v, _, g, p = case
    whole = rest + p * v + (1 - p) * u
    ratio = math.sqrt((whole + g * p) / (whole + g * (1 - p)))
    lam11 = whole / (p + (1 - p) * ratio) - v
    lam10 = min(max((rest - p * lam11) / (1 - p), lam20), rest / (1 - p))
    return lam10, max((rest - (1 - p) * lam10) / p, 0.0)


def alternate(u: float, v: float, d: int, g: float, p: float, power: float) -> float:
    """Alternate over (lam10, lam11) and lam20 until the objective no longer falls."""
    case = (u, v, d, g, p)
    lam20, before = power / (1 - p) / d / 2, math.inf
    for _ in range(100):
        _, lam11 = _split(power - (1 - p) * (d - 1) * lam20, lam20, case)
        budget = (power - p * lam11) / (1 - p)
        low, high = 0.0, budget / d
        while high - low > 1e-20 and low < (middle := (low + high) / 2) < high:
            slope = 1 / v - v / (middle + u) ** 2 - 1 / (lam11 + v)
            slope += (lam11 + v + g) / (budget - (d - 1) * middle + u) ** 2
            low, high = (low, middle) if slope > 0 else (middle, high)
        lam20 = low
        now = _sum_kl(budget - (d - 1) * lam20, lam20, lam11, case)
        if before - now < 1e-16:
            break
        before = now
    return now
