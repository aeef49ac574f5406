"""Embeddings that determine their rows, and a model that remembers its training rows, for attacks on features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from cutlayer.attacks.feature.base import FeatureAttack, encoded_matrix
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Auxiliary, Knowledge, Need, Shadows, Simulation
from cutlayer.audit.features.measures import FeatureCase, measure_feature_attack
from cutlayer.data.encoded import ColumnSpec
from cutlayer.kernels.fits.optimizers import Adam
from cutlayer.problem.task import Task
from cutlayer.results.features import FeatureResult

ROWS, KNOWN, WIDTH = 600, 200, 10
MANY, KNOWN_OF_MANY = 900, 300
"""Rows of worlds in which fewer do not show the shape of a column, or teach a simulator too little."""
COLUMNS = ColumnSpec((4, 6), 3, ("plan", "region"), ("age", "calls", "bill"))
ABOUT = {"run": "this run", "party": "telco"}
INPUTS, ATTACKED, OWN = 8, 400, 800
MODELS = frozenset({Need.SHADOW_ROWS, Need.CANDIDATE_ROWS})
"""Knowledge with which an attack trains models of its own."""


@dataclass(frozen=True, eq=False)
class World:
    """Something to attack, what the attacker knows, and the truth.

    Attributes:
        truth: features of the rows that are not known; or which attacked rows were training rows.
        numbers: numbers of these rows before they were scaled; `None` where they are as they are.
    """

    view: FeatureView
    knowledge: Knowledge
    truth: tuple[Tensor, Tensor] | Tensor = field(repr=False)
    numbers: Tensor | None = None

    def measured(self, attack: FeatureAttack[Any], seed: int = 0) -> FeatureResult:
        """What the attack reaches, as the audit measures it; of several columns the one inferred best."""
        result = attack(self.view, self.knowledge, seed)
        case = FeatureCase("toy", self.view, self.knowledge, self.truth, columns=COLUMNS, numbers=self.numbers)
        return next(iter(measure_feature_attack(result, case, {**ABOUT, "attack": attack.name})))


def world_of(attack: type[FeatureAttack[Any]], *, informative: bool) -> World:
    """A world in which there is something to find, or nothing."""
    if attack.needs <= {Need.OTHER_ROWS}:
        return sent_once(mixed=attack.name in ("two_valued", "components"), informative=informative)
    if Need.SIMULATOR in attack.needs:
        return simulated(informative=informative)
    return remembered(informative=informative) if attack.needs & MODELS else exposed(informative=informative)


@cache
def measured_once(attack: type[FeatureAttack[Any]], *, informative: bool) -> FeatureResult:
    """What the attack reaches in a world as it is, with its own seed; several checks compare with it."""
    return world_of(attack, informative=informative).measured(attack())


class Tanh(nn.Module):
    """The bottom model of `exposed`, with other weights."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.weights = nn.Parameter(weights)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Embeddings (n, width)."""
        return torch.tanh(encoded_matrix(COLUMNS, codes, numbers) @ self.weights)


@cache
def exposed(*, informative: bool) -> World:
    """Embeddings by a random layer of tanh units; or of other rows, which are not informative."""
    draw = torch.Generator().manual_seed(3)
    numbers = torch.randn(ROWS, 3, generator=draw)
    codes = torch.stack([torch.randint(2, n, (ROWS,), generator=draw) for n in (4, 6)], dim=1).int()
    features = encoded_matrix(COLUMNS, codes, numbers)
    weights = torch.randn(features.shape[1], WIDTH, generator=draw) / 2
    embeddings = torch.tanh(features @ weights)
    if not informative:
        embeddings = embeddings[torch.randperm(ROWS, generator=draw)]
    indices = torch.randperm(ROWS, generator=draw)[:KNOWN].sort().values
    known = Auxiliary(COLUMNS, indices, codes[indices], numbers[indices])
    unknown = known.unknown(ROWS)
    view = FeatureView("telco", torch.arange(ROWS) + 50, embeddings)
    initial = Tanh(weights + 0.2 * torch.randn(weights.shape, generator=draw))
    return World(view, Knowledge(auxiliary_rows=known, initial_bottom=initial), (codes[unknown], numbers[unknown]))


@cache
def sent_once(*, mixed: bool, informative: bool) -> World:
    """An affine map of whole numbers, smoothly clipped, and one-hot categories of several shares; or noise.

    Args:
        mixed: whether the map is a rotation, and not a permutation with signs.
        informative: whether the embeddings are of the rows.
    """
    draw = torch.Generator().manual_seed(3)
    age = torch.randint(18, 90, (2 * MANY,), generator=draw)
    calls = torch.empty(2 * MANY).exponential_(0.05, generator=draw).round()
    plan = torch.multinomial(torch.tensor([0.6, 0.4]), 2 * MANY, True, generator=draw)
    bill = torch.randn(2 * MANY, generator=draw).mul(20).add(60 * plan).round()
    whole = torch.stack([age, calls, bill], dim=1).double()
    low, middle, high = (whole.quantile(q, dim=0) for q in (0.25, 0.5, 0.75))
    z = (whole - middle) / (high - low)
    numbers = (z / (1 + (z / 3).square()).sqrt()).float()
    region = torch.multinomial(torch.tensor([0.45, 0.3, 0.17, 0.08]), 2 * MANY, True, generator=draw)
    table = torch.stack([plan, region], dim=1).int() + 2
    features = encoded_matrix(COLUMNS, table, numbers)
    features = features[:, features.var(dim=0) > 0]
    width = features.shape[1]
    places = torch.eye(width)[torch.randperm(width, generator=draw)] * torch.tensor([1.0, -1.0]).repeat(width)[:width]
    turn = torch.linalg.qr(torch.randn(width, width, generator=draw)).Q if mixed else places
    embeddings = (features @ turn - 0.3) / 0.7
    if not informative:
        embeddings = torch.randn(embeddings.shape, generator=draw)
    others = Auxiliary(COLUMNS, torch.zeros(0, dtype=torch.int64), table[MANY:], numbers[MANY:])
    view = FeatureView("telco", torch.arange(MANY) + 50, embeddings[:MANY])
    return World(view, Knowledge(other_rows=others), (table[:MANY], numbers[:MANY]), whole[:MANY])


