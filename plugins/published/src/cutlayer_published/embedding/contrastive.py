"""The supervised contrastive loss and its gradient, a block of rows at a time: memory grows with n, not n squared."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cutlayer.errors import DataError
from cutlayer.kernels.rows.row_norms import rows_to_norm

_BLOCK = 512


def contrastive_loss(rows: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Pull rows of one label together on the unit sphere, and push all others apart; once differentiable in the rows.

    With z the rows at length 1 and P(i) the other rows of i's label, it is the mean over the rows i that have any of
    - 1 / |P(i)| sum over p in P(i) of log(exp(z_i z_p / t) / sum over a != i of exp(z_i z_a / t)).

    Args:
        rows: Floating (n, d).
        labels: int64 (n,), 0 or more.
        temperature: t, above 0; small ones look at near rows alone.

    Returns:
        A scalar >= 0 in the rows' dtype; 0 with a zero gradient where no two rows share a label.

    Raises:
        DataError: Rows and labels do not fit each other, or the temperature is out of range.

    Reference: Khosla et al. 2020, *Supervised contrastive learning* (arXiv 2004.11362), equation 2.
    """
    if rows.dim() != 2 or labels.shape != rows.shape[:1]:
        raise DataError.expected("rows (n, d) and labels (n,)", f"{tuple(rows.shape)} and {tuple(labels.shape)}")
    if not temperature > 0:
        raise DataError.expected("a temperature above 0", temperature, "0.5 is a usual choice")
    return cast("Tensor", _Contrastive.apply(rows_to_norm(rows, 1.0), labels, temperature))  # type: ignore[no-untyped-call]


class _Contrastive(torch.autograd.Function):
    """The value, and its gradient from the same blocks: for a loss only a factor can come from above."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, labels: Tensor, temperature: float) -> Tensor:
        counts: list[int] = torch.bincount(labels).tolist()
        anchors = sum(count for count in counts if count > 1)
        if not anchors:
            ctx.save_for_backward(torch.zeros_like(z))
            return z.new_zeros(())
        # By label: the weight of an anchor over the temperature, and its share for each of its positives.
        weights = [(count > 1) / (anchors * temperature) for count in counts]
        shares = [weight / max(count - 1, 1) for weight, count in zip(weights, counts, strict=True)]
        weight, share = z.new_tensor([weights, shares])[:, labels, None]
        sums = z.new_zeros(len(counts), z.shape[1]).index_add_(0, labels, z)
        pull = sums[labels].sub_(z).mul_(share)
        value: Tensor = torch.linalg.vecdot(pull, z).sum().neg_()
        # All rows of a label have one weight: as an anchor and as another's positive, a row is pulled alike.
        gradient = pull.mul_(-2.0)
        for start in range(0, len(z), _BLOCK):
            value += temperature * _push(z, weight, temperature, slice(start, start + _BLOCK), gradient)
        ctx.save_for_backward(gradient)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * upstream, None, None


def _push(z: Tensor, weight: Tensor, temperature: float, block: slice, gradient: Tensor) -> Tensor:
    """The weighted logarithms of the denominators of a block of anchors; adds their gradient."""
    similar = (z[block] / temperature) @ z.T
    similar.diagonal(block.start).fill_(-torch.inf)
    largest = similar.amax(1, keepdim=True)
    shares = similar.sub_(largest).exp_()
    sums = shares.sum(1, keepdim=True)
    shares.mul_(weight[block] / sums)
    gradient[block].addmm_(shares, z)
    gradient.addmm_(shares.T, z[block])
    return torch.dot(weight[block, 0], sums.log_().add_(largest)[:, 0])
