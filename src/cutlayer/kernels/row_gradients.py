"""The gradient of each row apart, where backpropagation gives their sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

MOST_NUMBERS = 1 << 24
"""Of the gradients that are held at once: 64 MB."""


def row_gradients(model: nn.Module, inputs: Sequence[Tensor], upstream: Tensor) -> Iterator[Tensor]:
    """Gradients of sum(model(row) * upstream_row) for each row apart, a chunk of rows at a time.

    Args:
        model: of float32 parameters; gives (n, width) for inputs of n rows, each row by itself and without drawing
            random numbers. It is run again, on one row at a time under `vmap`.
        inputs: its arguments, (n, ...) each.
        upstream: (n, width).

    Returns:
        Float32 (m, p): the trained parameters in the order of `model.parameters()`, flattened.
    """
    weights = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}

    def told(parameters: dict[str, Tensor], above: Tensor, *row: Tensor) -> Tensor:
        output: Tensor = functional_call(model, parameters, tuple(one.unsqueeze(0) for one in row))
        return (output.squeeze(0) * above).sum()

    per_row = vmap(grad(told), in_dims=(None, 0, *(0 for _ in inputs)))
    size = max(1, MOST_NUMBERS // max(1, sum(weight.numel() for weight in weights.values())))
    for parts in zip(*(torch.split(one, size) for one in (upstream, *inputs)), strict=True):
        found = per_row(weights, *parts)
        yield torch.cat([found[name].flatten(1) for name in weights], dim=1)
