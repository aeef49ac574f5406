"""The ledger of a job: the planned or actual releases of its protections."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from cutlayer.accounting import (
    DELTA,
    DPSGD,
    AboutLabels,
    Entry,
    Event,
    GaussianRelease,
    LabelFree,
    Ledger,
    NoFormalGuarantee,
    RandomizedGrade,
    RandomizedResponse,
)
from cutlayer.accounting.ledger import REFUSAL_ENTRY
from cutlayer.accounting.plan import PrivateFit
from cutlayer.accounting.total import Asset
from cutlayer.accounting.wording import ORDERED_TEXT, PUBLIC_TEXT, RUN_END_TEXT, STRATIFIED_TEXT
from cutlayer.config import Job
from cutlayer.config.party import LABEL_FREE
from cutlayer.config.phases import Phase, grades_rows
from cutlayer.models.bottom_fits import lower_epsilons_of, may_refuse
from cutlayer.parties.session.plan import plan_of
from cutlayer.protections import REGISTRY, build_chain
from cutlayer.protections.contract.base import Evidence
from cutlayer.protections.contract.chain import Chain
from cutlayer.protections.grade_dp import drawing_of

if TYPE_CHECKING:
    from cutlayer.parties.session.outcome import ActiveOutcome


SPLIT_ENTRY = "split"
"""Name of the ledger's entry for a split that is sent."""
REFUSED_TEXT = "whether {by} refuse grades tells one bit about all rows, once a run and prediction"
LOWERED_TEXT = (
    "; where limits are exceeded, grades are drawn at epsilon {steps}: which it is tells {bits:.1f} bits in all, once"
)


def chain_of(job: Job, name: str) -> Chain:
    """A party's protections, built from its part of the job."""
    party = job.parties[name]
    return build_chain(name, party.role, party.privacy, f"parties.{name}.privacy")


def ledger_of(job: Job) -> Ledger:
    """The planned releases of every protection of the job, as if the run never stops early.

    A run that stops early has released less. Its ledger stays that of the plan: when to stop depended on the data.
    """
    entries = [entry for name in job.parties for entry in _entries(job, name, chain_of(job, name))]
    if Phase.LABELS in job.phases:  # each further label is drawn, and has grades of its own
        labels = range(1 + len(job.parties[job.active].further_labels))
        entries = [replace(entry, run=label) for label in labels for entry in entries]
    unprotected = not any(entry.protects == "labels" for entry in entries) and Phase.LEAVE not in job.phases
    return Ledger((*entries, *_label_free(job), *_split(job, "nothing protects the labels, and " * unprotected)))


def planned_entries(job: Job, name: str, chain: Chain) -> tuple[Entry, ...]:
    """The planned releases of one party; each receiver that no protection covers gets an entry that says so.

    Args:
        job: Job with the party's private part.
        name: Name of the party.
        chain: Its protections, set up or not.
    """
    active, towards = name == job.active, job.peers_of(name)
    entries = [*_entries(job, name, chain), *(_label_free(job) if active else ())]
    asset: Asset = "labels" if active else "features"
    covered = {receiver for entry in entries if entry.protects == asset for receiver in entry.towards}
    if uncovered := tuple(receiver for receiver in towards if receiver not in covered):
        entries.append(Entry("none", name, asset, uncovered, NoFormalGuarantee(f"nothing protects the {asset}")))
    entries += _split(job) if active else ()
    return tuple(entries)


def _label_free(job: Job) -> Iterator[Entry]:
    """The entry for the passive parties that are sent no message which depends on a label, if there are any."""
    if towards := tuple(name for name in job.passives if job.is_label_free(name)):
        # Where all parties release before the first step, none of them learns when the training ends, or how.
        event = _with_conditions(job, LabelFree()) if Phase.LEAVE in job.phases else NoFormalGuarantee(RUN_END_TEXT)
        yield Entry(LABEL_FREE, job.active, "labels", towards, event)


def _with_conditions(job: Job, event: Event) -> Event:
    """The event; one of labels with the conditions that the job sets."""
    if not isinstance(event, AboutLabels):
        return event
    return replace(event, split_by=job.train.split.by, unlabelled=job.parties[job.active].unlabelled == "drop")


def _split(job: Job, before: str = "") -> Iterator[Entry]:
    """The entries for a split that depends on labels, or on a column of the active party, which labels may follow.

    Args:
        job: The job.
        before: Stands before the reason why the labels have no guarantee.
    """
    split = job.train.split
    ordered = ORDERED_TEXT.format(column=repr(split.by), public=PUBLIC_TEXT * split.public)
    why = STRATIFIED_TEXT if split.stratify else ordered
    if split.depends_on_labels:
        event = NoFormalGuarantee(f"{before}{why}", voids=True)
        yield Entry(SPLIT_ENTRY, job.active, "labels", job.passives, event)
    if split.by is not None:
        yield Entry(SPLIT_ENTRY, job.active, "features", job.passives, NoFormalGuarantee(why))


