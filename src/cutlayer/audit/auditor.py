"""Runs the attacks on sampled steps, epoch after epoch, and records the worst leak of each.

The same class audits a run while it trains and a recorded transcript later, so that both give the same values. It
sends nothing; it is the only part of the system that compares attacks with true labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cutlayer.attacks.knowledge import MAX_HINTS, MAX_KNOWN_PER_CLASS, Knowledge, Need
from cutlayer.attacks.label.base import LabelAttack, LabelView, Scores, Target
from cutlayer.audit.known_labels import knowledge_of
from cutlayer.audit.leak import Leak, leak_interval, leak_of
from cutlayer.channel.transcript import Step
from cutlayer.errors import NotApplicable
from cutlayer.problem.task import Task
from cutlayer.results.audit import RunAudit, SkippedAttack
from cutlayer.results.leaks import Attempt, LayerLeak, LeakResult
from cutlayer.storage.row_tensors import rows_of, where_equal
from cutlayer.training.trained import class_shares


@dataclass(frozen=True, order=True)
class AttackTarget:
    """An attack and its target.

    Attributes:
        party: Party whose link or layer is attacked.
        target: Kind of the attacked matrix: gradient, embedding or layer output.
        attack: Name of the attack.
        layer: Name of the attacked layer; empty for a link.
        index: Position of that layer in the party's model, from 0.
    """

    party: str
    target: Target
    attack: str
    layer: str = ""
    index: int = 0

    @property
    def message(self) -> str:
        """`gradient`, `embedding` or `layer:NAME`."""
        return f"{self.target}:{self.layer}" if self.layer else str(self.target)

    @property
    def label(self) -> str:
        """`party/gradient/norm`, or `party/layer:NAME/spectral`."""
        return f"{self.party}/{self.message}/{self.attack}"


@dataclass
class LeakSeries:
    """Leak of one attack on one target over the epochs, with the scores of its worst epoch.

    Attributes:
        leaks: Leak by epoch, from 0.
        worst_epoch: Epoch with the largest leak; -1 before the first.
        worst_scores: Scores of the attack in that epoch.
        recorded: Number of rows of the sampled steps, by epoch.
    """

    leaks: dict[int, Leak] = field(default_factory=dict)
    worst_epoch: int = -1
    worst_scores: Scores | None = field(default=None, repr=False)
    recorded: dict[int, int] = field(default_factory=dict, repr=False)

    @property
    def worst(self) -> Leak:
        """The leak of the worst epoch: an attacker keeps all it has seen."""
        return self.leaks[self.worst_epoch]

    def add(self, epoch: int, leak: Leak, scores: Scores) -> None:
        """Add an epoch; the worst has the largest leak, and an undefined leak ranks below every other."""
        self.leaks[epoch] = leak
        known = not math.isnan(leak.value)
        best = self.worst.value if self.worst_epoch >= 0 else math.nan
        if self.worst_epoch < 0 or (known and not best >= leak.value):
            self.worst_epoch, self.worst_scores = epoch, scores


class Auditor:
    """Attacks the links and layers of a run.

    Args:
        task: Task of the active party.
        truth: True labels by row of the common order.
        training: Row numbers of the training rows, int64; attackers know the shares of the classes among these rows.
        attacks: Attacks to run, all defined for the task.
        active: Name of the active party.
        seed: Seed of the draw of rows whose labels an attacker is assumed to know.
    """

    def __init__(
        self, task: Task, truth: Tensor, training: Tensor, attacks: Sequence[LabelAttack], active: str, seed: int
    ) -> None:
        self.task = task
        self.attacks = attacks
        self.active = active
        self.seed = seed
        self.truth = where_equal(truth, 1) if task.kind == "binary" else truth
        self.shares = class_shares(rows_of(self.truth, training), task)
        self.series: dict[AttackTarget, LeakSeries] = {}
        self.skipped: dict[AttackTarget, str] = {}

    def take(self, epoch: int, steps: Mapping[str, Sequence[Step]]) -> dict[str, float]:
        """Attack one epoch's sampled steps.

        Args:
            epoch: Number of the epoch, from 0.
            steps: Sampled steps by party. The active party's steps hold every link. The steps of passive parties add
                the outputs of their layers; they are given only if all parties run in one process.

        Returns:
            Leak, 0.5 to 1, by `party/message/attack`, without the layers.
        """
        leaks: dict[str, float] = {}
        for key, attack, view in self._attack_targets(steps):
            knowledge = self._knowledge(epoch, view.steps, key.target, attack.needs)
            try:
                scores = attack(view, knowledge)
            except NotApplicable as reason:
                self.skipped[key] = str(reason)
                continue
            if key.target is Target.LAYER:
                scores = replace(scores, hard=None, also={})  # a layer's result is the leak alone
            leak = leak_of(scores, self.truth)
            series = self.series.setdefault(key, LeakSeries())
            series.add(epoch, leak, scores)
            series.recorded[epoch] = sum(len(step.rows_of(key.target)) for step in view.steps)
            if key.target is not Target.LAYER:
                leaks[key.label] = leak.value
        return leaks

    def interval(self, key: AttackTarget) -> tuple[float, float]:
        """95 % interval of the worst leak of an attack."""
        scores = self.series[key].worst_scores
        return (math.nan, math.nan) if scores is None else leak_interval(scores, self.truth)

    def results(self, run: str, protections: Sequence[str]) -> RunAudit:
        """The leak of every message and layer at its worst epoch.

        Args:
            run: Label of the audited run.
            protections: Names of the protections that were active in it.
        """
        leaks: list[LeakResult] = []
        layers: list[LayerLeak] = []
        undefined: list[Attempt] = []
        needs = {attack.name: tuple(sorted(attack.needs)) for attack in self.attacks}
        for key in sorted(self.series):
            series = self.series[key]
            worst = series.worst
            subject: dict[str, Any] = {"run": run, "party": key.party, "attack": key.attack}
            worst_epoch = {"leak": worst.value, "epoch": series.worst_epoch + 1}
            last = series.leaks[max(series.leaks)].value
            if key.target is Target.LAYER:
                if not math.isnan(worst.value):
                    side = "active" if key.party == self.active else "passive"
                    layer = {"side": side, "layer": key.layer, "index": key.index, "batch_auc": worst.batch_auc}
                    layers.append(LayerLeak(**subject, **worst_epoch, **layer, last_epoch_leak=last))
                continue
            subject["message"] = str(key.target)
            if math.isnan(worst.value):
                positives = self.task.positives(worst.positives, worst.rows)
                undefined.append(Attempt(**subject, rows=worst.rows, positives=positives))
                continue
            subject["rows_recorded"] = series.recorded[series.worst_epoch]
            low, high = self.interval(key)
            result = LeakResult(
                **subject,
                **worst_epoch,
                **vars(worst) | {"positives": self.task.positives(worst.positives, worst.rows)},
                protections=tuple(protections),
                low=low,
                high=high,
                epochs_seen=len(series.leaks),
                first_epoch_leak=series.leaks[min(series.leaks)].value,
                last_epoch_leak=last,
                knowledge=needs[key.attack],
            )
            leaks.append(result)
        return RunAudit(
            protections=tuple(protections),
            leaks=tuple(leaks),
            layers=tuple(sorted(layers, key=lambda layer: layer.index)),
            undefined=tuple(undefined),
            skipped=tuple(
                SkippedAttack(party=key.party, message=key.message, attack=key.attack, reason=reason)
                for key, reason in self.skipped.items()
            ),
        )

    def _attack_targets(
        self, steps: Mapping[str, Sequence[Step]]
    ) -> Iterator[tuple[AttackTarget, LabelAttack, LabelView]]:
        links = steps.get(self.active, ())
        crossed = {Target.GRADIENT: links[0].gradients, Target.EMBEDDING: links[0].embeddings} if links else {}
        for party in dict.fromkeys(party for matrices in crossed.values() for party in matrices):
            for attack in self.attacks:
                for target, matrices in crossed.items():
                    if target in attack.reads and party in matrices:
                        view = LabelView(party, self.task, links, target)
                        yield AttackTarget(party, target, attack.name), attack, view
        for party, party_steps in steps.items():
            layered = [step for step in party_steps if step.layers]
            for index, layer in enumerate(layered[0].layers if layered else ()):
                view = LabelView(party, self.task, layered, Target.LAYER, layer)
                for attack in self.attacks:
                    if Target.LAYER in attack.reads:
                        yield AttackTarget(party, Target.LAYER, attack.name, layer, index), attack, view

    def _knowledge(self, epoch: int, steps: Sequence[Step], target: Target, needs: frozenset[Need]) -> Knowledge:
        """Exactly what the attack needs: the class shares of the training rows, and labels of rows drawn at random."""
        known: dict[int, int] = {}
        if Need.KNOWN_POSITIVE in needs:
            known |= self._one_positive(steps, self._generator(epoch))
        if Need.HINTS in needs:
            known |= self._hints(steps, self._generator(epoch))
        if Need.KNOWN_LABELS in needs:
            known |= self._labels(torch.cat([step.rows_of(target) for step in steps]), self._generator(epoch))
        return knowledge_of(self.shares, self.task, known)

    def _generator(self, epoch: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, epoch])

    def _one_positive(self, steps: Sequence[Step], generator: np.random.Generator) -> dict[int, int]:
        """One positive row of each step that has any."""
        groups = (step.rows[self.truth[step.rows]] for step in steps)
        return {int(rows[int(generator.integers(len(rows)))]): 1 for rows in groups if len(rows)}

    def _hints(self, steps: Sequence[Step], generator: np.random.Generator) -> dict[int, int]:
        """`MAX_HINTS` positive rows of each step, at most half of them (rounded up)."""
        groups = (step.rows[self.truth[step.rows]].numpy() for step in steps)
        return {
            int(row): 1
            for rows in groups
            for row in generator.permutation(rows)[: min(MAX_HINTS, (len(rows) + 1) // 2)]
        }

    def _labels(self, rows: Tensor, generator: np.random.Generator) -> dict[int, int]:
        """`MAX_KNOWN_PER_CLASS` of the rows of each class, at most half of them."""
        codes = self.truth[rows].long()
        groups = [(code, rows[codes == code].numpy()) for code in range(len(self.shares))]
        return {
            int(row): code
            for code, members in groups
            for row in generator.permutation(members)[: min(MAX_KNOWN_PER_CLASS, len(members) // 2)]
        }
