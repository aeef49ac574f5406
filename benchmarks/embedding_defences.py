"""What noise, rescaling and adjusting of embeddings add to a training step, in turn, on one core.

A step is that of both parties in a plain loop of the protocol, without messages and records: the passive bottom model
forward, its protections, the top model and its loss, the cut gradient, the local loss, both backward passes and both
optimisers. Seconds are those of this process alone, so that others on the machine count for little.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from cutlayer.consent import allowed
from cutlayer.models import BottomModel, Inputs
from cutlayer.models.cnn import CnnBottom, CnnBottomConfig
from cutlayer.models.resnet18 import ResNet18Bottom, ResNet18BottomConfig
from cutlayer.protections import build
from cutlayer.protections.contract.base import Context
from cutlayer.protections.contract.chain import Chain
from cutlayer.protections.contract.keyed_noise import Noise
from cutlayer.protections.contract.views import Mode, PassiveView
from cutlayer.training.process import keep_freed_memory
from studies.embedding_noise import privacy_of

PEER, BATCH, WIDTH, CLASSES, ROWS = "active", 128, 64, 10, 5_000
IMAGE = (3, 32, 16)
INPUTS = Inputs((), math.prod(IMAGE), IMAGE)
NOISE: Mapping[str, Any] = {"clip": 1.0, "noise_multiplier": 1.0}
VARIANTS: Mapping[str, Mapping[str, Any] | None] = {
    "undefended": None,
    "noise": NOISE,
    "rescale": {**NOISE, "estimate": {}},
    "adjust": {**NOISE, "adjust": {"classes": CLASSES}},
    "adjust, 1 round": {**NOISE, "adjust": {"classes": CLASSES, "rounds": 1}},
}
PUBLISHED: Mapping[str, float] = {"noise": 0.173, "rescale": 0.8, "adjust": 0.234, "adjust, 1 round": 0.234}
"""Time that the method's authors measured per 5,000 CIFAR rows (arXiv 2308.02362, table 3: 60.43, 279.76 and 82.04 ms),
as shares of their unprotected 349.89 ms."""


@dataclass(frozen=True)
class Overhead:
    """One defence on one bottom model.

    Attributes:
        share: median over the repeats of what it adds to the undefended step, over that step. Rescaling and adjusting
            are what they add to the noise.
        lowest, highest: of the same.
        goal: half of what was published.
    """

    bottom: str
    defence: str
    share: float
    lowest: float
    highest: float
    goal: float


@dataclass(frozen=True)
class EmbeddingOverheads:
    """All of them.

    Attributes:
        rows: trained on in each repeat.
        undefended_ms: median of the undefended step, by bottom model.
    """

    name: str
    rows: int
    batch_size: int
    width: int
    repeats: int
    threads: int
    undefended_ms: Mapping[str, float]
    overheads: tuple[Overhead, ...]


def embedding_defences(rows: int, repeats: int) -> EmbeddingOverheads:
    """Time the steps over `rows` rows of every variant in turn, `repeats` times."""
    torch.set_num_threads(1)
    keep_freed_memory()
    steps = max(1, min(rows, ROWS) // BATCH)
    bottoms: dict[str, Callable[[], BottomModel]] = {
        "cnn": small_network,
        "resnet18, 16 channels": lambda: ResNet18Bottom(ResNet18BottomConfig(channels=16, width=WIDTH), INPUTS),
    }
    undefended, costs = {}, list[Overhead]()
    for name, bottom in bottoms.items():
        seconds = _seconds(bottom, steps, repeats)
        plain = seconds["undefended"]
        undefended[name] = round(1e3 * statistics.median(plain) / steps, 2)
        for defence, published in PUBLISHED.items():
            below = plain if defence == "noise" else seconds["noise"]
            shares = [(a - b) / c for a, b, c in zip(seconds[defence], below, plain, strict=True)]
            median, lowest, highest = statistics.median(shares), min(shares), max(shares)
            costs.append(Overhead(name, defence, round(median, 4), round(lowest, 4), round(highest, 4), published / 2))
    return EmbeddingOverheads("embedding_defences", steps * BATCH, BATCH, WIDTH, repeats, 1, undefended, tuple(costs))


def _seconds(bottom: Callable[[], BottomModel], steps: int, repeats: int) -> Mapping[str, list[float]]:
    """Seconds of each repeat by variant, step by step in turn; the first steps are to warm up."""
    sides = {name: _side(bottom, options) for name, options in VARIANTS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    number = 0
    for repeat in range(repeats + 1):
        taken = dict.fromkeys(sides, 0.0)
        for _ in range(steps if repeat else 2):
            for name, step in sides.items():
                began = time.process_time()
                step(number)
                taken[name] += time.process_time() - began
            number += 1
        for name, total in taken.items() if repeat else ():
            seconds[name].append(total)
    return seconds


def small_network() -> BottomModel:
    """The bottom model whose step is short."""
    return CnnBottom(CnnBottomConfig(width=WIDTH), INPUTS)


def plain_step() -> Callable[[int], None]:
    """A function that runs one undefended step of it, given its number."""
    return _side(small_network, None)


def _side(build_bottom: Callable[[], BottomModel], options: Mapping[str, Any] | None) -> Callable[[int], None]:
    """A function that runs one training step, given its number."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(ROWS, math.prod(IMAGE), generator=draw)
    labels = torch.randint(CLASSES, (ROWS,), generator=draw)
    none = torch.zeros(ROWS, 0, dtype=torch.int32)
    bottom, top = build_bottom(), nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    passive = torch.optim.Adam(bottom.parameters(), fused=True)
    active = torch.optim.Adam(top.parameters(), fused=True)
    chain = _chain(options)

    def embed(rows: torch.Tensor) -> torch.Tensor:
        embedding: torch.Tensor = bottom(none[rows], images[rows])
        return embedding

    def step(number: int) -> None:
        rows = torch.arange(number * BATCH, (number + 1) * BATCH) % ROWS
        view = PassiveView(Mode.TRAIN, 0, number, rows, embed)
        released = chain.embedding_out(embed(rows), view)
        received = released.detach().requires_grad_()
        active.zero_grad()
        nn.functional.cross_entropy(top(received), labels[rows]).backward()  # type: ignore[no-untyped-call]
        active.step()
        passive.zero_grad()
        extra = chain.local_loss(PassiveView(Mode.TRAIN, 0, number, rows, embed, released, received.grad))
        loss = (released * received.grad).sum()  # type: ignore[operator]
        (loss if extra is None else loss + extra).backward()  # type: ignore[no-untyped-call]
        passive.step()

    return step


def _chain(options: Mapping[str, Any] | None) -> Chain:
    with allowed("cutlayer_published"):
        chain = Chain("passive", [build(name, noise, "privacy") for name, noise in privacy_of(options).items()])
    context = Context(
        party="passive",
        peers=(PEER,),
        widths={"passive": WIDTH},
        task=None,
        labels=None,
        training=torch.arange(ROWS),
        secret=bytes(32),
        noise=Noise(bytes(32)),
        batch_size=BATCH,
    )
    for protection in chain.protections:
        protection.setup(context)
    return chain
