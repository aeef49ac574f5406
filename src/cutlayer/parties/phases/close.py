"""The end of a run: the evaluation of the trained model, and each party's evidence about its protections."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.receiving import send_done
from cutlayer.kernels.rows.small_groups import MIN_ROWS
from cutlayer.models.absence import Names, absent_sets
from cutlayer.models.top_estimators.top import FittedTop
from cutlayer.parties.active_fit import column_importances, estimate_pilots
from cutlayer.parties.phases.active_side import ActiveSide
from cutlayer.parties.phases.passive_side import PassiveSide
from cutlayer.parties.session.evidence import evidence_text
from cutlayer.parties.session.outcome import ActiveOutcome, PassiveOutcome
from cutlayer.protections.contract.base import Evidence


def lead(side: ActiveSide) -> Generator[Port, Message, ActiveOutcome]:
    """Evaluate with every party and without some, and dismiss those that are still there.

    Raises:
        NotApplied: A protection of this party missed a message.
    """
    # Without features of its own, this party needs one other to stay.
    passives = [name for name in side.job.passives if name not in side.presence.lost]
    absent = absent_sets(passives, keep_one=side.setup.store is None, sizes=(1, 2, len(passives)))
    if coverage := side.local.config.coverage:
        _, validated = yield from side.evaluate("validation", -1)  # of rows that have all been released
        truth = side.setup.truth_of(side.split.part("validation"))
        side.setup.task = side.setup.task.calibrated(coverage, validated[()], truth)
    if side.setup.task.target == "survival":
        _, fitted = yield from side.evaluate("train", -1)  # released as well
        side.setup.task = side.setup.task.with_baseline(fitted[()], side.setup.truth_of(side.split.part("train")))
    metrics, logits = yield from side.evaluate(side.reported_part, -1, absent)
    evidence = (*side.state.chain.proof(side.state.sent), *(yield from side.dismiss()))
    # After the last message: the account of a run that dies before it stays open, and later runs count it.
    side.state.chain.close_account()
    return _outcome(side, metrics, logits, evidence)


def absences_to_show(sets: Sequence[Names], present: Mapping[str, Tensor]) -> list[Names]:
    """Sets of absent parties, in their order, of which metrics can be shown: any two differ in no row, or in many.

    A row that no party of two sets has is predicted alike in both. So the difference of two losses is that of the other
    rows: of few, labels could be read from it.

    Args:
        sets: Sets of absent parties, that of nobody among them, which is shown, and that of all first of the others.
        present: Which held-out rows each party has, bool (n,), in a run on all rows; else nothing.
    """
    if not present:
        return list(sets)
    seen = torch.stack([*present.values()], dim=1)
    lacking = {names: seen & torch.tensor([name in names for name in present]) for names in sets}
    shown: list[Names] = []
    for names in sorted(sets, key=lambda names: (bool(names), -len(names))):
        counts = (int((lacking[names] != lacking[other]).any(1).sum()) for other in shown)
        if all(count == 0 or count >= MIN_ROWS for count in counts):
            shown.append(names)
    return [names for names in sets if names in shown]


def _outcome(
    side: ActiveSide, metrics: Mapping[str, float], logits: Mapping[Names, Tensor], evidence: tuple[Evidence, ...]
) -> ActiveOutcome:
    setup, part = side.setup, side.split.part(side.reported_part)
    held, table = side.passives.held, side.local.table
    sizes = side.agreement.aligned.sizes if side.job.rows == "common" else {}
    return ActiveOutcome(
        task=setup.task,
        split=side.split,
        step_losses=tuple(side.stopping.step_losses),
        selected_epoch=side.stopping.best_epoch if side.job.keeps_best else side.epoch - 1,
        epochs=side.epoch,
        stopped_early=side.epoch < side.job.train.max_epochs,
        part=side.reported_part,
        metrics=metrics,
        logits=logits[()],
        labels=setup.truth_of(part),
        ids=side.reported_ids,
        evidence=evidence,
        parameters=side.state.parameters,
        numeric=setup.inputs.numbers,
        categorical=len(setup.inputs.cardinalities),
        widths=setup.widths,
        fingerprint=setup.fingerprint,
        lost=dict(side.presence.lost),
        positive_share=setup.positive_share,
        logits_without={names: logits[names] for names in absences_to_show(list(logits), held.present(part)) if names},
        weights=setup.weights,
        fit=setup.top.fitted if isinstance(setup.top, FittedTop) else None,
        columns=partial(column_importances, setup, side.passives, part, side.job.train.seed),
        held_rows={name: int((numbers >= 0).sum()) for name, numbers in held.by_party.items()},
        lacking_rows={name: table.rows - size for name, size in sizes.items()},
        present=held.present(part),
        alarms=side.state.alarms,
        alignment=side.agreement.record,
        pilot=partial(estimate_pilots, setup, side.passives, side.split, side.job.train.seed),
        extra_heads=tuple(sum(p.numel() for p in head.parameters()) for head in setup.top.extra_heads),
    )


def follow(side: PassiveSide) -> Generator[Port, Message, PassiveOutcome]:
    """Answer requests until the active party closes, then send the evidence.

    Raises:
        NotApplied: A protection of this party missed a message.
    """
    yield from side.answer_until(Kind.CLOSE, -1)
    evidence = tuple(side.state.chain.proof(side.state.sent))
    side.port.send(Kind.EVIDENCE, fields={"json": evidence_text(evidence)})
    send_done(side.port)
    # After the last message: the account of a run that dies before it stays open, and later runs count it.
    side.state.chain.close_account()
    inputs = side.setup.inputs
    counts = (side.state.parameters, inputs.numbers, len(inputs.cardinalities))
    return PassiveOutcome(evidence, *counts, side.epoch, side.fit_losses, side.state.alarms, side.alignment)
