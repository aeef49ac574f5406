"""One training with guards at all parties, and what its attacker reads of it."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cutlayer.attacks import resolve
from cutlayer.attacks.feature.base import MIN_ROWS, Reconstruction, encoded_matrix
from cutlayer.attacks.feature.inversion import Inversion
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Auxiliary, Knowledge
from cutlayer.attacks.malicious import TAMPERINGS
from cutlayer.attacks.malicious.base import Tampering
from cutlayer.audit.backdoor import success_rate
from cutlayer.audit.features import simulator_cases
from cutlayer.audit.features.measures import measure_feature_attack, measure_reconstruction
from cutlayer.audit.features.releases import recorded_releases
from cutlayer.audit.features.shadow import ShadowRoom
from cutlayer.audit.history import audit_history
from cutlayer.audit.watch import Watcher
from cutlayer.channel.transcript import Step, read_epochs
from cutlayer.config import Job
from cutlayer.config.guard import Alarm
from cutlayer.config.phases import Phase
from cutlayer.data.store import Store
from cutlayer.jobs.options import Progress
from cutlayer.results.audit import RunAudit
from cutlayer.results.leaks import worst_of
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.malicious_runs import auxiliary_indices, known_rows, target_rows
from cutlayer.training.recorder import read_truth
from cutlayer.training.tables import open_table
from cutlayer.training.together import train_together
from cutlayer.training.trained import Run
from cutlayer_published.attacks.sdar import Sdar
from studies.malicious.adapted import BlurredHijack, EarlyBackdoor
from studies.malicious.settings import WHOLE_READERS, Setting
from studies.malicious.urvfl import Urvfl
from studies.trials import study_key

ATTACKS: Mapping[str, type[Tampering]] = {
    **TAMPERINGS,
    "blurred_hijack": BlurredHijack,
    "early_backdoor": EarlyBackdoor,
    "urvfl": Urvfl,
}
KNOWN = 240
"""Rows of each partner whose features the attacker knows."""
SIMULATED_SEEDS = 5
"""Seeds of `sdar`, which takes longer than a training."""
FIRST = (3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16)
"""Steps after which an honest training is read too; after fewer `inversion` knows too few rows."""


def trained(job: Job, setting: Setting, tables: Any, work: Path) -> dict[str, Any]:
    """Train in a folder, which is then removed; returns the headline metric and what was measured."""
    shutil.rmtree(work, ignore_errors=True)
    folder = RunFolder.create(work, resume=False)
    watcher = Watcher(job, folder, Progress())
    opened = {name: open_table(job, name, tables) for name in job.parties}
    keys = Keys(work.parent / "keys", study_key(job), simulated=True)
    tampering = _attackers(job, setting, folder)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*as in an honest training")
        made = train_together(job, folder, opened, keys, watcher, tampering=tampering)
    steps = -(-len(made.active.split.train) // job.train.rows_per_step(len(made.active.split.train)))
    alarms = [*made.active.alarms, *(alarm for passive in made.passives.values() for alarm in passive.alarms)]
    measured: dict[str, Any] = {"steps": steps, "alarms": [f"{each.party}: {each.detail}" for each in alarms]}
    measured["active_alarm"] = _first(made.active.alarms, steps)
    measured["passive_alarm"] = _first(made.passives[job.passives[0]].alarms, steps)
    if setting.reads == "features":
        measured |= _rebuilt(job, folder, measured["passive_alarm"], FIRST if setting.name == "honest" else ())
        attacker = tampering.get(job.active)
        if isinstance(attacker, Urvfl):
            measured["r2_decoder"] = _decoded(job, folder, attacker)
        simulated = setting.name.startswith("honest") and Phase.RELEASE not in job.phases_of(job.passives[0])
        if simulated and job.train.seed <= SIMULATED_SEEDS:
            measured["r2_sdar"] = _simulated(Run(job, folder, classes=made.active.task.classes))
    elif setting.reads == "labels":
        run = Run(job, folder, classes=made.active.task.classes)
        audit = watcher.auditor.results("this run", ()) if watcher.auditor else RunAudit()
        whole = resolve(WHOLE_READERS, job.task).histories
        audit = audit_history(run, "this run", audit, whole, {})
        leaks = [each for each in audit.leaks if each.message == "gradient"]
        for link in {each.party for each in leaks}:
            worst = worst_of(each for each in leaks if each.party == link)
            measured["together" if "+" in link else f"leak of {link}"] = worst.leak if worst else None
    elif setting.reads == "predictions":
        run = Run(job, folder, classes=made.active.task.classes)
        for attackers in {job.passives[:1], tuple(job.passives)}:
            reached = success_rate(run, attackers)
            measured[f"success of {len(attackers)}"] = None if reached is None else reached.value
    metric = made.active.metrics[made.active.task.metric]
    shutil.rmtree(work)
    return {"metric": metric, "seconds": made.seconds, "measured": measured}


def _attackers(job: Job, setting: Setting, folder: RunFolder) -> dict[str, Tampering]:
    if not setting.attack:
        return {}
    kind, options = ATTACKS[setting.attack], dict[str, Any](setting.options)
    if kind.target == "features":
        options["known"] = lambda schedule: _few(known_rows(job, folder, schedule), setting.rows or KNOWN)
        return {job.active: kind(**options)}
    if kind.target == "predictions":
        # Later: the labels are written when the training starts.
        options["rows"] = cache(lambda: target_rows(*read_truth(folder.transcript(job.active)), job.train.seed))
    return {name: kind(**options) for name in job.passives}


def _few(known: Mapping[str, Auxiliary], rows: int = KNOWN) -> Mapping[str, Auxiliary]:
    """So many of the rows that an attacker may know of each partner; fewer are a part of more."""
    few = {}
    for name, each in known.items():
        order = torch.randperm(len(each.indices), generator=torch.Generator().manual_seed(0))
        parts = (part[order[:rows].sort().values] for part in (each.indices, each.codes, each.numbers))
        few[name] = Auxiliary(each.columns, *parts)
    return few


def _first(alarms: Iterable[Alarm], steps: int) -> int | None:
    """Number of steps until the first of a party's alarms."""
    return min(((alarm.epoch - 1) * steps + alarm.step for alarm in alarms), default=None)


