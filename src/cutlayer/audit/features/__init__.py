"""Attacks on features after a run: on what every passive party sent, where that party's own audit names them.

The truth is the party's own, so it audits itself: from its encoded rows and its own record of what it sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cutlayer.attacks import CATALOGUES, REGISTRY, resolve
from cutlayer.attacks.feature.base import FeatureAttack
from cutlayer.attacks.feature.inversion import Inversion
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import MAX_AUXILIARY_ROWS, Auxiliary, Knowledge, Need, in_words
from cutlayer.attacks.malicious import TAMPERINGS
from cutlayer.audit.attack_audit import AttackAudit
from cutlayer.audit.features.measures import FeatureCase, measure_feature_attack
from cutlayer.audit.features.other_columns import OtherColumns
from cutlayer.audit.features.releases import UNRECORDED, Release, recorded_releases
from cutlayer.audit.features.shadow import ShadowRoom
from cutlayer.config import Job
from cutlayer.config.load import load_closed_job
from cutlayer.config.phases import Phase, grades_rows
from cutlayer.data.encoding import Encoder
from cutlayer.data.prepared import ENCODER_FILE
from cutlayer.data.store import Store
from cutlayer.errors import NotApplicable
from cutlayer.models import bottom_of
from cutlayer.parties.drive.random_state import random_state_under
from cutlayer.results.features import FeatureResult
from cutlayer.results.run import RunKind
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import starting_keys
from cutlayer.training.malicious_runs import attacked_labels, attacked_run, auxiliary_indices, victims
from cutlayer.training.trained import Run

NEEDS_ONE_PROCESS = "the top model and the labels are with {}; this needs all parties in one process"
REPLAYED_RELEASE = "final models, on the same rows again"
NO_SHADOW = "{} releases once, by a bottom model that it fitted by itself; no shadow is made of that"


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

    @cache
    def room(name: str) -> ShadowRoom:
        """Shadows of a run are trained under the protections of that run, and serve all parties."""
        if classes is None:
            raise NotApplicable(NEEDS_ONE_PROCESS.format(job.active))
        run_job = load_closed_job(runs[name].path / "job.yaml")
        return ShadowRoom(Run(run_job, runs[name], origin=folder, classes=classes))

    # The job of this run is at hand: to parse it again would take as long as its smallest attacks.
    others = {name: load_closed_job(run.path / "job.yaml") for name, run in runs.items() if name != RunKind.THIS_RUN}
    jobs = {name: _as_trained(job, others.get(name, job)) for name in runs}
    for party in job.passives:
        attacks = resolve(job.parties[party].audit.catalogue, job.task, "passive").features
        if not (folder.data(party) / "store.json").exists():
            continue
        other_columns = OtherColumns(job, folder, party, classes)
        for name, run in runs.items():
            # What an attack is run on follows from the knowledge that it needs.
            of_models = partial(shadow_cases, jobs[name], party, partial(room, name))
            releases = cache(partial(release_cases, jobs[name], run, folder, party))
            cases: Mapping[Need | None, Callable[[], Iterable[FeatureCase]]] = {
                None: partial(unknown_cases, jobs[name], run, folder, party),
                Need.OTHER_ROWS: partial(population_cases, jobs[name], run, folder, party),
                Need.AUXILIARY_FEATURES: releases,
                Need.INITIAL_WEIGHTS: partial(white_box_cases, jobs[name], releases, folder, party),
                Need.SIMULATOR: partial(simulator_cases, jobs[name], party, partial(room, name)),
                Need.SHADOW_ROWS: of_models,
                Need.CANDIDATE_ROWS: of_models,
            }
            once = Phase.RELEASE in jobs[name].phases_of(party)
            for attack in _attacks_on(jobs[name], party, name, attacks):
                if not is_run_by_default(attack, job, party, once=once):
                    continue
                about = {"run": name, "party": party, "attack": attack.name, "knowledge": sorted(attack.needs)}
                with audit.skipping(party, [attack]):
                    for given in _cases_for(attack.needs, cases):
                        is_compared = name == RunKind.THIS_RUN and attack.needs == {Need.AUXILIARY_FEATURES}
                        case = other_columns.held_with(given) if is_compared and attack.reads_own else given
                        results = measure_feature_attack(attack(case.view, case.knowledge, job.train.seed), case, about)
                        audit.results.extend(other_columns.compared(results, attack, case) if is_compared else results)
    return audit


def _as_trained(job: Job, run: Job) -> Job:
    """The job with the training and the models of one of its runs: an alternative may release grades.

    The undefended baseline of a party that releases once releases in every step. It has none of the protections for
    which further releases are attacked, and no release of this run compares with those.
    """
    changes = {
        name: {"privacy": run.parties[name].privacy}
        for name in job.passives
        if Phase.RELEASE in job.phases_of(name) and Phase.RELEASE not in run.phases_of(name)
    }
    return job.with_parties(changes, train=run.train, model=run.model)


def is_run_by_default(attack: FeatureAttack[Any], job: Job, party: str, *, once: bool) -> bool:
    """Whether the party's audit runs an attack: a catalogue reads columns of a party that releases once alone."""
    return once or not attack.live or job.parties[party].audit.catalogue not in CATALOGUES


