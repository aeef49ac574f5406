"""Attacks on labels that read the followed rows over the whole run, and what their results compare with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from cutlayer.attacks import CATALOGUES
from cutlayer.attacks.knowledge import Need
from cutlayer.attacks.label.base import Scores, Target
from cutlayer.attacks.label.history import HistoryAttack, HistoryView
from cutlayer.attacks.label.pooled import pool_views
from cutlayer.audit.departed_model import departed_auc
from cutlayer.audit.followed_view import followed_view
from cutlayer.audit.known_labels import draw_knowledge, label_curve, leaks_by_variant, scores_key, scores_of_variant
from cutlayer.audit.leak import Leak, fold_auc, leak_interval
from cutlayer.audit.own_columns import OwnColumns, predict_from_columns
from cutlayer.audit.permuted import permuted_leak
from cutlayer.channel.row_history import read_followed
from cutlayer.config import AuditConfig, Job
from cutlayer.config.phases import grades_rows
from cutlayer.errors import NotApplicable
from cutlayer.problem.metrics.roc import true_positive_rate
from cutlayer.results.audit import RunAudit, SkippedAttack
from cutlayer.results.leaks import Attacker, Attempt, Baseline, LabelCurve, LeakResult, colluding
from cutlayer.results.run import RunKind
from cutlayer.training.trained import Run

FALSE_POSITIVE_RATE = 0.01
NEARLY_WHOLE_LEAK = 0.99
"""Leak from which on a further attack adds next to nothing to what an audit says of a message."""
DRAW_MARGINS = {Need.FEW_LABELS: 0.05, Need.ONE_PER_CLASS: 0.1}
"""Leak by which one draw of the known rows may be behind another attack before the other draws are left out. Draws of
many rows differ less."""
ALL_PARTIES = ""
"""Stands for all parties among those whose columns reveal labels."""
_SHARES = frozenset({Need.CLASS_SHARES, Need.POSITIVE_SHARE})


def audit_history(
    run: Run, label: str, audit: RunAudit, attacks: Sequence[HistoryAttack], own: Mapping[str, OwnColumns]
) -> RunAudit:
    """Attack the followed rows of one run and add the results to its audit.

    Args:
        run: The run.
        label: Label of the run.
        audit: Results of the attacks on single epochs.
        attacks: Attacks on the whole run.
        own: What each attacker's own columns reveal, where they are at hand, by its `party`.
    """
    epochs = list(read_followed(run.folder.transcript(run.job.active)))
    audits: list[_PartyAudit] = []
    for party in run.job.passives if epochs else ():
        part = _PartyAudit(run, label, Attacker(party=party), audit.protections, attacks)
        part.attack(followed_view(run, label, party, epochs), [leak for leak in audit.leaks if leak.party == party])
        part.depart()
        audits.append(part)
    if (all_of_them := partners(run.job)) is not None and audits:
        together = _PartyAudit(run, label, all_of_them, audit.protections, attacks)
        before = _joined([audit, *audits])["leaks"]
        views = [followed_view(run, label, party, epochs) for party in all_of_them.parties]
        together.attack(pool_views(all_of_them.party, views), before)
        audits.append(together)
    _draw_curves(audits)
    seed, truth = run.job.train.seed, run.leak_labels
    chances = [permuted_leak(part.scored, truth, seed) for part in audits]
    baselines = [_baseline(part.attacker, own, chance) for part, chance in zip(audits, chances, strict=True)]
    return audit.model_copy(update={**_joined([audit, *audits]), "baselines": tuple(baselines)})


def audit_messages(
    run: Run, label: str, view: HistoryView, protections: Sequence[str], attacks: Sequence[HistoryAttack]
) -> RunAudit:
    """Attack messages that are not those of a training, such as served embeddings.

    Args:
        run: Truth, task and job of the rows.
        label: Label of the results.
        view: The attacked view.
        protections: Names of the protections that the messages passed.
        attacks: Attacks on the whole run.
    """
    made = _PartyAudit(run, label, Attacker(party=view.party), protections, attacks)
    made.attack(view)
    _draw_curves([made])
    chance = permuted_leak(made.scored, run.leak_labels, run.job.train.seed)
    baseline = Baseline(party=view.party, chance=None if math.isnan(chance) else chance)
    return RunAudit(protections=tuple(protections), **_joined([made]), baselines=(baseline,))


def _draw_curves(audits: Sequence[_PartyAudit]) -> None:
    """Add the leak by the number of known labels, of each attack and message at the attacker who reads most."""
    for message, attack in dict.fromkeys(cell for part in audits for cell in part.readable):
        read = [part for part in audits if (message, attack) in part.readable]
        most = max(read, key=lambda part: part.readable[message, attack][0])
        view, asked_attack = most.readable[message, attack][1:]
        curve = label_curve(most.run, most.run.leak_labels, view, asked_attack)
        most.curves.append(curve.model_copy(update={"together": most.attacker.together}))


def _joined(parts: Sequence[RunAudit | _PartyAudit]) -> dict[str, tuple[Any, ...]]:
    names = ("leaks", "undefined", "curves", "skipped", "unneeded")
    return {name: tuple(result for part in parts for result in getattr(part, name)) for name in names}


@dataclass
class _PartyAudit:
    """Results of the attacks on the messages of one party, or of all together.

    Attributes:
        run: The run.
        label: Label of the results.
        attacker: Who has the messages.
        protections: Names of the protections that the messages passed.
        attacks: Attacks on the whole run.
        leaks: Leaks.
        undefined: Attacks whose leak is undefined, since the rows are of one class.
        curves: Leaks by the number of known labels.
        readable: Leak, view and attack of which such a curve may be drawn, by message and name of the attack.
        skipped: Attacks that could not be run.
        unneeded: Attacks that were not run, since another one reads the message whole.
        scored: All scores.
        inferring: Scores behind the leaks of attacks that know no label, by index of the leak; higher is positive.
    """

    run: Run
    label: str
    attacker: Attacker
    protections: Sequence[str]
    attacks: Sequence[HistoryAttack]
    leaks: list[LeakResult] = field(default_factory=list)
    undefined: list[Attempt] = field(default_factory=list)
    curves: list[LabelCurve] = field(default_factory=list)
    readable: dict[tuple[str, str], tuple[float, HistoryView, HistoryAttack]] = field(default_factory=dict)
    skipped: list[SkippedAttack] = field(default_factory=list)
    unneeded: list[SkippedAttack] = field(default_factory=list)
    scored: list[Scores] = field(default_factory=list)
    inferring: dict[int, Scores] = field(default_factory=dict)

    def attack(self, view: HistoryView, before: Sequence[LeakResult] = ()) -> None:
        """Run the attacks on every kind of message that crossed.

        Args:
            view: The attacked view.
            before: Leaks that other attacks read of the attacker's messages, or of those of any party among them.
        """
        who = self.attacker.model_dump()
        party = view.party
        epochs = view.epochs
        crossed = {
            Target.EMBEDDING: any(party in epoch.embeddings for epoch in epochs),
            Target.GRADIENT: any(party in epoch.gradients for epoch in epochs),  # no party that releases once
            Target.PART: view.parts is not None,
            Target.LABELS: view.sent is not None,
        }
        enough = _sparing_leak(self.run.job.parties[self.run.job.active].audit)
        for attack in sorted(self.attacks, key=lambda attack: attack.costly):
            for target in filter(crossed.__getitem__, attack.reads):
                others = [leak for leak in (*before, *self.leaks) if leak.message == target]
                # A costly attack is spared by one on single steps too; of the others one reads the whole run.
                enough_read = (leak for leak in others if attack.costly or leak.whole_run)
                as_much = (leak.leak for leak in enough_read if _says_as_much(leak, attack, len(view.rows)))
                if (highest := max(as_much, default=0.5)) > enough:
                    why = f"another attack reads a leak of {highest:.3f}"
                    self.unneeded.append(_not_run(who, target, attack, why))
                    continue
                about: dict[str, object] = {**who, "run": self.label, "message": str(target), "attack": attack.name}
                try:
                    reach = max((DRAW_MARGINS[need] for need in attack.needs if need in DRAW_MARGINS), default=0.0)
                    behind = max((leak.leak for leak in others), default=0.5) - reach
                    self.add(view.on(target), attack, about | {"protections": self.protections}, behind)
                except NotApplicable as reason:
                    self.skipped.append(_not_run(who, target, attack, str(reason)))

    def depart(self) -> None:
        """Train the party's own model on the labels inferred by the strongest attack on each kind of message."""
        for message in dict.fromkeys(leak.message for leak in self.leaks):
            own = [index for index in self.inferring if self.leaks[index].message == message]
            best = max(own, key=lambda index: self.leaks[index].leak, default=None)
            if best is not None:
                value = departed_auc(self.run, self.attacker.party, self.inferring[best])
                self.leaks[best] = self.leaks[best].model_copy(update={"departed_auc": value})

    def add(self, view: HistoryView, attack: HistoryAttack, about: Mapping[str, object], behind: float) -> None:
        """Run one attack and add its result.

        Args:
            view: The attacked view, with its target.
            attack: The attack.
            about: Fields of the result.
            behind: Leak below which the first draw of the known rows is the only one, and no curve may be drawn.
        """
        run, truth = self.run, self.run.leak_labels
        tried: list[Scores] = []
        measured: list[Mapping[str, Leak]] = []
        reason = None
        for known in draw_knowledge(run, truth, view.rows, attack.needs)[: 1 if attack.costly else None]:
            try:
                tried.append(view.once(scores_key(view, attack, known), partial(attack, view, known)))
            except NotApplicable as missing:  # a draw of rows without messages
                reason = missing
                continue
            measured.append(leaks_by_variant(tried[-1], truth))
            if max(leak.value for leak in measured[-1].values()) < behind:
                break
        if not tried and reason is not None:
            raise reason
        self.scored.extend(tried)
        if any(math.isnan(max(leak.value for leak in leaks.values())) for leaks in measured):
            subject = {name: value for name, value in about.items() if name in Attempt.model_fields}
            rows = len(tried[0].rows)
            counts = {"rows": rows, "positives": run.task.positives(measured[0][""].positives, rows)}
            self.undefined.append(Attempt.model_validate(subject | counts))
            return
        about = {**about, "knowledge": sorted(attack.needs)}
        leak = _result(tried[0], measured, truth, about, view)
        self.leaks.append(leak)
        if view.target is Target.PART:  # of all parts, also those that a model of inferred labels is measured on
            return
        if run.task.kind == "binary" and not attack.needs - _SHARES:
            chosen = scores_of_variant(tried[0], leak.variant)
            upright = chosen.values if (leak.batch_auc or 0.5) >= 0.5 else -chosen.values
            self.inferring[len(self.leaks) - 1] = replace(chosen, values=upright)
        whole = run.job.parties[run.job.active].audit.depth == "full"
        brief = attack.live and attack.quick and leak.leak >= behind  # a curve asks it twenty times
        if whole and brief and Need.FEW_LABELS in attack.needs and about["run"] == RunKind.THIS_RUN:
            self.readable[leak.message, attack.name] = leak.leak, view, attack


