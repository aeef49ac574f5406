from __future__ import annotations

import pytest
import torch

from cutlayer.attacks.completion.training import Standardised
from cutlayer.attacks.feature.attribute import log_loss
from cutlayer.attacks.feature.decoder import Decoder, Loss
from cutlayer.attacks.feature.inversion import squared_error

CASES = {
    "squares": (squared_error(torch.tensor([0.5, 2.0, 0.0])), torch.randn(20, 3)),
    "log loss": (log_loss(3), torch.arange(20) % 3),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_a_step_are_those_of_autograd(case: str) -> None:
    loss, targets = CASES[case]
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(20, 4, generator=draw)
    start = torch.randn(3, 4, generator=draw), torch.randn(3, generator=draw)
    decoder = Decoder(Standardised(x), start, 5, torch.arange(0))
    torch.testing.assert_close(decoder.of_standardised(x), x @ start[0].T + start[1])  # starts as the linear map
    decoder.flat.copy_(torch.randn(len(decoder.flat), generator=draw))
    decoder.learn(x, targets, loss)
    flat = decoder.flat.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss.mean(written_out(flat, x), targets), flat)
    torch.testing.assert_close(decoder.flat.grad, gradient)
    torch.testing.assert_close(decoder.of_standardised(x), written_out(flat, x).detach())


def written_out(flat: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    shapes = [(3, 4), (5, 4), (5,), (5, 5), (5,), (3, 5), (3,)]
    parts = torch.split(flat, [torch.Size(shape).numel() for shape in shapes])
    linear, first, a, second, b, last, bias = (part.view(shape) for part, shape in zip(parts, shapes, strict=True))
    deep = torch.relu(torch.relu(x @ first.T + a) @ second.T + b)
    return x @ linear.T + deep @ last.T + bias


def test_the_slope_is_of_the_mean_over_rows() -> None:
    loss: Loss = CASES["squares"][0]
    outputs, wanted = torch.ones(4, 3), torch.zeros(4, 3)
    torch.testing.assert_close(loss.slope(outputs, wanted).sum(0), 2 * torch.tensor([0.5, 2.0, 0.0]))