def _attacks_on(job: Job, party: str, run: str, named: Sequence[FeatureAttack[Any]]) -> Sequence[FeatureAttack[Any]]:
    """The attacks on a party's embeddings in a run: what a malicious owner gains is read by `inversion`, in both."""
    inversion = next((attack for attack in named if isinstance(attack, Inversion)), Inversion())
    asked = {attacked_run(job, attack).label for attack in TAMPERINGS if party in victims(job, attack)}
    if run in attacked_labels(job):
        return [inversion] if run in asked else []
    compared = run == RunKind.THIS_RUN and bool(asked & attacked_labels(job, "features")) and inversion not in named
    # The default reads what stands exactly in a release. A grade says a little of every column.
    if grades_rows(job, party) and job.parties[party].audit.catalogue in CATALOGUES:
        kinds = (kind for kind in REGISTRY.values() if issubclass(kind, FeatureAttack) and kind.graded)
        return [kind() for kind in kinds if job.task in kind.tasks]
    return [*named, inversion] if compared else named


def _cases_for(
    needs: frozenset[Need], cases: Mapping[Need | None, Callable[[], Iterable[FeatureCase]]]
) -> Iterable[FeatureCase]:
    if len(needs) <= 1 and (need := min(needs, default=None)) in cases:
        return cases[need]()
    wanted = f"an attack on features that needs one of: {'; '.join(in_words(filter(None, cases)))}"
    raise NotApplicable.expected(wanted, "; ".join(sorted(in_words(needs))) or "none")


def release_cases(job: Job, run: RunFolder, folder: RunFolder, party: str) -> list[FeatureCase]:
    """One case for each release that was recorded: some rows are known to the attacker, all other rows are attacked.

    Args:
        job: The job as run.
        run: Folder of the run.
        folder: Folder of the run that holds the encoded rows.
        party: Name of the passive party.

    Raises:
        NotApplicable: Nothing was recorded.
    """
    store = Store.open(folder.data(party))
    cases = []
    for name, rows, embeddings in _recorded(job, run, party):
        indices = auxiliary_indices(len(rows), job.train.seed)
        known = Auxiliary(store.columns, indices, *store.gather(rows[indices]))
        truth = store.gather(rows[known.unknown(len(rows))])
        view = FeatureView(party, rows, embeddings)
        knowledge = Knowledge(auxiliary_rows=known)
        cases.append(FeatureCase(name, view, knowledge, truth, job.parties[party].audit.attribute))
    return cases


def unknown_cases(job: Job, run: RunFolder, folder: RunFolder, party: str) -> Iterator[FeatureCase]:
    """As `release_cases`, for an attacker who knows no row.

    Raises:
        NotApplicable: Nothing was recorded.
    """
    table = _Table(folder.data(party))
    for name, rows, embeddings in _recorded(job, run, party):
        yield table.case(name, FeatureView(party, rows, embeddings), Knowledge())


def population_cases(job: Job, run: RunFolder, folder: RunFolder, party: str) -> Iterator[FeatureCase]:
    """As `unknown_cases`, for an attacker who knows other rows; where all rows were released these are left out.

    Raises:
        NotApplicable: Nothing was recorded.
    """
    table = _Table(folder.data(party))
    for name, rows, embeddings in _recorded(job, run, party):
        unreleased = torch.ones(table.store.rows, dtype=torch.bool)
        unreleased[rows] = False
        others = unreleased.nonzero().flatten()
        kept = torch.ones(len(rows), dtype=torch.bool)
        if len(others) >= 2 * MAX_AUXILIARY_ROWS:
            others = others[auxiliary_indices(len(others), job.train.seed)]
        else:
            indices = auxiliary_indices(len(rows), job.train.seed)
            others, kept[indices] = rows[indices], False
        known = Auxiliary(table.store.columns, torch.zeros(0, dtype=torch.int64), *table.store.gather(others))
        yield table.case(name, FeatureView(party, rows[kept], embeddings[kept]), Knowledge(other_rows=known))


