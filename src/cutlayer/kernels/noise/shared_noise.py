"""The Gaussian noise of least power, one for all classes, that leaves a given divergence between a gradient's signs.

A cut gradient is ``g_i = (p_i - y_i) w(e_i)``, and who knows the embedding and the top model knows ``w(e_i)``: its sign
reveals the label in every direction in which ``w`` varies. So the divergence is measured per row: between
``N(g_i, Sigma)`` and ``N(-g_i, Sigma)`` both KL divergences add up to ``4 g_i' Sigma^-1 g_i``. Their mean over rows,
with the same weight for each class, is ``tr(Sigma^-1 D)`` with ``D = 4 mean_x E[g g' | class x]``. The programme

    minimise tr(Sigma)  subject to  tr(Sigma^-1 D) = sum_kl

has the solution ``Sigma = (tr(D^1/2) / sum_kl) D^1/2`` of power ``tr(D^1/2)^2 / sum_kl``: setting the derivative of the
Lagrangian to zero gives ``Sigma^2 = mu D``, and the constraint gives ``mu``. Noise whose covariance does not depend on
the class reveals nothing of it itself.

The area under the ROC curve of any test between the signs is ``Phi(sqrt(sum_kl / 2))`` at most: for a positive and a
negative row with divergences a and b it is ``Phi(sqrt(a + b) / 2)``, which is concave in a + b. Divergences of several
releases of a row add up.

The programme and its solution are ours. O. Li, J. Sun et al. (arXiv 2102.08504, section 4.2) minimise the same
divergence between isotropic classes, with noise of another covariance for each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from cutlayer.errors import DataError
from cutlayer.lazy import Tensor, torch

# Share of the largest eigenvalue below which rounding to float64 decides: directions without a gradient get the noise
# of this share, which is 3e-4 of the largest standard deviation.
_FLOOR = 1e-14


def class_second_moments(rows: Tensor, labels: Tensor, sizes: Sequence[int]) -> Tensor:
    """Mean of ``g g'`` over the rows of each class.

    Args:
        rows: Floating (n, d).
        labels: int64 (n,), 0 to classes - 1.
        sizes: Number of rows of each class.

    Returns:
        float64 (classes, d, d); zeros where a class has no rows.
    """
    sorted_rows = rows.double().index_select(0, labels.argsort(stable=True))
    moments = sorted_rows.new_zeros(len(sizes), rows.shape[1], rows.shape[1])
    for moment, class_rows in zip(moments, torch.split(sorted_rows, list(sizes)), strict=True):
        if len(class_rows):
            torch.matmul(class_rows.T, class_rows, out=moment).div_(len(class_rows))
    return moments


def shared_noise(second_moment: Tensor, sum_kl: float) -> Tensor:
    """A root of the covariance of the noise of least power that leaves ``sum_kl``.

    Args:
        second_moment: Mean of ``g g'``, each class with the same weight, float64 (d, d), finite, not all zeros.
        sum_kl: Mean over rows of KL(g || -g) + KL(-g || g) after the noise, in nats, > 0.

    Returns:
        F, float64 (d, d): the rows of ``z F'`` for standard normal z (n, d) are the noise.

    Raises:
        DataError: An argument is outside its range.
    """
    if not (sum_kl > 0.0 and math.isfinite(sum_kl)):
        raise DataError.expected("a finite sum_kl > 0", sum_kl)
    scale = float(second_moment.diagonal().max()) if len(second_moment) else 0.0
    if not (scale > 0.0 and math.isfinite(scale)):
        raise DataError.expected("a finite second moment other than 0", scale)
    # Divided by its scale, so that neither squares of tiny gradients nor their roots leave the range of float64.
    values, vectors = torch.linalg.eigh(4.0 * second_moment / scale)
    roots = values.clamp(min=_FLOOR * float(values[-1])).sqrt()
    variances = roots * (float(roots.sum()) / sum_kl) * scale
    root: Tensor = vectors * variances.sqrt()
    return root


def bounded_rows(rows: Tensor, second_moment: Tensor, root: Tensor, times: float) -> tuple[Tensor, Tensor]:
    """Rows whose coordinates along the axes of a noise are at most some times those that it was made for.

    The noise of `shared_noise` leaves ``sum_kl`` of rows of the second moment that it was made for. Other rows may lie
    where it has next to nothing. Along each axis of the noise, a coordinate is bounded by `times` its root mean square
    under that moment, so that no row has more than ``times^2 sum_kl``.

    Args:
        rows: Floating (n, d).
        second_moment: What `shared_noise` was given, float64 (d, d).
        root: F that it returned, float64 (d, d).
        times: Above 0.

    Returns:
        The rows, float64 (n, d), and KL(g || -g) + KL(-g || g) of each under the noise, in nats, float64 (n,).
    """
    variances = root.square().sum(0)
    coordinates = rows.double() @ root / variances
    limits = times * ((root * (second_moment @ root)).sum(0).clamp(min=0.0).sqrt() / variances)
    bounded = torch.maximum(torch.minimum(coordinates, limits), -limits)
    return bounded @ root.T, 4.0 * bounded.square().sum(1)


def leak_of_sum_kl(sum_kl: float) -> float:
    """AUC between two Gaussians of equal covariance with this sum of KL divergences: Phi(sqrt(sum_kl / 2)).

    >>> round(leak_of_sum_kl(0.16), 3), round(leak_of_sum_kl(12 * 0.16), 3)
    (0.611, 0.836)
    """
    return NormalDist().cdf(math.sqrt(sum_kl / 2.0))
