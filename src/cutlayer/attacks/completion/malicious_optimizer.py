"""The malicious local optimiser: a passive party that takes larger steps where its gradient keeps its direction."""

from __future__ import annotations

import torch
from torch import Tensor, nn

LEAST, MOST = 1.0, 5.0
GAMMA = 1.0
PREVIOUS = "previous_gradient"
"""Where the optimiser's state, and with it a checkpoint, keeps the gradient of the step before."""


def malicious(
    optimizer: torch.optim.Optimizer, gamma: float = GAMMA, *, remember_scaled: bool = False
) -> torch.optim.Optimizer:
    """Make an optimiser scale each entry of its updates by clamp(1 + gamma * g_t / g_(t-1), 1, 5).

    The first update is left as it is. g is the gradient of the parameter as it came; where the one before was zero, the
    limit of the quotient is taken, and 1 where both are. What is scaled is the update that the optimiser made of it, so
    that any kind of optimiser can be wrapped; for plain SGD that is the gradient times the learning rate.

    The previous gradient is remembered unscaled, as in the paper. The well-known implementation remembers the scaled
    one, takes the quotient of gradients averaged by momentum, and adds 1e-7 to the divisor; `remember_scaled` does the
    first of these.

    Args:
        optimizer: the party's own; the same object is returned, with its hooks set.
        gamma: 0 changes nothing.
        remember_scaled: remember g_t times its factor.

    Reference: Fu et al., Label inference attacks against vertical federated learning (USENIX Security 2022), the
    malicious local optimizer of the active attack.
    """
    before: list[tuple[nn.Parameter, Tensor, Tensor]] = []

    def keep(*_: object) -> None:
        trained = [weight for group in optimizer.param_groups for weight in group["params"] if weight.grad is not None]
        before[:] = [(weight, weight.detach().clone(), weight.grad.clone()) for weight in trained]

    def scale(*_: object) -> None:
        for weight, start, gradient in before:
            state = optimizer.state[weight]
            factor = factors(gradient, state[PREVIOUS], gamma) if PREVIOUS in state else torch.ones_like(gradient)
            weight.detach().addcmul_(factor - 1, weight.detach() - start)
            state[PREVIOUS] = factor * gradient if remember_scaled else gradient
        before.clear()

    optimizer.register_step_pre_hook(keep)
    optimizer.register_step_post_hook(scale)
    return optimizer


def factors(gradient: Tensor, previous: Tensor, gamma: float) -> Tensor:
    """What each entry of an update is multiplied by, in [1, 5].

    >>> factors(torch.tensor([1.0, 9.0, -1.0, 0.0]), torch.tensor([2.0, 1.0, 1.0, 0.0]), 1.0).tolist()
    [1.5, 5.0, 1.0, 1.0]
    """
    return (1 + gamma * gradient / previous).nan_to_num(LEAST, posinf=MOST, neginf=LEAST).clamp(LEAST, MOST)
