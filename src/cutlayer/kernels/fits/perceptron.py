"""A perceptron with ReLU layers and written-out gradients: at small batches autograd costs more than the products."""

from __future__ import annotations

from collections.abc import Sequence

from cutlayer.lazy import Tensor, torch

Layers = Sequence[tuple[Tensor, Tensor]]
"""Weight (width out, width in) and bias (width out,) of each layer, the first layer first.

Several perceptrons at once have a leading axis in these and in all other tensors."""


def views(vector: Tensor, shapes: Sequence[torch.Size]) -> list[Tensor]:
    """Tensors of these shapes that share the memory of one vector, one after another."""
    parts = torch.split(vector, [shape.numel() for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def layer_outputs(layers: Layers, x: Tensor) -> list[Tensor]:
    """Run the perceptron.

    Args:
        layers: Weights and biases; all layers but the last are followed by a ReLU.
        x: Floating (n, width in).

    Returns:
        x, then the output of each layer, after its ReLU; the last output is the logits.
    """
    outputs = [x]
    for weight, bias in layers:
        times = torch.addmm if weight.dim() == 2 else torch.baddbmm
        linear = times(bias.unsqueeze(-2), outputs[-1], weight.mT)
        outputs.append(linear if len(outputs) == len(layers) else linear.relu_())
    return outputs


def input_gradient(layers: Layers, outputs: Sequence[Tensor], upstream: Tensor) -> Tensor:
    """Gradient of a loss with respect to x, (n, width in).

    Args:
        layers: Weights and biases of the perceptron.
        outputs: Outputs of the layers, from `layer_outputs`.
        upstream: Gradient of the loss with respect to the logits, (n, width out).
    """
    for index in reversed(range(1, len(layers))):
        upstream = _below(layers, outputs, upstream, index)
    return upstream @ layers[0][0]


def weight_gradients(layers: Layers, outputs: Sequence[Tensor], upstream: Tensor, into: Layers) -> None:
    """Write the gradient of a loss with respect to every weight and bias into tensors of their shapes.

    Args:
        layers: As in `input_gradient`.
        outputs: As in `input_gradient`.
        upstream: As in `input_gradient`.
        into: Tensors that are overwritten, in the order of `layers`.
    """
    for index in reversed(range(len(layers))):
        weight, bias = into[index]
        torch.matmul(upstream.mT, outputs[index], out=weight)
        torch.sum(upstream, -2, out=bias)
        if index:
            upstream = _below(layers, outputs, upstream, index)


def _below(layers: Layers, outputs: Sequence[Tensor], upstream: Tensor, index: int) -> Tensor:
    """The gradient below layer `index` and the ReLU under it, whose output is 0 where nothing passes."""
    below: Tensor = torch.ops.aten.threshold_backward(upstream @ layers[index][0], outputs[index], 0)
    return below
