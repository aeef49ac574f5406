"""Optimisers without the compiler: the numbers of PyTorch's own, with its hooks and schedules."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from cutlayer.kernels.fits import optimizers
from tests.pretended import pretending

KINDS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1, "fused": True},
    "Adam": {"lr": 0.01, "weight_decay": 0.1, "fused": True},
    "AdamW": {"lr": 0.01, "fused": True},
}


def trained(kind: type[torch.optim.Optimizer], options: dict[str, Any], hooked: bool) -> tuple[list[Tensor], int]:
    """Weights and state after some steps, saved and loaded between them, and the number of calls of a hook.

    A layer has no gradient at first, and none in a later step, which PyTorch's fused SGD refuses with a momentum; the
    learning rate falls.
    """
    torch.manual_seed(0)
    model, late, calls = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 1)), nn.Linear(5, 1), []
    x, optimizer = torch.randn(20, 5), kind([*model.parameters(), *late.parameters()], **options)
    if hooked:
        optimizer.register_step_post_hook(lambda *_: calls.append(1))
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=4)
    for step in range(10):
        if step == 5:
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        optimizer.zero_grad()
        assert all(parameter.grad is None for parameter in (*model.parameters(), *late.parameters()))
        (model(x) + (0 if step in (0, 1, 8) and "momentum" not in options else late(x))).square().mean().backward()
        optimizer.step()
        falling.step()
    values = [value for state in optimizer.state_dict()["state"].values() for value in state.values()]
    weights = [parameter.detach() for parameter in (*model.parameters(), *late.parameters())]
    return [*weights, *(value for value in values if isinstance(value, Tensor))], len(calls)


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_the_weights_are_those_of_pytorch_to_the_last_bit(name: str, hooked: bool) -> None:
    ours, calls = trained(getattr(optimizers, name), KINDS[name], hooked)
    theirs, expected = trained(getattr(torch.optim, name), KINDS[name], hooked)
    assert all(map(torch.equal, ours, theirs))
    assert calls == expected == 10 * hooked


@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_later_steps_are_a_call_each(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless one of the hooks is there that only PyTorch's own step calls."""
    weight, plain = nn.Parameter(torch.ones(3)), list[int]()
    kind = getattr(optimizers, name)
    step = kind._plain_step

    def counted(self: torch.optim.Optimizer, closure: None) -> None:
        plain.append(1)
        step(self, closure)

    monkeypatch.setattr(kind, "_plain_step", counted)
    taken = kind([weight], fused=True)
    for _ in range(3):
        weight.grad = torch.ones(3)
        taken.step()
    assert len(plain) == 1  # the first: only then is there a state
    with pretending() as elsewhere:
        moved = kind([nn.Parameter(torch.ones(3).to(elsewhere))], fused=True)
        for _ in range(3):
            moved.param_groups[0]["params"][0].grad = torch.ones(3).to(elsewhere)
            moved.step()
        assert torch.equal(moved.param_groups[0]["params"][0].detach().cpu(), weight.detach())
    assert len(plain) == 2
    handle = register_optimizer_step_post_hook(lambda *_: plain.append(1))
    taken.step()
    handle.remove()
    assert len(plain) == 4
