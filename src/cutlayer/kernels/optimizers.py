"""PyTorch's optimisers, which load its compiler at their first use, without the compiler.

`torch.optim` imports `torch._dynamo` at the first call of these methods, so that `torch.compile` can trace them.
Nothing is compiled here, and the import takes longer than a small training. The numbers are the same to the last bit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer, optimizer


class _Uncompiled(Optimizer):
    """The methods of `Optimizer` beneath the wrappers that load the compiler, which not all versions have."""

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)
    state_dict = inspect.unwrap(Optimizer.state_dict)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, which the next backward pass makes anew; nothing is left for a profiler to see."""
        if not set_to_none:
            raise ValueError("expected set_to_none of zero_grad, got False")
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None


def _step_of(kind: type[Optimizer]) -> Callable[..., Any]:
    """The step of an optimiser, in which no gradient is recorded; hooks are added by `Optimizer` itself."""
    step: Callable[..., Any] = torch.no_grad()(inspect.unwrap(kind.step))
    return step


class _Learning(NamedTuple):
    """The tensors of a group of parameters in a step.

    Attributes:
        group: Settings of the group.
        parameters: The parameters that had a gradient in any step.
        idle: The others.
        means: Mean gradient of each parameter.
        squares: Mean squared gradient of each.
        steps: Number of steps of each, (n,).
        counts: The same, each as a tensor of its own in the memory of `steps`.
    """

    group: dict[str, Any]
    parameters: list[Tensor]
    idle: list[Tensor]
    means: list[Tensor]
    squares: list[Tensor]
    steps: Tensor
    counts: tuple[Tensor, ...]


class _Fused(_Uncompiled):
    """Steps of the numbers of PyTorch's own, without its many small operations where all tensors are on the CPU.

    In every step PyTorch looks up the tensors of all parameters, sorts them by device and type, and counts the steps of
    each by an operation. Here that is done once; it is again where a parameter gets its first gradient. A step with
    hooks, or in which a parameter has no gradient that had one before, is PyTorch's.
    """

    _kernel: ClassVar[Callable[..., Any]]
    _plain_step: ClassVar[Callable[..., Any]]
    _learning: list[_Learning] | None = None
    _known = -1

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As `Optimizer.load_state_dict`."""
        self._learning, self._known = None, -1
        super().load_state_dict(state_dict)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step."""
        hooks = self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks, *_hooks_of_all()
        if self._learning is not None and closure is None and not any(hooks):
            gradients = [[parameter.grad for parameter in each.parameters] for each in self._learning]
            idle = chain.from_iterable(each.idle for each in self._learning)
            if not any(g is None for g in chain(*gradients)) and all(parameter.grad is None for parameter in idle):
                self._step_again(self._learning, gradients)
                return None
        result = self._plain_step(closure)
        if len(self.state) != self._known:
            self._learning, self._known = self._found(), len(self.state)
        return result

    step.hooked = True  # type: ignore[attr-defined]

    @torch.no_grad()
    def _step_again(self, learning: list[_Learning], gradients: list[list[Tensor | None]]) -> None:
        for each, of_each in zip(learning, gradients, strict=True):
            each.steps.add_(1)
            type(self)._kernel(
                each.parameters,
                of_each,
                each.means,
                each.squares,
                [],
                each.counts,
                amsgrad=False,
                lr=each.group["lr"],
                beta1=each.group["betas"][0],
                beta2=each.group["betas"][1],
                weight_decay=each.group["weight_decay"],
                eps=each.group["eps"],
                maximize=each.group["maximize"],
            )

    def _found(self) -> list[_Learning] | None:
        """The tensors of each group after a step; `None` where PyTorch has to sort them."""
        learning = []
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter in self.state]
            kinds = {(parameter.device.type, parameter.dtype) for parameter in parameters}
            if not group["fused"] or group["amsgrad"] or len(kinds) != 1 or kinds.pop()[0] != "cpu":
                return None
            states = [self.state[parameter] for parameter in parameters]
            steps = torch.stack([state["step"] for state in states])
            counts = steps.unbind()
            for state, count in zip(states, counts, strict=True):
                state["step"] = count
            idle = [parameter for parameter in group["params"] if parameter not in self.state]
            means, squares = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
            learning.append(_Learning(group, parameters, idle, means, squares, steps, counts))
        return learning


def _hooks_of_all() -> tuple[Any, Any]:
    """Hooks before and after the steps of all optimisers."""
    return optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks


class SGD(_Uncompiled, torch.optim.SGD):
    """As `torch.optim.SGD`."""

    step = _step_of(torch.optim.SGD)


class Adam(_Fused, torch.optim.Adam):
    """As `torch.optim.Adam`."""

    _kernel = staticmethod(torch._fused_adam_)
    _plain_step = Optimizer.profile_hook_step(_step_of(torch.optim.Adam))


class AdamW(_Fused, torch.optim.AdamW):
    """As `torch.optim.AdamW`."""

    _kernel = staticmethod(torch._fused_adamw_)
    _plain_step = Optimizer.profile_hook_step(_step_of(torch.optim.AdamW))
