"""A perceptron with ReLU layers and written-out gradients: at small batches autograd costs more than the products."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Layers = Sequence[tuple[Tensor, Tensor]]
"""Weight (width out, width in) and bias (width out,) of each layer, the first layer first."""


def layer_outputs(layers: Layers, x: Tensor) -> list[Tensor]:
    """Run the perceptron.

    Args:
        layers: of which all but the last are followed by a ReLU.
        x: floating (n, width in).

    Returns:
        x, then what each layer gives, after its ReLU; the last one holds the logits.
    """
    outputs = [x]
    for weight, bias in layers:
        linear = torch.addmm(bias, outputs[-1], weight.T)
        outputs.append(linear if len(outputs) == len(layers) else linear.relu_())
    return outputs


def input_gradient(layers: Layers, outputs: Sequence[Tensor], upstream: Tensor) -> Tensor:
    """Gradient of a loss with respect to x, (n, width in).

    Args:
        layers: of the perceptron.
        outputs: from `layer_outputs`.
        upstream: gradient of the loss with respect to the logits, (n, width out).
    """
    for place in reversed(range(1, len(layers))):
        upstream = _below(layers, outputs, upstream, place)
    return upstream @ layers[0][0]


def weight_gradients(layers: Layers, outputs: Sequence[Tensor], upstream: Tensor, into: Layers) -> None:
    """Write the gradient of a loss with respect to every weight and bias into tensors of their shapes.

    Args:
        layers, outputs, upstream: as in `input_gradient`.
        into: overwritten.
    """
    for place in reversed(range(len(layers))):
        weight, bias = into[place]
        torch.mm(upstream.T, outputs[place], out=weight)
        torch.sum(upstream, 0, out=bias)
        if place:
            upstream = _below(layers, outputs, upstream, place)


def _below(layers: Layers, outputs: Sequence[Tensor], upstream: Tensor, place: int) -> Tensor:
    """The gradient below layer `place` and the ReLU under it, whose output is 0 where nothing passes."""
    below: Tensor = torch.ops.aten.threshold_backward(upstream @ layers[place][0], outputs[place], 0)
    return below
