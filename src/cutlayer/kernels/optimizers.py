"""PyTorch's optimisers, which load its compiler at their first use, without the compiler.

`torch.optim` imports `torch._dynamo` at the first call of these methods, so that `torch.compile` can trace them.
Nothing is compiled here, and the import takes longer than a small training. The numbers are the same to the last bit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer


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


class SGD(_Uncompiled, torch.optim.SGD):
    """As `torch.optim.SGD`."""

    step = _step_of(torch.optim.SGD)


class Adam(_Uncompiled, torch.optim.Adam):
    """As `torch.optim.Adam`."""

    step = _step_of(torch.optim.Adam)


class AdamW(_Uncompiled, torch.optim.AdamW):
    """As `torch.optim.AdamW`."""

    step = _step_of(torch.optim.AdamW)
