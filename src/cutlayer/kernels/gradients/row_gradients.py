"""Gradients of single rows, where backpropagation gives their sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

MAX_NUMBERS = 1 << 24
"""Maximum size of the gradients that are held at once: 64 MB."""


def row_gradients(model: nn.Module, inputs: Sequence[Tensor], upstream: Tensor) -> Iterator[Tensor]:
    """Gradient of sum(model(row) * upstream_row) for each row on its own, a chunk of rows at a time.

    Args:
        model: Model of float32 parameters that maps inputs of n rows to (n, width), each row by itself and without
            drawing random numbers. It is run again, on one row at a time under `vmap`.
        inputs: Arguments of the model, (n, ...) each.
        upstream: Gradient at the model's output, (n, width).

    Returns:
        Float32 (m, p): the trained parameters in the order of `model.parameters()`, flattened.
    """
    weights = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}

    def value(parameters: dict[str, Tensor], above: Tensor, *row: Tensor) -> Tensor:
        output: Tensor = functional_call(model, parameters, tuple(column.unsqueeze(0) for column in row))
        return (output.squeeze(0) * above).sum()

    per_row = vmap(grad(value), in_dims=(None, 0, *(0 for _ in inputs)))
    size = max(1, MAX_NUMBERS // max(1, sum(weight.numel() for weight in weights.values())))
    for parts in zip(*(torch.split(tensor, size) for tensor in (upstream, *inputs)), strict=True):
        gradients = per_row(weights, *parts)
        yield torch.cat([gradients[name].flatten(1) for name in weights], dim=1)
