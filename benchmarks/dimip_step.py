"""A training step with DIMIP against the undefended one, in turn, on one core.

A step is that of both parties in a plain loop of the protocol, without messages and records: two bottom models forward,
the top model and its loss, the cut gradient through the chain, both backward passes and both optimisers.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cutlayer.models import Inputs
from cutlayer.models.mlp import MlpBottom, MlpBottomConfig
from cutlayer.problem.task import Task
from cutlayer.protections import build
from cutlayer.protections.contract.base import Context
from cutlayer.protections.contract.chain import Chain
from cutlayer.protections.contract.keyed_noise import Noise
from cutlayer.protections.contract.views import ActiveView, Mode

PEER = "passive"
STEPS_AT_A_TIME = 20
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "single_pass": {"lam": 0.5, "single_pass": True},
    "default": {"lam": 0.5},
}


@dataclass(frozen=True)
class Cost:
    """One variant in one setting.

    Attributes:
        step_ms: median of its step.
        ratio: median over the repeats of its seconds over those of the undefended step just before it.
        lowest, highest: of the same.
    """

    setting: str
    variant: str
    step_ms: float
    ratio: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class StepCosts:
    """All of them.

    Attributes:
        undefended_ms: median of the undefended step, by setting.
    """

    name: str
    repeats: int
    threads: int
    undefended_ms: Mapping[str, float]
    costs: tuple[Cost, ...]


@dataclass(frozen=True)
class Setting:
    """Two parties of the same kind.

    Attributes:
        bottom: builds a bottom model of embedding width 64 or 32.
        inputs: draws a batch for it.
    """

    name: str
    task: Task
    batch_size: int
    width: int
    bottom: Callable[[], nn.Module]
    inputs: Callable[[torch.Generator], tuple[Tensor, ...]]


def _halves() -> Setting:
    """Halves of 28 x 28 images at the paper's batch size, two convolutions each."""

    def bottom() -> nn.Module:
        return nn.Sequential(
            *(
                nn.Conv2d(1, 16, 5, stride=2, padding=2),
                nn.ReLU(),
                nn.Conv2d(16, 32, 3, stride=2, padding=1),
                nn.ReLU(),
            ),
            *(nn.Flatten(), nn.Linear(32 * 7 * 4, 64), nn.ReLU()),
        )

    def inputs(draw: torch.Generator) -> tuple[Tensor, ...]:
        return (torch.rand(32, 1, 28, 14, generator=draw),)

    return Setting("image halves, batch 32", Task("multiclass", tuple("0123456789")), 32, 64, bottom, inputs)


def _adult() -> Setting:
    """Columns as of the UCI Adult table in default `mlp` models: four categorical and three numbers per party."""
    given = Inputs((10, 18, 16, 8), 3)

    def inputs(draw: torch.Generator) -> tuple[Tensor, ...]:
        return torch.randint(8, (256, 4), generator=draw, dtype=torch.int32), torch.randn(256, 3, generator=draw)

    return Setting(
        *("Adult columns, batch 256", Task("binary", ("0", "1")), 256, 32),
        *(lambda: MlpBottom(MlpBottomConfig(), given), inputs),
    )


def dimip_step(repeats: int, steps: int = STEPS_AT_A_TIME) -> StepCosts:
    """Time `steps` steps of each variant after as many undefended ones, in turn, `repeats` times."""
    torch.set_num_threads(1)
    undefended, costs = {}, []
    for setting in (_halves(), _adult()):
        plain = _side(setting, None)
        sides = {name: _side(setting, options) for name, options in VARIANTS.items()}
        times: dict[str, list[float]] = {name: [] for name in sides}
        bases: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(repeats + 1):  # the first is to warm up
            for name, side in sides.items():
                base, taken = plain(steps), side(steps)
                if number:
                    bases[name].append(base)
                    times[name].append(taken)
        every = [base for some in bases.values() for base in some]
        undefended[setting.name] = round(1e3 * statistics.median(every) / steps, 3)
        for name, taken_all in times.items():
            ratios = [taken / base for taken, base in zip(taken_all, bases[name], strict=True)]
            ms = round(1e3 * statistics.median(taken_all) / steps, 3)
            spread = (round(value, 3) for value in (statistics.median(ratios), min(ratios), max(ratios)))
            costs.append(Cost(setting.name, name, ms, *spread))
    return StepCosts("dimip", repeats, 1, undefended, tuple(costs))


def _side(setting: Setting, options: Mapping[str, Any] | None) -> Callable[[int], float]:
    """A function that runs some training steps and returns their seconds."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(len(setting.task.classes), (setting.batch_size,), generator=draw)
    inputs = setting.inputs(draw), setting.inputs(draw)
    own, bottom = setting.bottom(), setting.bottom()
    top = nn.Sequential(nn.Linear(2 * setting.width, 64), nn.ReLU(), nn.Linear(64, setting.task.outputs))
    active = torch.optim.Adam([*own.parameters(), *top.parameters()], fused=True)
    passive = torch.optim.Adam(bottom.parameters(), fused=True)
    chain = _chain(setting, labels, options)

    def step(number: int) -> None:
        e = bottom(*inputs[1])
        received = e.detach().requires_grad_()
        active.zero_grad()
        loss = setting.task.loss(top(torch.cat([own(*inputs[0]), received], 1)), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        rows, task = torch.arange(setting.batch_size), {PEER: received.grad}
        view = ActiveView(Mode.TRAIN, 0, number, rows, labels, {PEER: received}, task)
        gradient = chain.cut_gradients(view)[PEER]
        active.step()
        passive.zero_grad()
        e.backward(gradient)
        passive.step()

    def some(steps: int) -> float:
        began = time.perf_counter()
        for number in range(steps):
            step(number)
        return time.perf_counter() - began

    return some


def _chain(setting: Setting, labels: Tensor, options: Mapping[str, Any] | None) -> Chain:
    chain = Chain("active", [] if options is None else [build("dimip", options, "privacy")])
    chain.setup(
        Context(
            party="active",
            peers=(PEER,),
            widths={PEER: setting.width},
            task=setting.task,
            labels=labels,
            training=torch.arange(setting.batch_size),
            secret=bytes(32),
            noise=Noise(bytes(32)),
            batch_size=setting.batch_size,
        )
    )
    return chain
