"""The backward pass from gradients that were received, in place of one of a loss."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def backward_from(outputs: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
    """Add to the gradients of all that some tensors were computed from.

    `torch.autograd.backward` does the same, but compares the shapes with symbols of PyTorch's compiler, whose import
    takes a third of the time of its own. The engine, which is called here, compares them too.

    Args:
        outputs: Floating, any shape.
        gradients: The gradient at each, of its shape; `None` for 1 at a tensor of no axis.
    """
    upstream = tuple(torch.ones_like(o) if g is None else g for o, g in zip(outputs, gradients, strict=True))
    torch.autograd.Variable._execution_engine.run_backward(
        tuple(outputs), upstream, False, False, (), allow_unreachable=True, accumulate_grad=True
    )
