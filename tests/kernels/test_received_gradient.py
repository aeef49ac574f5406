"""The backward pass from a received gradient is that of `Tensor.backward` with one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cutlayer.kernels.gradients.received_gradient import backward_from


def test_weights_get_the_gradient_that_was_received() -> None:
    model, rows, gradient = nn.Linear(3, 2), torch.randn(5, 3), torch.randn(5, 2)
    model(rows).backward(gradient)
    expected = [weight.grad for weight in model.parameters()]
    model.zero_grad()
    output = model(rows)
    backward_from((output, gradient))
    assert all(torch.equal(weight.grad, known) for weight, known in zip(model.parameters(), expected, strict=True))


def test_a_term_of_its_own_is_added() -> None:
    output, gradient = torch.ones(4, 2, requires_grad=True), torch.randn(4, 2)
    backward_from((output, gradient), (3.0 * output.sum(), None), (None, None))
    assert torch.equal(output.grad, gradient + 3.0)


def test_a_gradient_of_another_shape_is_refused() -> None:
    output = nn.Linear(3, 2)(torch.randn(5, 3))
    with pytest.raises(RuntimeError, match="shape"):
        backward_from((output, torch.randn(4, 2)))
