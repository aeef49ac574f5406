"""Every defence of the cut gradient against the reference training step, in turn, on one core.

A step is the forward and backward pass and the optimiser step of the reference network in a plain loop; a defence
gets a gradient (batch, 128) just written, as the backward pass leaves it, and the caches as the step left them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.local_training import CATEGORIES, CODES, LR, NUMBERS, Centralised
from cutlayer.problem.task import Task
from cutlayer.protections import REGISTRY, build
from cutlayer.protections.contract.base import Context, Protection
from cutlayer.protections.contract.keyed_noise import Noise
from cutlayer.protections.contract.views import ActiveView, Mode

WIDTH = 128
PEER = "passive"
FORMS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("max_norm", {}),
    ("marvell", {"sum_kl": 0.16}),
    ("marvell", {"sum_kl": 0.16, "form": "paper"}),
    ("marvell", {"s": 8.0, "form": "paper"}),
    ("iso_noise", {"ratio": 1.0}),
    ("noisy_gradient", {"scale": 0.001}),
    ("noisy_gradient", {"scale": 0.001, "distribution": "gaussian"}),
    ("gradient_compression", {"keep": 0.1}),
    ("discrete_sgd", {"levels": 2}),
    ("ppdl", {"theta": 0.01}),
    ("ppdl", {"theta": 0.75}),
)
DEFENCES = (
    *FORMS,
    *(
        (name, kind.start.model_dump(exclude_unset=True))
        for name, kind in REGISTRY.items()
        if kind.gradient_out is not Protection.gradient_out and name not in dict(FORMS)
    ),
)
"""Every defence of the cut gradient: in the forms above, or with the settings to begin with."""


@dataclass(frozen=True)
class Overhead:
    """One defence.

    Attributes:
        ms: median of the defence.
        share: median over the repeats of its seconds over those of the step before it.
    """

    defence: str
    options: Mapping[str, Any]
    ms: float
    share: float


@dataclass(frozen=True)
class Overheads:
    """All of them.

    Attributes:
        step_ms: median of the training step.
    """

    name: str
    batch_size: int
    width: int
    step_ms: float
    repeats: int
    threads: int
    defences: tuple[Overhead, ...]


def gradient_defences(batch_size: int, repeats: int) -> Overheads:
    """Time a step and each defence in turn, `repeats` times."""
    torch.set_num_threads(1)
    g, labels = _gradient(batch_size)
    step = _step(batch_size)
    built = [(name, options, _protection(name, options, batch_size)) for name, options in DEFENCES]
    times: list[list[float]] = [[] for _ in built]
    steps: list[list[float]] = [[] for _ in built]
    step()
    for number in range(repeats + 1):
        view = ActiveView(Mode.TRAIN, 0, number, torch.arange(batch_size), labels, {}, {})
        for index, (_, _, protection) in enumerate(built):
            steps[index].append(step())
            written = g.clone()
            began = time.perf_counter()
            protection.gradient_out(written, PEER, view)
            times[index].append(time.perf_counter() - began)
    overheads = []
    for index, (name, options, _) in enumerate(built):
        warm, of = times[index][1:], steps[index][1:]
        share = statistics.median(a / b for a, b in zip(warm, of, strict=True))
        overheads.append(Overhead(name, options, round(1e3 * statistics.median(warm), 2), round(share, 4)))
    whole = statistics.median(second for some in steps for second in some[1:])
    return Overheads("gradient_defences", batch_size, WIDTH, round(1e3 * whole, 2), repeats, 1, tuple(overheads))


def _gradient(n: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    labels = (torch.rand(n, generator=draw) < 0.25).long()
    means = torch.randn(2, WIDTH, generator=draw)
    return 1e-5 * (means[labels] + 0.5 * torch.randn(n, WIDTH, generator=draw)), labels


def _protection(name: str, options: Mapping[str, Any], batch_size: int) -> Protection[Any]:
    protection = build(name, options, "privacy")
    protection.setup(
        Context(
            party="active",
            peers=(PEER,),
            widths={PEER: WIDTH},
            task=Task("binary", ("0", "1")),
            labels=None,
            training=torch.arange(batch_size),
            secret=bytes(32),
            noise=Noise(bytes(32)),
            batch_size=batch_size,
        )
    )
    return protection


def _step(n: int) -> Callable[[], float]:
    draw = torch.Generator().manual_seed(1)
    codes = torch.randint(2, CODES, (n, CATEGORIES), generator=draw, dtype=torch.int32)
    numbers = torch.randn(n, NUMBERS, generator=draw)
    labels = (torch.rand(n, generator=draw) < 0.25).float()
    model = Centralised(tuned=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR, fused=True)
    loss_of = nn.BCEWithLogitsLoss()

    def once() -> float:
        began = time.perf_counter()
        loss = loss_of(model(codes, numbers), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return time.perf_counter() - began

    return once
