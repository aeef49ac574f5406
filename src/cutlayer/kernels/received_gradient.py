"""The backward pass from a gradient that was received, in place of one of a loss."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor


def with_gradient(output: Tensor, gradient: Tensor) -> Tensor:
    """A zero whose gradient with respect to `output` is `gradient`.

    `output.backward(gradient)` does the same, but PyTorch compares the shapes with the symbols of its compiler, whose
    import takes a third of the time of its own.

    Args:
        output: Floating, any shape.
        gradient: Of the same shape.
    """
    return cast("Tensor", _Received.apply(output, gradient))  # type: ignore[no-untyped-call]


class _Received(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, output: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return output.new_zeros(())

    @staticmethod
    def backward(ctx: Any, _upstream: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return gradient, None
