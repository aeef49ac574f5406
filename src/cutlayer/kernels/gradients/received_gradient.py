"""The backward pass from gradients that were received, in place of one of a loss."""

from __future__ import annotations

import torch
from torch import Tensor


def backward_from(*terms: tuple[Tensor | None, Tensor | None]) -> None:
    """Add to the gradients of all that some tensors were computed from.

    `torch.autograd.backward` does the same, but compares the shapes with symbols of PyTorch's compiler, whose import
    takes a third of the time of its own. The engine, which is called here, compares them too.

    Args:
        terms: Each tensor, floating, with the gradient at it, of its shape; `None` for 1 at a tensor of no axis. `None`
            in place of a tensor adds nothing.
    """
    outputs = tuple(output for output, _ in terms if output is not None)
    upstream = tuple(torch.ones_like(o) if g is None else g for o, g in terms if o is not None)
    engine = torch.autograd.Variable._execution_engine
    engine.run_backward(outputs, upstream, False, False, (), allow_unreachable=True, accumulate_grad=True)