def own_columns(run: Run) -> dict[str, OwnColumns]:
    """Leak about the labels from the columns at hand of each attacker, by its `party`.

    Where a party grades rows also from those of all parties, by `ALL_PARTIES`.
    """
    if run.task.target == "survival":  # the order of times of which some are censored is no leak that is defined here
        return {}
    classes = {"binary": 2, "regression": 0}.get(run.task.kind, len(run.task.classes))
    trees = run.job.parties[run.job.active].audit.depth == "full"
    together = partners(run.job)
    attackers = [*(Attacker(party=party) for party in run.job.passives), *([together] if together else [])]
    owners = {attacker.party: attacker.parties for attacker in attackers}
    if any(grades_rows(run.job, name) for name in run.job.passives):
        owners[ALL_PARTIES] = tuple(run.job.parties)
    return {
        name: predict_from_columns(
            [run.stores[party] for party in parties if party in run.stores],
            run.training,
            run.leak_labels,
            classes,
            run.job.train.seed,
            trees=trees,
            ids=run.held.shared_numbers(parties),
        )
        for name, parties in owners.items()
        if run.stores.keys() >= {*parties} - ({run.job.active} if name == ALL_PARTIES else set())
    }


def partners(job: Job) -> Attacker | None:
    """All passive parties, which pool what they hold; `None` where there is one, or the audit leaves them out."""
    if len(job.passives) < 2 or not job.parties[job.active].audit.collusion:
        return None
    return Attacker(**colluding(job.passives))


