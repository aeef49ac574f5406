"""Runs the attacks on sampled steps, epoch after epoch, and remembers the worst leak of each.

The same object is fed while a run trains and when a recorded transcript is audited later, so that both give the same
figures. It sends nothing; it is the only part of the system that compares attacks with true labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from cutlayer.attacks.base import Attack, PassiveView, Scores, Target
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.audit.leak import Leak, leak_interval, leak_of
from cutlayer.channel.transcript import Step
from cutlayer.errors import NotApplicable
from cutlayer.tasks import Task


@dataclass(frozen=True, order=True)
class Cell:
    """What was attacked with what: a party's link (or a layer of a party's model, by its place) and an attack."""

    party: str
    target: Target
    attack: str
    layer: str = ""
    place: int = 0

    @property
    def label(self) -> str:
        """`party/gradient/norm`, or `party/layer:NAME/spectral`."""
        return f"{self.party}/{self.target}{':' + self.layer if self.layer else ''}/{self.attack}"


@dataclass
class Series:
    """One cell's leak over the epochs, with the scores of its worst epoch."""

    leaks: dict[int, Leak] = field(default_factory=dict)
    worst_epoch: int = -1
    worst_scores: Scores | None = field(default=None, repr=False)

    @property
    def worst(self) -> Leak:
        """The leak of the worst epoch: an attacker keeps all it has seen."""
        return self.leaks[self.worst_epoch]

    def add(self, epoch: int, leak: Leak, scores: Scores) -> None:
        """Take in an epoch; the one farthest from 0.5 is the worst."""
        self.leaks[epoch] = leak
        if self.worst_epoch < 0 or distance(leak.batch_auc) > distance(self.worst.batch_auc):
            self.worst_epoch, self.worst_scores = epoch, scores


def distance(auc: float) -> float:
    """How far an AUC is from chance; -1 where it is not defined."""
    return -1.0 if math.isnan(auc) else abs(auc - 0.5)


class Auditor:
    """Attacks the links and layers of a run.

    Args:
        task: of the active party.
        truth: true labels by row of the common order.
        training: row numbers of the training rows, int64; the known positive share is theirs.
        attacks: all defined for the task.
        active: name of the active party.
        seed: chooses the rows that an attacker is assumed to know.
    """

    def __init__(
        self, task: Task, truth: Tensor, training: Tensor, attacks: Sequence[Attack], active: str, seed: int
    ) -> None:
        self.task, self.attacks, self.active, self.seed = task, attacks, active, seed
        self.positive = truth == 1 if task.kind == "binary" else torch.zeros(len(truth), dtype=torch.bool)
        self.share = float(self.positive[training].double().mean())
        self.series: dict[Cell, Series] = {}
        self.skipped: dict[str, str] = {}

    def take(self, epoch: int, steps: Mapping[str, Sequence[Step]]) -> dict[str, float]:
        """Attack one epoch's sampled steps.

        Args:
            epoch: from 0.
            steps: by party. The active party's hold every link; the others are there only where all parties run in one
                process, and add the outputs of their layers.

        Returns:
            Leak AUC by `party/message/attack`, without the layers'.
        """
        found: dict[str, float] = {}
        for cell, attack, view in self._cells(steps):
            try:
                scores = attack(view, cell.target, self._knowledge(epoch, view.steps), cell.layer)
            except NotApplicable as reason:
                self.skipped[cell.label] = str(reason)
                continue
            leak = leak_of(scores, self.positive)
            self.series.setdefault(cell, Series()).add(epoch, leak, scores)
            if cell.target is not Target.LAYER:
                found[cell.label] = leak.batch_auc
        return found

    def interval(self, cell: Cell) -> tuple[float, float]:
        """95 % bootstrap interval of a cell's worst leak."""
        scores = self.series[cell].worst_scores
        return (math.nan, math.nan) if scores is None else leak_interval(scores, self.positive, self.seed)

    def _cells(self, steps: Mapping[str, Sequence[Step]]) -> Iterator[tuple[Cell, Attack, PassiveView]]:
        links = steps.get(self.active, ())
        for party in links[0].gradients if links else ():
            view = PassiveView(party, self.task, links)
            for attack in self.attacks:
                for target in (Target.GRADIENT, Target.EMBEDDING):
                    if target in attack.reads:
                        yield Cell(party, target, attack.name), attack, view
        for party, own in steps.items():
            layered = [step for step in own if step.layers]
            view = PassiveView(party, self.task, layered)
            for place, layer in enumerate(layered[0].layers if layered else ()):
                for attack in self.attacks:
                    if Target.LAYER in attack.reads:
                        yield Cell(party, Target.LAYER, attack.name, layer, place), attack, view

    def _knowledge(self, epoch: int, steps: Sequence[Step]) -> Knowledge:
        """The training rows' positive share, and one positive row in each sampled step, drawn at random."""
        draw = np.random.default_rng([self.seed, epoch])
        known: dict[int, int] = {}
        for step in steps:
            positives = step.rows[self.positive[step.rows]]
            if len(positives):
                known[int(positives[int(draw.integers(len(positives)))])] = 1
        return Knowledge(self.share, known)
