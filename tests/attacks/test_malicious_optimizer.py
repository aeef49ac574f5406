"""The malicious optimiser against a plain loop over single numbers."""

import math

import pytest
import torch

from cutlayer.attacks.completion.active import PREVIOUS_GRADIENT, make_malicious, update_factors
from cutlayer.config import OptimizerConfig
from cutlayer.parties.session.state import build_optimizer

GRADIENTS = [
    [1.0, 2.0, -1.0, 0.0, 3.0],
    [0.5, -1.0, -9.0, 4.0, 0.0],
    [2.0, 1.0, -4.0, 1.0, -1.0],
    [2.0, 1.5, 3.0, 1.0, 2.0],
]
START = [1.0, -2.0, 0.5, 0.25, 4.0]


def straightforward(updates, gradients, gamma, scaled=False):
    """Weights after steps of the given honest updates, one number at a time."""
    weights, previous = list(START), None
    for update, gradient in zip(updates(), gradients, strict=True):
        remembered = []
        for index, g in enumerate(gradient):
            ratio = 1.0
            if previous is not None:
                before = previous[index]
                if before != 0:
                    ratio = 1 + gamma * g / before
                elif g != 0 and gamma != 0:
                    ratio = math.copysign(math.inf, g * math.copysign(1.0, before))
            ratio = min(max(ratio, 1.0), 5.0)
            weights[index] += ratio * update(index, g)
            remembered.append(ratio * g if scaled else g)
        previous = remembered
    return weights


def run(optimizer, weight, gradients):
    for gradient in gradients:
        weight.grad = torch.tensor(gradient)
        optimizer.step()
    return weight.tolist()


def sgd():
    return [lambda place, g: -0.1 * g for _ in GRADIENTS]


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 3.0])
def test_plain_sgd_takes_scaled_steps(gamma):
    weight = torch.nn.Parameter(torch.tensor(START))
    found = run(make_malicious(torch.optim.SGD([weight], lr=0.1), gamma), weight, GRADIENTS)
    assert found == pytest.approx(straightforward(sgd, GRADIENTS, gamma), rel=1e-5)


def test_the_unscaled_gradient_is_remembered_unless_asked_otherwise():
    apart = [straightforward(sgd, GRADIENTS, 1.0, scaled) for scaled in (False, True)]
    assert max(abs(a - b) for a, b in zip(*apart, strict=True)) > 0.1
    weight = torch.nn.Parameter(torch.tensor(START))
    found = run(make_malicious(torch.optim.SGD([weight], lr=0.1), remember_scaled=True), weight, GRADIENTS)
    assert found == pytest.approx(apart[1], rel=1e-5)


@pytest.mark.parametrize(
    "settings", [{"kind": "adam"}, {"kind": "adamw", "weight_decay": 0.1}, {"kind": "sgd", "momentum": 0.9}]
)
def test_the_updates_of_any_optimiser_are_scaled_by_the_gradients_ratio(settings):
    config = OptimizerConfig(lr=0.01, **settings)
    weight = torch.nn.Parameter(torch.tensor(START))
    optimizer = make_malicious(build_optimizer(config, [weight]))
    previous = None
    for gradient in GRADIENTS:
        honest = torch.nn.Parameter(weight.detach().clone())
        twin = build_optimizer(config, [honest])
        state = optimizer.state_dict()
        for item in state["state"].values():
            item.pop(PREVIOUS_GRADIENT, None)
        twin.load_state_dict(
            {**state, "state": {k: {n: torch.clone(v) for n, v in s.items()} for k, s in state["state"].items()}}
        )
        before, g = weight.detach().clone(), torch.tensor(gradient)
        honest.grad, weight.grad = g.clone(), g.clone()
        optimizer.state[weight] |= {PREVIOUS_GRADIENT: previous} if previous is not None else {}
        twin.step()
        optimizer.step()
        ratio = torch.ones(5) if previous is None else update_factors(g, previous, 1.0)
        torch.testing.assert_close(weight.detach() - before, ratio * (honest.detach() - before), rtol=1e-4, atol=1e-7)
        previous = g


def test_the_bounds_are_one_and_five():
    gradient, previous = torch.randn(2, 1000, generator=torch.Generator().manual_seed(0))
    found = update_factors(gradient, previous, 1.0)
    assert float(found.min()) == 1.0
    assert float(found.max()) == 5.0
    expected = torch.tensor(
        [min(max(1 + float(g) / float(p), 1.0), 5.0) for g, p in zip(gradient, previous, strict=True)]
    )
    torch.testing.assert_close(found, expected)


def test_the_first_step_is_honest():
    weight = torch.nn.Parameter(torch.tensor(START))
    run(make_malicious(torch.optim.SGD([weight], lr=0.1)), weight, GRADIENTS[:1])
    torch.testing.assert_close(weight.detach(), torch.tensor(START) - 0.1 * torch.tensor(GRADIENTS[0]))


@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_a_saved_optimiser_goes_on_where_it_stopped(kind):
    def made(weight):
        return make_malicious(build_optimizer(OptimizerConfig(kind=kind, lr=0.05), [weight]))

    whole, part, later = (torch.nn.Parameter(torch.tensor(START)) for _ in range(3))
    run(made(whole), whole, GRADIENTS)
    stopped = made(part)
    run(stopped, part, GRADIENTS[:2])
    later.data.copy_(part.data)
    resumed = made(later)
    resumed.load_state_dict(stopped.state_dict())
    run(resumed, later, GRADIENTS[2:])
    assert later.tolist() == whole.tolist()
    forgetful = made(torch.nn.Parameter(part.detach().clone()))
    assert PREVIOUS_GRADIENT not in str(forgetful.state_dict()["state"])


def test_a_parameter_without_a_gradient_stays():
    used, unused = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizer = make_malicious(torch.optim.SGD([used, unused], lr=0.1))
    for _ in range(2):
        used.grad = torch.ones(2)
        optimizer.step()
    assert unused.tolist() == [1.0, 1.0]
    assert used.tolist() == pytest.approx([1 - 0.1 - 0.2] * 2)
