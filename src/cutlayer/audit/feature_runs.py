"""Attacks on features after a run: on what every passive party sent, where that party's own audit names them.

The truth is the party's own, so it audits itself: from its encoded rows and its own record of what it sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cutlayer.attacks import REGISTRY, Attribute, FeatureAttack, Inversion, Membership, resolve_features
from cutlayer.attacks.feature.base import ActiveView, Auxiliary
from cutlayer.audit.features import (
    FeatureFigure,
    attribute_figures,
    auxiliary_places,
    inversion_figure,
    membership_figure,
)
from cutlayer.audit.shadow import ShadowRoom
from cutlayer.channel.transcript import Step, read_epochs
from cutlayer.config import Job
from cutlayer.config.load import load_job
from cutlayer.data.store import Store
from cutlayer.errors import NotApplicable
from cutlayer.parties.checkpoint import Checkpoints
from cutlayer.training.folder import RunFolder

UNRECORDED = "nothing that {0} sent was recorded; set parties.{0}.audit.every to epoch or end"
APART = "the top model and the labels are with {}; this needs all parties in one process"
NO_COLUMN = "{!r} is no column that can be asked about: a number, or a category of 20 codes at most; there are {}"
AGAIN = "kept models, shown the rows once more"
ONCE = "{} releases once, by a bottom model that it fitted by itself; no shadow is made of that"
_NOWHERE = float("nan")
_PURPOSE = 7


@dataclass(frozen=True)
class FeatureAudit:
    """Figures of all attacks on features, and those that could not be run, with the reason."""

    figures: list[FeatureFigure] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> list[dict[str, Any]]:
        """The `features` of `audit.json`, each with what its attack knows."""
        return [{**asdict(one), "knowledge": sorted(REGISTRY[one.attack].needs)} for one in self.figures]


@dataclass(frozen=True, eq=False)
class Released:
    """Embeddings of the rows recorded in the last recorded epoch.

    Attributes:
        name: which release of each row.
        rows: int64 (n,). embeddings: float32 (n, width).
    """

    name: str
    rows: Tensor
    embeddings: Tensor


def released(job: Job, folder: RunFolder, party: str) -> list[Released]:
    """What a party sent, from its own record: the last recorded release of each row; and the mean of all its own.

    The second is what an attacker makes of noise that is drawn anew for every release. It is there where some row was
    recorded more than once. Both are of the same rows, and the epoch is fixed beforehand: the last. Of a party that
    releases once about `audit.rows` of its rows are taken, at random.
    """
    if job.train.releases_once(party):
        return [_only_release(job, folder, party)]
    path, last = folder.transcript(party), None
    for found in read_epochs(path):
        last = found
    if last is None:
        return []
    epoch, steps = last
    rows, embeddings = _joined(steps, party)
    order = rows.argsort()
    rows, embeddings = rows[order], embeddings[order]
    total, count = torch.zeros(embeddings.shape, dtype=torch.float64), torch.zeros(len(rows))
    for _, others in read_epochs(path):
        there, sent = _joined(others, party)
        at = torch.searchsorted(rows, there).clamp_max(len(rows) - 1)
        same = rows[at] == there
        total.index_add_(0, at[same], sent[same].double())
        count.index_add_(0, at[same], torch.ones(int(same.sum())))
    kept = [Released(f"epoch {epoch + 1}, the last recorded", rows, embeddings)]
    if int(count.max()) > 1:
        kept.append(Released(f"mean of {float(count.mean()):.1f} releases", rows, (total / count[:, None]).float()))
    return kept


def _only_release(job: Job, folder: RunFolder, party: str) -> Released:
    found = Checkpoints(folder.path / "checkpoint" / party, party, job.digest()).load_release()
    if not found:
        raise NotApplicable(UNRECORDED.format(party))
    embeddings = found[0]["released"]
    draw = np.random.default_rng([job.train.seed, _PURPOSE])
    chosen = torch.from_numpy(np.sort(draw.permutation(len(embeddings))[: job.parties[party].audit.rows]))
    return Released("the only release", chosen, embeddings[chosen].flatten(1))


def audit_features(
    job: Job, runs: Mapping[str, RunFolder], folder: RunFolder, classes: tuple[str, ...] | None
) -> FeatureAudit:
    """Run the attacks that each passive party's audit names on what it sent in every run.

    Args:
        job: as run.
        runs: folders of this run and of those it is compared with, by name.
        folder: of this run, which holds the encoded rows.
        classes: of the task; `None` where the other parties ran elsewhere.
    """
    found = FeatureAudit()
    named = {name: resolve_features(job.parties[name].audit.attacks, job.task) for name in job.passives}
    shadowed = classes is not None and any(isinstance(one, Membership) for chosen in named.values() for one in chosen)
    rooms = {name: _room(run, folder, classes or ()) for name, run in runs.items()} if shadowed else {}
    for party, attacks in named.items():
        if attacks and (folder.data(party) / "store.json").exists():
            _audit_party([Exposed(job, party, name, run, folder, rooms) for name, run in runs.items()], attacks, found)
    return found


class Exposed:
    """One passive party of one finished run, under attack.

    Args:
        job, folder: as in `audit_features`. party: which. name: of the run. run: its folder.
        rooms: where shadows of each run are trained, by its name; none where the other parties ran elsewhere.
    """

    def __init__(
        self, job: Job, party: str, name: str, run: RunFolder, folder: RunFolder, rooms: Mapping[str, ShadowRoom]
    ) -> None:
        self.job, self.party, self.name, self.run, self.rooms = job, party, name, run, rooms
        self.store = Store.open(folder.data(party))
        self.stated = job.parties[party].audit.attribute

    @cached_property
    def releases(self) -> list[Released]:
        """What was recorded; empty where nothing was."""
        return [] if self.job.parties[self.party].audit.every == "never" else released(self.job, self.run, self.party)

    def attacked(self, attack: FeatureAttack[Any, Any]) -> Iterator[FeatureFigure]:
        """All figures of one attack.

        Raises:
            NotApplicable: it cannot be run here; says why.
        """
        if isinstance(attack, Membership):
            yield self._membership(attack)
            return
        if not self.releases:
            raise NotApplicable(UNRECORDED.format(self.party))
        for release in self.releases:
            yield from self._from_release(attack, release)

    def _from_release(self, attack: FeatureAttack[Any, Any], release: Released) -> Iterator[FeatureFigure]:
        places = auxiliary_places(len(release.rows), self.job.train.seed)
        known = Auxiliary(self.store.columns, places, *self.store.gather(release.rows[places]))
        made = attack(ActiveView(self.party, release.rows, release.embeddings), known, self.job.train.seed)
        others = known.others(len(release.rows))
        truth = self.store.gather(release.rows[others])
        base = self._base(attack, release.name, len(places), len(others))
        if isinstance(attack, Inversion):
            yield inversion_figure(base, made, known, truth)
        elif isinstance(attack, Attribute):
            yield from attribute_figures(base, made, truth, self.stated, self.job.train.seed)
            if self.stated is not None and self.stated not in made:
                raise NotApplicable(NO_COLUMN.format(self.stated, ", ".join(made)))

    def _membership(self, attack: Membership) -> FeatureFigure:
        if self.name not in self.rooms:
            raise NotApplicable(APART.format(self.job.active))
        for party in self.job.passives:
            if self.job.train.releases_once(party):
                raise NotApplicable(ONCE.format(party))
        room = self.rooms[self.name]
        scores = attack(room.view(self.party), room.shadows(self.party), self.job.train.seed)
        base = self._base(attack, AGAIN, len(room.own), len(room.attacked))
        return membership_figure(base, scores, room.member, self.job.train.seed)

    def _base(self, attack: FeatureAttack[Any, Any], release: str, known: int, rows: int) -> FeatureFigure:
        """A figure without its value yet."""
        return FeatureFigure(
            run=self.name,
            party=self.party,
            attack=attack.name,
            release=release,
            known=known,
            rows=rows,
            metric="",
            value=_NOWHERE,
            low=_NOWHERE,
            high=_NOWHERE,
            baseline=_NOWHERE,
        )


def _room(run: RunFolder, folder: RunFolder, classes: tuple[str, ...]) -> ShadowRoom:
    """Where shadows of a run are trained, under the protections of that run."""
    return ShadowRoom(load_job(run.path / "job.yaml"), run, folder, classes)


def _audit_party(parts: list[Exposed], attacks: list[FeatureAttack[Any, Any]], found: FeatureAudit) -> None:
    for exposed in parts:
        for attack in attacks:
            try:
                for figure in exposed.attacked(attack):
                    found.figures.append(figure)
            except NotApplicable as reason:
                found.skipped[f"{exposed.party}/{attack.reads[0]}/{attack.name}"] = str(reason)


def _joined(steps: list[Step], party: str) -> tuple[Tensor, Tensor]:
    """Rows and embeddings of all steps of an epoch."""
    return torch.cat([step.rows for step in steps]), torch.cat([step.embeddings[party].flatten(1) for step in steps])
