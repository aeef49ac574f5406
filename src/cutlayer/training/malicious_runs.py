"""Trainings in which a party does not follow the protocol: the audit's malicious attacks, and who makes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cutlayer.attacks.knowledge import MAX_AUXILIARY_ROWS, Auxiliary
from cutlayer.attacks.malicious import TAMPERINGS, is_by_active_party
from cutlayer.attacks.malicious.backdoor import Backdoor
from cutlayer.attacks.malicious.base import Tampering
from cutlayer.config import Job
from cutlayer.config.phases import Phase
from cutlayer.data.streams import RandomStream
from cutlayer.lazy import Tensor, torch
from cutlayer.results.run import RunId, RunKind

if TYPE_CHECKING:
    from cutlayer.data.batches import Schedule
    from cutlayer.training.folder import RunFolder

MAX_TARGET_ROWS = 20
"""Training rows of the wanted class that a party with a backdoor knows: the positives of those of model completion."""


def victims(job: Job, attack: str) -> tuple[str, ...]:
    """The passive parties on whose links an attack is asked for, whether or not there is anything to attack."""
    if is_by_active_party(attack):
        return tuple(name for name in job.passives if attack in job.parties[name].audit.malicious)
    return job.passives if attack in job.parties[job.active].audit.malicious else ()


def reason_not_attacked(job: Job, party: str) -> str:
    """Why no malicious attack on a passive party's link can be trained; empty where it can."""
    if Phase.RELEASE in job.phases_of(party):
        return "no gradient comes back from a single release, so there is nothing that a malicious party could change"
    if job.rows == "all":
        return "malicious attacks train on the common rows alone; leave rows: all out"
    if job.train.max_epochs < 2:
        return "malicious attacks take two epochs or more"
    return ""


def attacked_jobs(job: Job) -> Iterator[tuple[RunId, Job]]:
    """The malicious trainings of an audit, and their jobs: the attacker has no protections of its own."""
    for attack in TAMPERINGS:
        run = attacked_run(job, attack)
        if any(not reason_not_attacked(job, name) for name in victims(job, attack)):
            yield run, _without_own_protections(job, run)


def attacked_run(job: Job, attack: str) -> RunId:
    """The training with an attack: by the active party, or by all passive ones at once."""
    return RunId(RunKind.MALICIOUS, (job.active,) if is_by_active_party(attack) else job.passives, attack=attack)


def attacked_labels(job: Job, *targets: str) -> frozenset[str]:
    """Labels of the malicious trainings with these targets, whether or not they are asked for; of all by default."""
    kinds = TAMPERINGS.items()
    return frozenset(attacked_run(job, name).label for name, kind in kinds if not targets or kind.target in targets)


def _without_own_protections(job: Job, run: RunId) -> Job:
    parties: dict[str, dict[str, Any]] = {}
    for name, party in job.parties.items():
        audit = party.audit.model_copy(update={"malicious": ()})
        if TAMPERINGS[run.attack].target != "labels" and name == job.active:
            audit = audit.model_copy(update={"attacks": (), "depth": "full", "layers": False})
        # An alarm is recorded, and what leaks without a stop is measured.
        guard = party.guard and party.guard.model_copy(update={"on_alarm": "warn"})
        parties[name] = {"audit": audit, "guard": guard} | ({"privacy": {}} if name in run.parties else {})
    train = job.train
    if is_by_active_party(run.attack):  # the party that leads the training decides when it ends
        train = train.model_copy(update={"epochs": train.max_epochs, "early_stop": None, "keep": "last"})
    return job.uncompared(parties, train=train)


def tampering_of(job: Job, run: RunId, origin: RunFolder) -> dict[str, Tampering]:
    """Tampering of the attackers of a run, by name; empty in an honest run.

    Args:
        job: The job of the run.
        run: The run.
        origin: The run that holds the encoded columns.
    """
    if not run.attack:
        return {}
    kind = TAMPERINGS[run.attack]
    options = dict[str, Any]()
    if is_by_active_party(run.attack):
        options["known"] = lambda schedule: known_rows(job, origin, schedule)
    elif kind is Backdoor:
        from cutlayer.training.recorder import read_truth  # with PyTorch, which `check` does without

        labels = origin.of_run(run.label).transcript(job.active)  # written when that training starts
        options["rows"] = cache(lambda: target_rows(*read_truth(labels), job.train.seed))
    attackers = (name for name in run.parties if name == job.active or Phase.RELEASE not in job.phases_of(name))
    return {name: kind(**options) for name in attackers}


def target_rows(truth: Tensor, training: Tensor, seed: int) -> Tensor:
    """The training rows of class 1 that a party with a backdoor knows, drawn at random, int64.

    Args:
        truth: True labels by row; class 1 is the positive one of a binary task.
        training: Row numbers of the training rows, int64.
        seed: Seed of the draw.
    """
    of_class = training[truth[training] == 1].numpy()
    generator = np.random.default_rng([seed, RandomStream.TARGET_ROWS])
    return torch.from_numpy(generator.permutation(of_class)[:MAX_TARGET_ROWS])


def known_rows(job: Job, origin: RunFolder, schedule: Schedule) -> Mapping[str, Auxiliary]:
    """The rows whose features a hijacking active party knows, by partner: those that `inversion` is given afterwards.

    Args:
        job: The job of the attacked run.
        origin: The run that holds the encoded columns.
        schedule: The batches of every epoch.
    """
    from cutlayer.data.store import Store

    known = {}
    for name in job.passives:
        if Phase.RELEASE not in job.phases_of(name):
            rows = last_recorded(job, name, schedule)
            indices = auxiliary_indices(len(rows), job.train.seed)
            store = Store.open(origin.data(name))
            known[name] = Auxiliary(store.columns, rows[indices], *store.gather(rows[indices]))
    return known


def last_recorded(job: Job, party: str, schedule: Schedule) -> Tensor:
    """Numbers of the rows that a passive party records in the last epoch, ascending, int64 (n,)."""
    from cutlayer.parties.session.local import sampling_of

    sampling = sampling_of(job, party, job.parties[party].audit, schedule.steps_per_epoch, schedule.batch_size)
    batches = enumerate(schedule.epoch(job.train.max_epochs - 1))
    return torch.cat([rows for step, rows in batches if sampling.takes(step)]).sort().values


def auxiliary_indices(rows: int, seed: int) -> Tensor:
    """Indices of the auxiliary rows among `rows`, drawn at random, ascending: 1,000, or half if that is fewer."""
    generator = np.random.default_rng([seed, RandomStream.AUXILIARY_ROWS])
    return torch.from_numpy(np.sort(generator.permutation(rows)[: min(MAX_AUXILIARY_ROWS, rows // 2)]))
