"""Tweedie deviances on the log link: of counts, of amounts with zeros, and of positive amounts."""

from __future__ import annotations

from cutlayer.lazy import Tensor, torch


def log_link_loss(logarithms: Tensor, targets: Tensor, power: float) -> Tensor:
    """Half the unit deviance of each row, without the part that no model changes; convex in the logarithms.

    Args:
        logarithms: Logarithms of the means, (n,).
        targets: Targets, 0 or more; above 0 for a power of 2, (n,).
        power: Power of the mean that the variance follows: 1 (Poisson) to 2 (gamma).
    """
    if power == 2:
        return logarithms + targets * (-logarithms).exp()
    means = ((2 - power) * logarithms).exp() / (2 - power)
    if power == 1:
        return means - targets * logarithms
    return means + targets * ((1 - power) * logarithms).exp() / (power - 1)


def log_link_slope(logarithms: Tensor, targets: Tensor, power: float) -> Tensor:
    """Derivative of `log_link_loss` with respect to the logarithms, (n,)."""
    return ((2 - power) * logarithms).exp() - targets * ((1 - power) * logarithms).exp()


def least_loss(targets: Tensor, power: float) -> Tensor:
    """`log_link_loss` of the targets as means, the least of a row, (n,): half the unit deviance is above it."""
    if power == 1:
        return targets - torch.xlogy(targets, targets)
    return 1 + targets.log() if power == 2 else targets ** (2 - power) / ((2 - power) * (power - 1))


def deviance(logarithms: Tensor, targets: Tensor, power: float) -> Tensor:
    """Unit deviance of each row, (n,), 0 or more; arguments as of `log_link_loss`.

    Reference: Jorgensen 1987, Exponential dispersion models (JRSS B 49).
    """
    return (2 * (log_link_loss(logarithms, targets, power) - least_loss(targets, power))).clamp_min(0)
