"""PyTorch's optimisers, which load its compiler at their first use, without the compiler.

`torch.optim` imports `torch._dynamo` at the first call of these methods, so that `torch.compile` can trace them.
Nothing is compiled here, and the import takes longer than a small training. The numbers are the same to the last bit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
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


class _Fused(_Uncompiled):
    """Steps of the numbers of PyTorch's own, without its many small operations where all tensors are on one device.

    In every step PyTorch looks up the tensors of all parameters, sorts them by device and type, and counts the steps of
    each by an operation. Here that is done once, as long as the same parameters have a gradient. A step with hooks is
    PyTorch's.
    """

    _kernel: ClassVar[Callable[..., None]]
    _plain_step: ClassVar[Callable[..., Any]]
    _lacking: list[list[bool]] | None = None
    _tensors: Sequence[Sequence[Any]] = ()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As `Optimizer.load_state_dict`."""
        self._lacking = None
        super().load_state_dict(state_dict)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step."""
        gradients = [[parameter.grad for parameter in group["params"]] for group in self.param_groups]
        lacking = [[gradient is None for gradient in of_group] for of_group in gradients]
        # Only the second step with the same gradients has the state of all.
        self._tensors = (self._tensors or self._found()) if lacking == self._lacking else ()
        self._lacking = lacking
        of_all = optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks
        hooks = (self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks, *of_all)
        if closure is not None or not self._tensors or any(hooks):
            return self._plain_step(closure)
        with torch.no_grad():
            groups = zip(self.param_groups, gradients, self._tensors, strict=True)
            for group, of_group, (steps, parameters, *state) in groups:
                steps += 1
                settings = {name: group[name] for name in ("amsgrad", "lr", "weight_decay", "eps", "maximize")}
                beta1, beta2 = group["betas"]
                given = [gradient for gradient in of_group if gradient is not None]
                type(self)._kernel(parameters, given, *state, beta1=beta1, beta2=beta2, **settings)
        return None

    step.hooked = True  # type: ignore[attr-defined]

    def _found(self) -> Sequence[Sequence[Any]]:
        """The tensors of each group: the steps of all parameters as one, parameters, state; none if they differ.

        On a CPU the steps are an array of NumPy's, which shares their memory: to count is faster there.
        """
        found = list[Sequence[Any]]()
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            kinds = {(parameter.device, parameter.dtype) for parameter in parameters}
            if not group["fused"] or group["amsgrad"] or len(kinds) != 1:
                return ()
            states = [self.state[parameter] for parameter in parameters]
            steps = torch.stack([state["step"] for state in states])
            for state, count in zip(states, steps, strict=True):
                state["step"] = count  # in the memory of `steps`
            means, squares, counts = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step"))
            found.append((steps.numpy() if steps.is_cpu else steps, parameters, means, squares, [], counts))
        return found


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