def ledger_after(job: Job, outcome: ActiveOutcome) -> Ledger:
    """The ledger of a finished run, with its draws and with releases beyond the plan."""
    entries = ledger_of(job).entries
    return Ledger(tuple(_actual_entry(entry, job, outcome) for entry in entries))


def passive_ledger(job: Job, name: str, evidence: Iterable[Evidence]) -> Ledger:
    """A passive party's own part of the ledger, which no other party can write."""
    mine = [entry for entry in ledger_of(job).entries if entry.party == name]
    return Ledger(tuple(replace(entry, event=released_event(entry, evidence)) for entry in mine))


def _entries(job: Job, name: str, chain: Chain) -> list[Entry]:
    """The planned releases of a party's protections."""
    plan, entries = plan_of(job, name), list[Entry]()
    for protection in chain.protections:
        event = _with_conditions(job, protection.event(plan))
        noisy = event.fit if isinstance(event, RandomizedGrade) else event
        stated = (noisy.delta if isinstance(noisy, GaussianRelease | DPSGD | PrivateFit) else None) or DELTA
        delta = stated if chain.budget is None else chain.budget.delta
        origin = REGISTRY.origin(protection.name)
        asset: Asset = protection.protects.value
        entries.append(Entry(protection.name, name, asset, job.peers_of(name), event, delta, stated_by=origin))
    fit = job.parties[name].fit  # none of a party whose part is elsewhere, with its own ledger
    formal = any(entry.formal for entry in entries)  # else all that leaves has no guarantee
    if formal and name in job.passives and grades_rows(job, name) and fit and may_refuse(fit, f"parties.{name}.fit"):
        why = REFUSED_TEXT.format(by="fit.limits" if plan.fit else "fit.least_z or fit.limits")
        drawing = drawing_of(chain.protections)
        if drawing is not None and (steps := lower_epsilons_of(fit, drawing.stated)):
            listed = " or ".join(f"{step:g}" for step in steps)
            why += LOWERED_TEXT.format(steps=listed, bits=math.log2(len(steps) + 2))
        entries.append(Entry(REFUSAL_ENTRY, name, "features", job.peers_of(name), NoFormalGuarantee(why)))
    return entries


def _actual_entry(entry: Entry, job: Job, outcome: ActiveOutcome) -> Entry:
    if entry.run:  # of a further label, whose run has a ledger of its own
        return entry
    if isinstance(entry.event, RandomizedResponse) and entry.party == job.active:
        classes = len(outcome.task.classes)  # a number has none: its levels are those of the plan
        draws = _draws_of(entry, outcome.evidence)
        event = replace(entry.event, classes=max(2, classes) if classes else entry.event.classes, draws=draws)
        drawn = f"{outcome.fingerprint} {entry.protection} {event.eps.hex()} {event.classes}"
        return replace(entry, event=event, fingerprint=hashlib.blake2b(drawn.encode(), digest_size=16).hexdigest())
    return replace(entry, event=released_event(entry, outcome.evidence))


def _draws_of(entry: Entry, evidence: Iterable[Evidence]) -> int:
    """Number of independent draws of a label: that of this run, and those of unfinished runs."""
    mine = [item for item in evidence if (item.party, item.protection) == (entry.party, entry.protection)]
    return max((int(item.metrics.get("draws", 1)) for item in mine), default=1)


def released_event(entry: Entry, evidence: Iterable[Evidence]) -> Event:
    """The event with the releases of unfinished runs, and with all that were allowed where the plan was exceeded.

    Of grades it is of the epsilon at which they were drawn, where that of the settings was lowered.

    How many there were depends on what was asked for; how many were allowed was fixed before the first.
    """
    event = entry.event
    for item in evidence:
        if (item.party, item.protection) != (entry.party, entry.protection):
            continue
        if isinstance(event, GaussianRelease) and "releases" in item.metrics:
            count = _stated_count(item.metrics, "releases")
            return replace(event, releases=replace(event.releases, beyond=max(0, count - event.releases.max_releases)))
        if isinstance(event, RandomizedGrade) and "epsilon" in item.metrics and not entry.run:
            return replace(event, eps=min(event.eps, item.metrics["epsilon"]))
        if isinstance(event, DPSGD) and "row_steps" in item.metrics:
            return replace(event, steps=max(event.steps, _stated_count(item.metrics, "row_steps")))
    return event


def _stated_count(metrics: Mapping[str, float], name: str) -> int:
    """The count for the ledger: the plan, or the limit if the plan was exceeded."""
    exceeded = metrics[name] > metrics[f"{name}_planned"]
    return int(metrics[f"{name}_allowed" if exceeded else f"{name}_planned"])