class _Table:
    """A party's encoded rows and their encoder, in its folder of data."""

    def __init__(self, folder: Path) -> None:
        self.store = Store.open(folder)
        self._encoder = Encoder.from_json((folder / ENCODER_FILE).read_bytes())

    def case(self, name: str, view: FeatureView, knowledge: Knowledge) -> FeatureCase:
        """All rows of a view are attacked."""
        return case_of_all(name, view, knowledge, self.store.gather(view.rows), self._encoder)


def case_of_all(
    name: str, view: FeatureView, knowledge: Knowledge, truth: tuple[Tensor, Tensor], encoder: Encoder
) -> FeatureCase:
    """The case of an attack on all rows of a view.

    Args:
        name: Which release of the rows it is.
        view: The attacker's view, (n, width).
        knowledge: What the attacker is assumed to know besides; no row of the view.
        truth: Encoded codes, int32 (n, c), and numbers, float32 (n, d).
        encoder: The party's encoder, which gives the numbers in the units of the table.
    """
    numbers = truth[1]
    restored = [torch.from_numpy(s.restored(numbers[:, index].numpy())) for index, s in enumerate(encoder.numbers)]
    own = torch.stack(restored, dim=1) if restored else numbers[:, :0].double()
    return FeatureCase(name, view, knowledge, truth, columns=encoder.columns, numbers=own)


def _recorded(job: Job, run: RunFolder, party: str) -> list[Release]:
    releases = [] if job.parties[party].audit.every == "never" else recorded_releases(job, run, party)
    if not releases:
        raise NotApplicable(UNRECORDED.format(party))
    return releases


def white_box_cases(
    job: Job, releases: Callable[[], list[FeatureCase]], folder: RunFolder, party: str
) -> list[FeatureCase]:
    """The releases of one embedding for each row, with the initial weights of the party's bottom model.

    Args:
        job: The job as run.
        releases: Returns the cases of `release_cases`.
        folder: Folder of the run that holds the encoded rows.
        party: Name of the passive party.

    Raises:
        NotApplicable: Nothing was recorded, or the party released once.
    """
    if Phase.RELEASE in job.phases_of(party):
        raise NotApplicable(NO_SHADOW.format(party))
    cases = releases()
    with random_state_under(starting_keys(folder.path, [party])[party]):
        bottom = bottom_of(job, party, Store.open(folder.data(party)).columns.inputs)
    return [
        replace(case, knowledge=replace(case.knowledge, initial_bottom=bottom))
        for case in cases
        if case.view.embeddings.shape[1] == bottom.width  # and not of several epochs side by side
    ]


def shadow_cases(job: Job, party: str, room: Callable[[], ShadowRoom]) -> list[FeatureCase]:
    """The one case of attacks on membership: training rows and held-out rows, under the final models of a run.

    Raises:
        NotApplicable: The other parties ran elsewhere, or a party released once.
    """
    shadows = _open_room(job, room)
    return [
        FeatureCase(
            REPLAYED_RELEASE, shadows.view(party), Knowledge(shadow_rows=shadows.shadows(party)), shadows.member
        )
    ]


def simulator_cases(job: Job, party: str, room: Callable[[], ShadowRoom]) -> list[FeatureCase]:
    """The one case of attacks by a simulated bottom model: the rows of `shadow_cases`, the features of some known.

    Raises:
        NotApplicable: The other parties ran elsewhere, or a party released once.
    """
    shadows = _open_room(job, room)
    view = shadows.view(party)
    store = shadows.stores[party]
    indices = auxiliary_indices(len(view.rows), job.train.seed)
    known = Auxiliary(store.columns, indices, *store.gather(view.rows[indices]))
    knowledge = Knowledge(auxiliary_rows=known, simulator=shadows.simulation(party))
    return [FeatureCase(REPLAYED_RELEASE, view, knowledge, store.gather(view.rows[known.unknown(len(view.rows))]))]


def _open_room(job: Job, room: Callable[[], ShadowRoom]) -> ShadowRoom:
    shadows = room()
    for other in job.passives:
        if Phase.RELEASE in job.phases_of(other):
            raise NotApplicable(NO_SHADOW.format(other))
    return shadows
