"""What the numbers of a regression are: plain values, grades in a group, or such as are learned on the log link."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, get_args

from cutlayer.config.case import Case
from cutlayer.config.party import ALL_RUNS, BUDGET
from cutlayer.config.phases import Phase

Target = Literal["value", "count", "amount", "severity", "survival", "ranking"]
TARGETS: tuple[Target, ...] = get_args(Target)[1:]
"""Tasks of numbers that are no plain values: `task: count` stands for a regression with this target."""
NUMBERS = ("regression", *TARGETS)
"""Tasks whose labels are numbers."""
SECOND_COLUMNS: Mapping[str, str] = {"count": "exposure", "amount": "exposure", "survival": "event", "ranking": "group"}
"""Key of the second column of the label, by target."""
_TOPS = ("auto", "linear", "boosting")
_REFERENCES = ("alone", "boosting")
"""Baselines that are fitted at once, and so have a task on the log link."""


def further_label_faults(case: Case) -> Iterator[str]:
    """Further labels are for releases, on which a top model is fitted at once for each: of grades, of its own ones."""
    job, where = case.job, f"parties.{case.job.active}.further_labels"
    owner = job.parties[job.active]
    if not (further := owner.further_labels):
        return
    ids = () if owner.id is None else owner.id.columns
    taken = {*ids, owner.label, owner.weight, owner.exposure, job.train.split.by}
    for number, name in enumerate(further):
        if name in taken or name in further[:number]:
            wanted = f"{where} apart from label, id, weight, exposure and train.split.by, each once"
            yield f"expected {wanted}, got {name!r}; leave it out"
    own = "write a job for each label"
    if not job.fits_top:
        remedy = "write train.release: once and model.top: {kind: auto}"
        yield f"expected a top model that is fitted at once with {where}, got one that is trained in steps; {remedy}"
    if Phase.LABELS in job.phases:
        if case.local_party is not None:
            yield f"expected all parties in one process with {where} and grades, got {case.local_party} alone; {own}"
        for name, party in job.parties.items():
            budget = party.privacy.get(BUDGET)
            if budget is not None and budget.get("over") != ALL_RUNS:
                wanted = f"parties.{name}.privacy.budget over all_runs with {where} and grades"
                yield f"expected {wanted}, got a run, which each label has; write over: all_runs"
    if owner.event is not None:
        yield f"expected no {where} with task survival, whose event is of one label, got some; {own}"
    if owner.unlabelled == "drop":
        yield f"expected unlabelled: refuse with {where}, which are of the same rows, got drop; {own}"


def target_faults(case: Case) -> Iterator[str]:
    """A target on the log link is for a top model that is fitted at once, and comes with columns of its own."""
    job, where = case.job, f"parties.{case.job.active}"
    owner, target = job.parties[job.active], job.target
    task = job.task if target == "value" else target
    if target != "value":
        if job.task != "regression":
            yield f"expected target: {target} with task: regression, got {job.task}; write task: {target}"
        if (kind := job.model.top.get("kind")) not in _TOPS:
            known = ", ".join(_TOPS)
            yield f"expected model.top.kind as one of {known} with task {task}, got {kind}; write {{kind: auto}}"
        if not job.fits_top:
            yield f"expected train.release: once with task {task}, got a release in every step; write it"
        for name in (*job.compare, *job.alternatives):
            if name not in _REFERENCES:
                known = " and ".join(_REFERENCES)
                yield f"expected compare with {known} alone with task {task}, got {name}; leave it out"
    if owner.exposure is not None and target not in ("count", "amount"):
        yield f"expected {where}.exposure with task count or amount alone, got task {task}; leave it out"
    if owner.event is not None and target != "survival":
        yield f"expected {where}.event with task survival alone, got task {task}; leave it out"
    if case.knows(job.active) and owner.event is None and target == "survival" and owner.label is not None:
        remedy = "name the column of events, which is 1 of an event and 0 of a censored row"
        yield f"expected {where}.event with task survival, got none; {remedy}"
    if owner.group is not None and target != "ranking":
        yield f"expected {where}.group with task ranking alone, got task {task}; leave it out"
    if target == "ranking" and case.knows(job.active) and owner.group is None and owner.label is not None:
        yield f"expected {where}.group with task ranking, got none; name the column whose rows are ranked together"
    if target == "ranking" and job.train.split.by is None:
        remedy = "name the column of the groups, or a date, by which none is divided"
        yield f"expected train.split.by with task ranking, got rows at random, which divide groups; {remedy}"
    if owner.coverage and target in ("survival", "ranking"):
        yield f"expected {where}.coverage with another task than {task}, got {owner.coverage:g}; leave it out"
    if owner.coverage and not job.fits_top:
        remedy = "write train.release: once, and model.top: {kind: auto}"
        yield f"expected a top model that is fitted at once with {where}.coverage, got steps; {remedy}"
    if owner.coverage and not (job.train.split.validation and job.train.split.test):
        wanted = f"train.split.validation and train.split.test above 0 with {where}.coverage"
        yield f"expected {wanted}, got 0; intervals are made on the one and tested on the other"
    if "label_dp" in owner.protections and owner.second:
        key = next(name for name in SECOND_COLUMNS.values() if getattr(owner, name))
        yield f"expected no {where}.privacy.label_dp with {where}.{key}, got both; a drawn label is a single number"
