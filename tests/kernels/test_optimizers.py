"""Optimisers without the compiler: the numbers of PyTorch's own, with its hooks and schedules."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cutlayer.kernels import optimizers

KINDS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9, "weight_decay": 0.1, "fused": True},
    "Adam": {"weight_decay": 0.1, "fused": True},
    "AdamW": {"fused": True},
}


def trained(kind: type[torch.optim.Optimizer], options: dict[str, Any]) -> tuple[list[Tensor], int]:
    """Weights after some steps, the state saved and loaded between them, and the number of calls of a hook."""
    torch.manual_seed(0)
    model, calls = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 1)), []
    x, optimizer = torch.randn(20, 5), kind(model.parameters(), lr=0.01, **options)
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=4)
    for step in range(6):
        if step == 3:
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        optimizer.zero_grad()
        assert all(parameter.grad is None for parameter in model.parameters())
        model(x).square().mean().backward()
        optimizer.step()
        falling.step()
    return [parameter.detach() for parameter in model.parameters()], len(calls)


@pytest.mark.parametrize("name", KINDS)
def test_the_weights_are_those_of_pytorch_to_the_last_bit(name: str) -> None:
    ours, calls = trained(getattr(optimizers, name), KINDS[name])
    theirs, expected = trained(getattr(torch.optim, name), KINDS[name])
    assert all(map(torch.equal, ours, theirs))
    assert calls == expected == 6