def _not_run(who: Mapping[str, Any], target: str, attack: HistoryAttack, reason: str) -> SkippedAttack:
    return SkippedAttack(**who, message=str(target), attack=attack.name, reason=reason)


def _says_as_much(leak: LeakResult, attack: HistoryAttack, rows: int) -> bool:
    """Whether a leak is of half of the rows at least, and of an attacker without labels where the attack's has none."""
    return 2 * leak.rows >= rows and (bool(attack.needs - _SHARES) or {*leak.knowledge} <= _SHARES)


def _sparing_leak(config: AuditConfig) -> float:
    """Leak above which a costly attack is not run: none where it was named, or could still fail a gate."""
    limits = config.fail_above
    below_one = math.nextafter(1.0, 0.0)  # beyond a leak of 1 there is none
    if config.catalogue not in CATALOGUES:
        return 1.0
    if limits.excess is not None:
        return below_one
    return max(NEARLY_WHOLE_LEAK, min(limits.label_auc or 0.0, below_one))


def _result(
    first: Scores, measured: Sequence[Mapping[str, Leak]], truth: Tensor, about: Mapping[str, object], view: HistoryView
) -> LeakResult:
    """The leak of the strongest variant: the mean over draws of the known rows, with the interval of the first draw."""
    means = {name: float(np.mean([leaks[name].value for leaks in measured])) for name in measured[0]}
    best = max(means, key=lambda name: np.nan_to_num(means[name]))
    leak = measured[0][best]
    chosen = scores_of_variant(first, best)
    low, high = leak_interval(chosen, truth, shift=means[best] - leak.value)
    return LeakResult.model_validate(
        {
            **about,
            "leak": means[best],
            "low": low,
            "high": high,
            "epoch": view.epochs[-1].epoch + 1,
            "epochs_seen": len(view.epochs),
            "whole_run": True,
            "variant": best,
            "rows": leak.rows,
            "rows_recorded": len(view.rows),
            "positives": view.task.positives(leak.positives, leak.rows),
            "pooled_auc": leak.pooled_auc,
            "batch_auc": leak.batch_auc,
            "batches": 1,
            "first_epoch_leak": None,
            "true_positive_rate": _true_positive_rate(chosen, truth, leak.batch_auc, view.task.positive),
            "other_aucs": {name: mean for name, mean in means.items() if name},
        }
    )


def _true_positive_rate(scores: Scores, truth: Tensor, auc: float, positive: int) -> float | None:
    """Share of the positives at 1 % false positives, of scores of this AUC; `None` in tasks that are not binary."""
    if scores.values.dim() != 1 or truth.is_floating_point():
        return None
    ranked = scores.values if (auc >= 0.5) == (positive == 1) else -scores.values
    return true_positive_rate(ranked, truth[scores.rows] == positive, FALSE_POSITIVE_RATE)


def _baseline(attacker: Attacker, own: Mapping[str, OwnColumns], chance: float) -> Baseline:
    who, columns, every = attacker.model_dump(), own.get(attacker.party), own.get(ALL_PARTIES)
    about = {**who, "chance": chance, "ideal": None if every is None else fold_auc(every.auc)}
    if columns is None:
        return Baseline(**about)
    return Baseline(**about, own_columns=fold_auc(columns.auc), model=columns.model)
