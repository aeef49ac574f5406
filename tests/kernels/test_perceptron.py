"""The perceptron's written gradients against autograd through `nn.Linear` and `nn.ReLU`."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

from cutlayer.kernels.fits.perceptron import input_gradient, layer_outputs, weight_gradients


@pytest.mark.parametrize("widths", [(5, 3), (5, 7, 3), (5, 7, 6, 3), (1, 2, 2, 2, 1)])
@pytest.mark.parametrize("rows", [1, 9])
def test_values_and_gradients_are_those_of_autograd(widths, rows):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        linear = [nn.Linear(a, b).double() for a, b in pairwise(widths)]
    stack = nn.Sequential(*(part for layer in linear for part in (layer, nn.ReLU())))[:-1]
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(rows, widths[0], generator=draw, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(rows, widths[-1], generator=draw, dtype=torch.float64)
    logits = stack(x)
    logits.backward(upstream)
    layers = [(layer.weight.detach(), layer.bias.detach()) for layer in linear]
    outputs = layer_outputs(layers, x.detach())
    assert len(outputs) == len(widths)
    torch.testing.assert_close(outputs[-1], logits.detach())
    torch.testing.assert_close(input_gradient(layers, outputs, upstream), x.grad)
    into = [(torch.full_like(weight, 9.0), torch.full_like(bias, 9.0)) for weight, bias in layers]
    weight_gradients(layers, outputs, upstream, into)
    for layer, (weight, bias) in zip(linear, into, strict=True):
        torch.testing.assert_close(weight, layer.weight.grad)
        torch.testing.assert_close(bias, layer.bias.grad)


def test_nothing_passes_a_relu_that_is_shut():
    layers = [(torch.tensor([[1.0], [1.0]]), torch.tensor([0.0, -5.0])), (torch.tensor([[1.0, 1.0]]), torch.zeros(1))]
    outputs = layer_outputs(layers, torch.tensor([[2.0], [7.0], [-1.0]]))
    assert outputs[1].tolist() == [[2.0, 0.0], [7.0, 2.0], [0.0, 0.0]]
    assert input_gradient(layers, outputs, torch.ones(3, 1)).tolist() == [[1.0], [2.0], [0.0]]


def test_several_at_once_are_each_as_alone():
    draw = torch.Generator().manual_seed(0)
    shapes = [((3, 6, 4), (3, 6)), ((3, 2, 6), (3, 2))]
    layers = [tuple(torch.randn(shape, generator=draw, dtype=torch.float64) for shape in pair) for pair in shapes]
    x, upstream = (torch.randn(3, 5, width, generator=draw, dtype=torch.float64) for width in (4, 2))
    outputs, into = layer_outputs(layers, x), [tuple(map(torch.empty_like, pair)) for pair in layers]
    weight_gradients(layers, outputs, upstream, into)
    for index in range(3):
        alone = [(weight[index], bias[index]) for weight, bias in layers]
        known, expected = layer_outputs(alone, x[index]), [tuple(map(torch.empty_like, pair)) for pair in alone]
        torch.testing.assert_close(outputs[-1][index], known[-1])
        weight_gradients(alone, known, upstream[index], expected)
        torch.testing.assert_close([(weight[index], bias[index]) for weight, bias in into], expected)