@cache
def simulated(*, informative: bool) -> World:
    """Embeddings and labels of a small network of columns that no rotation leaves as they are; or noise."""
    draw = torch.Generator().manual_seed(3)
    numbers = torch.empty(MANY, 3).exponential_(1, generator=draw) - 1
    shares = ([0.55, 0.25, 0.15, 0.05], [0.4, 0.25, 0.15, 0.1, 0.06, 0.04])
    codes = torch.stack([torch.multinomial(torch.tensor(p), MANY, True, generator=draw) for p in shares], dim=1).int()
    features = encoded_matrix(COLUMNS, codes, numbers)
    labels = (features @ torch.randn(features.shape[1], 6, generator=draw)).argmax(dim=1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        bottom, top = Stack(features.shape[1]), nn.Linear(WIDTH, 6)
        optimizer = Adam([*bottom.parameters(), *top.parameters()], lr=1e-2, fused=True)
        for _ in range(150):
            optimizer.zero_grad()
            functional.cross_entropy(top(bottom(codes, numbers)), labels).backward()
            optimizer.step()
    top.requires_grad_(False)
    embeddings = bottom(codes, numbers).detach()
    indices = torch.randperm(MANY, generator=draw)[:KNOWN_OF_MANY].sort().values
    known = Auxiliary(COLUMNS, indices, codes[indices], numbers[indices])
    unknown = known.unknown(MANY)
    if not informative:
        embeddings = torch.randn(embeddings.shape, generator=draw)
        labels = labels[torch.randperm(MANY, generator=draw)]
    task = Task("multiclass", tuple("abcdef"))
    simulation = Simulation(task, lambda: Stack(features.shape[1]), lambda e, _: top(e))
    view = FeatureView("telco", torch.arange(MANY) + 50, embeddings, labels=labels)
    return World(view, Knowledge(auxiliary_rows=known, simulator=simulation), (codes[unknown], numbers[unknown]))


class Stack(nn.Module):
    """The bottom model of `simulated`."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, WIDTH), nn.ReLU())

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Embeddings (n, width)."""
        return self.layers(encoded_matrix(COLUMNS, codes, numbers))


@cache
def remembered(*, informative: bool, release: Callable[[Tensor], Tensor] = torch.clone) -> World:
    """A small network that learned its training rows by heart, labels of noise and all; or that never saw them.

    Args:
        informative: whether the attacked rows were training rows.
        release: what makes a released embedding of one that the bottom model computed.
    """
    rows = torch.arange(ATTACKED + OWN)
    attacked, own, others = rows[:ATTACKED], rows[ATTACKED : 2 * ATTACKED], rows[2 * ATTACKED :]
    half = ATTACKED // 2
    inside = attacked[:half] if informative else others[:half]

    def train(rows: Tensor, number: int) -> Callable[[Tensor], FeatureView]:
        return _trained(tuple(rows.tolist()), number, release)

    knowledge = Knowledge(shadow_rows=Shadows(Task("binary", ("no", "yes")), own, train, half))
    return World(train(inside, 99)(attacked), knowledge, torch.arange(ATTACKED) < half)


@cache
def _trained(
    inside: tuple[int, ...], number: int, release: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], FeatureView]:
    """A network trained on some rows, as views of any rows: it is the same whenever an attack asks for it again.

    It is trained without the noise of a release, and so remembers all that it can.

    Args:
        inside: the training rows.
        number: seed of its initial weights.
        release: as of `remembered`.
    """
    bottom, top, inputs, labels = _learned(inside, number)

    def see(at: Tensor) -> FeatureView:
        with torch.no_grad():
            embeddings = release(bottom(inputs[at]))
            return FeatureView("telco", at, embeddings, top(embeddings), labels[at])

    return see


@cache
def _learned(inside: tuple[int, ...], number: int) -> tuple[nn.Module, nn.Module, Tensor, Tensor]:
    """Bottom and top model of `_trained`, and inputs and labels of all rows."""
    draw = torch.Generator().manual_seed(4)
    inputs = torch.randn(ATTACKED + OWN, INPUTS, generator=draw)
    labels = torch.randint(0, 2, (len(inputs),), generator=draw)
    given, wanted = inputs[list(inside)], labels[list(inside)].float()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(number)
        bottom, top = nn.Sequential(nn.Linear(INPUTS, 96), nn.ReLU()), nn.Linear(96, 1)
        optimizer = Adam([*bottom.parameters(), *top.parameters()], lr=1.5e-2, fused=True)
        for _ in range(80):
            optimizer.zero_grad()
            functional.binary_cross_entropy_with_logits(top(bottom(given))[:, 0], wanted).backward()
            optimizer.step()
    return bottom, top, inputs, labels
