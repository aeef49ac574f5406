"""Active model completion: the party trains with a malicious optimiser before it completes its model."""

from __future__ import annotations

from cutlayer.attacks.completion.base import OptimizerHook
from cutlayer.attacks.completion.passive import ModelCompletion
from cutlayer.lazy import Tensor, nn, torch

MIN_FACTOR, MAX_FACTOR = 1.0, 5.0
GAMMA = 1.0
PREVIOUS_GRADIENT = "previous_gradient"
"""Key of the previous step's gradient in the optimiser's state, and so in a checkpoint."""


class ActiveModelCompletion(ModelCompletion):
    """Complete a bottom model that was trained with larger local steps, so that the top model relies on it.

    While all parties train, the attacker's own optimiser is wrapped (`make_malicious`); the audit trains a separate run
    for that, with the same job and seed. Afterwards the bottom model is completed as by `model_completion`.

    Reference: Fu et al., Label inference attacks against vertical federated learning (USENIX Security 2022), the active
    attack with the malicious local optimizer.
    """

    name = "active_model_completion"
    reference = "Fu et al. 2022 (USENIX Security), active label inference attack"

    def optimizer_hook(self) -> OptimizerHook:
        """The malicious optimiser."""
        return make_malicious


def make_malicious(
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
        optimizer: The party's own optimiser; the same object is returned, with its hooks set.
        gamma: Strength of the scaling; 0 changes nothing.
        remember_scaled: Whether to remember g_t times its factor.

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
            factor = (
                update_factors(gradient, state[PREVIOUS_GRADIENT], gamma)
                if PREVIOUS_GRADIENT in state
                else torch.ones_like(gradient)
            )
            weight.detach().addcmul_(factor - 1, weight.detach() - start)
            state[PREVIOUS_GRADIENT] = factor * gradient if remember_scaled else gradient
        before.clear()

    optimizer.register_step_pre_hook(keep)
    optimizer.register_step_post_hook(scale)
    return optimizer


def update_factors(gradient: Tensor, previous: Tensor, gamma: float) -> Tensor:
    """Factor of each entry of an update, in [1, 5].

    >>> update_factors(torch.tensor([1.0, 9.0, -1.0, 0.0]), torch.tensor([2.0, 1.0, 1.0, 0.0]), 1.0).tolist()
    [1.5, 5.0, 1.0, 1.0]
    """
    factor = 1 + gamma * gradient / previous
    return factor.nan_to_num(MIN_FACTOR, posinf=MAX_FACTOR, neginf=MIN_FACTOR).clamp(MIN_FACTOR, MAX_FACTOR)