def _rebuilt(job: Job, folder: RunFolder, alarm: int | None, first: Sequence[int]) -> dict[str, Any]:
    """R² of `inversion` of what the first partner sent in all, until its alarm, and after some of the first steps.

    Rows that were not yet sent are rebuilt by the mean of the known rows.
    """
    party = job.passives[0]
    read = partial(_read, Store.open(folder.data(party)), party, job.train.seed)
    if Phase.RELEASE in job.phases_of(party):
        _, rows, embeddings = recorded_releases(job, folder, party)[0]
        return {"r2": read(rows, [Step(0, 0, rows, {party: embeddings})])}
    sent = [step for _, epoch in read_epochs(folder.transcript(party)) for step in epoch]
    rows = torch.unique(torch.cat([step.rows for step in sent]))
    reached: dict[str, Any] = {"r2": read(rows, sent)}
    if alarm is not None:
        reached["r2_alarm"] = read(rows, sent[: max(alarm, FIRST[0])])
    if first:
        reached["r2_first"] = {str(steps): read(rows, sent[:steps]) for steps in first}
    return reached


def _decoded(job: Job, folder: RunFolder, attacker: Urvfl) -> float:
    """R² of the attacker's own decoder on what the first partner sent of each row last."""
    party = job.passives[0]
    sent = [step for _, epoch in read_epochs(folder.transcript(party)) for step in epoch]
    rows = torch.unique(torch.cat([step.rows for step in sent]))
    rebuilt = attacker.pilots[party].rebuilt
    return _read(Store.open(folder.data(party)), party, job.train.seed, rows, sent, rebuilt)


def _read(
    store: Store,
    party: str,
    seed: int,
    rows: Tensor,
    sent: Sequence[Step],
    rebuilt: Callable[[Tensor], Tensor] | None = None,
) -> float:
    """R² of all rows, of which each counts as it was sent last.

    Args:
        store: Encoded columns of the party.
        party: The party.
        seed: Seed of the attack.
        rows: Row numbers, ascending, int64.
        sent: What the party sent of them.
        rebuilt: Used in place of `inversion`, from embeddings (n, width) to encoded columns (n, d).
    """
    indices = auxiliary_indices(len(rows), seed)
    known = _few({party: Auxiliary(store.columns, indices, *store.gather(rows[indices]))})[party]
    attacked = rows[known.unknown(len(rows))]
    values = encoded_matrix(known.columns, known.codes, known.numbers).mean(dim=0).repeat(len(attacked), 1)
    embeddings = torch.cat([step.embeddings[party].flatten(1) for step in sent])
    last = {row: place for place, row in enumerate(torch.cat([step.rows for step in sent]).tolist())}
    seen = torch.tensor(sorted(last))
    indices = torch.isin(seen, rows[known.indices]).nonzero().flatten()
    if len(indices) >= MIN_ROWS:
        auxiliary = Auxiliary(store.columns, indices, *store.gather(seen[indices]))
        view = FeatureView(party, seen, embeddings[torch.tensor([last[row] for row in seen.tolist()])])
        if rebuilt is None:
            made = Inversion()(view, Knowledge(auxiliary_rows=auxiliary), seed)
        else:
            unknown = auxiliary.unknown(len(seen))
            made = Reconstruction(seen[unknown], rebuilt(view.embeddings[unknown]))
        values[torch.searchsorted(attacked, made.rows)] = made.values
    about: dict[str, Any] = {"run": "this run", "party": party, "attack": "inversion", "release": "all"}
    about |= {"known": len(indices), "rows": len(attacked)}
    return measure_reconstruction(Reconstruction(attacked, values), known, store.gather(attacked), about).value or 0.0


def _simulated(run: Run) -> float:
    """R² of `sdar` on the first partner: it knows 1,000 other rows with their labels, or half of its rows if fewer."""
    party, seed = run.job.passives[0], run.job.train.seed
    (case,) = simulator_cases(run.job, party, lambda: ShadowRoom(run))
    about: dict[str, Any] = {"run": "this run", "party": party, "attack": "sdar"}
    (result,) = measure_feature_attack(Sdar()(case.view, case.knowledge, seed), case, about)
    return result.value or 0.0
