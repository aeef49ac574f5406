"""Attacks on features after a run: on what every passive party sent, where that party's own audit names them.

The truth is the party's own, so it audits itself: from its encoded rows and its own record of what it sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cutlayer.attacks import FeatureAttack, resolve
from cutlayer.attacks.feature.base import FeatureView
from cutlayer.attacks.knowledge import AUXILIARY_ROWS, Auxiliary, Knowledge, Need
from cutlayer.audit.attack_audit import AttackAudit
from cutlayer.audit.features.measures import FeatureTruth, MembershipTruth, measure
from cutlayer.audit.features.releases import UNRECORDED, released
from cutlayer.audit.features.shadow import ShadowRoom
from cutlayer.config import Job
from cutlayer.config.load import load_job
from cutlayer.data.store import Store
from cutlayer.errors import NotApplicable
from cutlayer.results.features import FeatureResult
from cutlayer.training.folder import RunFolder

APART = "the top model and the labels are with {}; this needs all parties in one process"
REPLAYED = "final models, on the same rows again"
ONCE = "{} releases once, by a bottom model that it fitted by itself; no shadow is made of that"
_PURPOSE = 5


@dataclass(frozen=True, eq=False)
class Case:
    """What an attack is given, and the truth that it is measured against.

    Attributes:
        release: Which release of the rows' embeddings is attacked.
        view: The attacker's view.
        knowledge: What it knows besides.
        known: Number of rows that it knows.
        rows: Number of rows that are attacked.
        truth: The truth about these rows.
    """

    release: str
    view: FeatureView
    knowledge: Knowledge
    known: int
    rows: int
    truth: FeatureTruth | MembershipTruth


class AttackedParty:
    """One passive party of one finished run, under attack.

    Args:
        job: The job as run.
        party: Name of the party.
        run: Folder of the run.
        folder: Folder of the run that holds the encoded rows.
        shadows: Where shadows of the run's models are trained; `None` where the other parties ran elsewhere.
    """

    def __init__(self, job: Job, party: str, run: RunFolder, folder: RunFolder, shadows: ShadowRoom | None) -> None:
        self.job, self.party, self.run, self.shadows = job, party, run, shadows
        self.store = Store.open(folder.data(party))

    def cases(self, attack: FeatureAttack[Any]) -> Iterator[Case]:
        """What the attack is run on, by the knowledge that it needs.

        Raises:
            NotApplicable: There is nothing to attack, or no audit grants that knowledge.
        """
        granted: Mapping[Need, Callable[[], Iterator[Case]]] = {
            Need.AUXILIARY_FEATURES: self._release_cases,
            Need.SHADOW_ROWS: self._shadow_cases,
        }
        if len(attack.needs) != 1 or not attack.needs <= granted.keys():
            wanted = f"an attack on features that needs one of: {'; '.join(granted)}"
            raise NotApplicable.expected(wanted, "; ".join(sorted(attack.needs)) or "none")
        (need,) = attack.needs
        yield from granted[need]()

    @cached_property
    def _cases_of_releases(self) -> list[Case]:
        """One case for each release that was recorded."""
        if self.job.parties[self.party].audit.every == "never":
            return []
        return [self._release_case(*release) for release in released(self.job, self.run, self.party)]

    def _release_cases(self) -> Iterator[Case]:
        if not self._cases_of_releases:
            raise NotApplicable(UNRECORDED.format(self.party))
        yield from self._cases_of_releases

    def _release_case(self, name: str, rows: Tensor, embeddings: Tensor) -> Case:
        indices = auxiliary_indices(len(rows), self.job.train.seed)
        known = Auxiliary(self.store.columns, indices, *self.store.gather(rows[indices]))
        unknown = known.unknown(len(rows))
        column = self.job.parties[self.party].audit.attribute
        truth = FeatureTruth(known, *self.store.gather(rows[unknown]), column)
        view = FeatureView(self.party, rows, embeddings)
        return Case(name, view, Knowledge(auxiliary_rows=known), len(indices), len(unknown), truth)

    def _shadow_cases(self) -> Iterator[Case]:
        if self.shadows is None:
            raise NotApplicable(APART.format(self.job.active))
        for party in self.job.passives:
            if self.job.train.releases_once(party):
                raise NotApplicable(ONCE.format(party))
        room = self.shadows
        knowledge = Knowledge(shadow_rows=room.shadows(self.party))
        truth = MembershipTruth(room.member)
        yield Case(REPLAYED, room.view(self.party), knowledge, len(room.own), len(room.attacked), truth)


def audit_features(
    job: Job, runs: Mapping[str, RunFolder], folder: RunFolder, classes: tuple[str, ...] | None
) -> AttackAudit[FeatureResult]:
    """Run the attacks that each passive party's audit names on what it sent in every run.

    Args:
        job: The job as run.
        runs: Folders of this run and of those it is compared with, by name.
        folder: Folder of this run, which holds the encoded rows.
        classes: Classes of the task; `None` where the other parties ran elsewhere.
    """
    audit = AttackAudit[FeatureResult]()
    named = {name: resolve(job.parties[name].audit.attacks, job.task, "passive").features for name in job.passives}
    shadowed = any(Need.SHADOW_ROWS in attack.needs for attacks in named.values() for attack in attacks)
    rooms: dict[str, ShadowRoom] = {}
    if shadowed and classes is not None:
        # Shadows of a run are trained under the protections of that run, and serve all parties.
        rooms = {name: ShadowRoom(load_job(run.path / "job.yaml"), run, folder, classes) for name, run in runs.items()}
    for party, attacks in named.items():
        if not attacks or not (folder.data(party) / "store.json").exists():
            continue
        for name, run in runs.items():
            attacked = AttackedParty(job, party, run, folder, rooms.get(name))
            for attack in attacks:
                with audit.skipping(party, [attack]):
                    _attack(attacked, attack, name, audit.results)
    return audit


def _attack(attacked: AttackedParty, attack: FeatureAttack[Any], run: str, results: list[FeatureResult]) -> None:
    """Run one attack on all its cases; results up to a `NotApplicable` stay."""
    seed = attacked.job.train.seed
    for case in attacked.cases(attack):
        about = {
            "run": run,
            "party": attacked.party,
            "attack": attack.name,
            "release": case.release,
            "known": case.known,
            "rows": case.rows,
            "knowledge": sorted(attack.needs),
        }
        results.extend(measure(attack(case.view, case.knowledge, seed), case.truth, about, seed))


def auxiliary_indices(rows: int, seed: int) -> Tensor:
    """Indices of the auxiliary rows among `rows`, drawn at random, ascending: 1,000, or half if that is fewer."""
    draw = np.random.default_rng([seed, _PURPOSE])
    return torch.from_numpy(np.sort(draw.permutation(rows)[: min(AUXILIARY_ROWS, rows // 2)]))
