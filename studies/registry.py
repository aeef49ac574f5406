"""The studies by name, and the two things to do with one: run it, or write its page again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from cutlayer.config import near_miss
from cutlayer.errors import ConfigError
from cutlayer.jobs.options import Progress
from cutlayer.storage.durable import locked
from studies.adaptive_audit.study import AdaptiveAuditStudy
from studies.clip_bound.study import ClipBoundStudy
from studies.departures.study import DeparturesStudy
from studies.embedding_budget.study import EmbeddingBudgetStudy
from studies.feature_privacy.study import FeaturePrivacyStudy
from studies.forward_leakage.study import ForwardLeakageStudy
from studies.gradient_leakage.study import GradientLeakageStudy
from studies.label_dp.study import LabelDPStudy
from studies.label_free.study import LabelFreeStudy
from studies.malicious.study import MaliciousStudy
from studies.model_completion.study import ModelCompletionStudy
from studies.reasons.study import ReasonsStudy
from studies.record import Record, write_page
from studies.results import TrialResult
from studies.trials import Scope, Study, run_trials
from studies.workers import run_in_workers

STUDIES: Mapping[str, type[Study]] = {
    study.name: study
    for study in (
        ForwardLeakageStudy,
        GradientLeakageStudy,
        LabelDPStudy,
        DeparturesStudy,
        ModelCompletionStudy,
        EmbeddingBudgetStudy,
        FeaturePrivacyStudy,
        ClipBoundStudy,
        AdaptiveAuditStudy,
        LabelFreeStudy,
        MaliciousStudy,
        ReasonsStudy,
    )
}


def study_named(name: str) -> type[Study]:
    """The study of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in STUDIES:
        raise ConfigError(f"unknown study {name!r}{near_miss(name, list(STUDIES))}")
    return STUDIES[name]


def run_study(
    name: str, data: Path, out: Path, scope: Scope, progress: Progress, *, full: bool = False, workers: int = 1
) -> Record:
    """Run the trainings that have no result yet, then write `NAME.json`, `NAME.md` and `figures/`.

    Args:
        name: Name of a registered study.
        data: Folder of data sets.
        out: Folder of results; a training that has its result there, in `NAME.json` or `trials/`, is not run again.
        scope: Trainings to run; its `known` is taken from `NAME.json`.
        progress: Observer of the trainings.
        full: Whether to run the paper's sizes instead of those for a CPU.
        workers: Number of processes that train at a time; others, on this machine or another, may work in `out` too.

    Raises:
        ConfigError: no such study, group or setting, no seed or worker, or `full` of a study that has one size.
        DataError: a data set is missing.
    """
    kind = study_named(name)
    if scope.seeds < 1:
        raise ConfigError.expected("--seeds of 1 or more", scope.seeds)
    if workers < 1:
        raise ConfigError.expected("--workers of 1 or more", workers)
    study = kind(full=full)
    scope = replace(scope, known={result.key for result in _recorded(study, out)})
    if workers > 1:
        progress.stage(f"{workers} workers")
        run_in_workers(kind, data, out, scope, workers, full=full)
    new = run_trials(study, data, out, scope, progress)
    with locked(out / "study.lock", f"the page of {name}", wait=True):  # of several processes that end at once
        results = {result.key: result for result in (*_recorded(study, out), *new)}
        seeds = max([scope.seeds, *(seed for _, _, seed in results)])
        order = [trial.key for trial in study.trials(data, seeds)]
        record = Record.of(study, [results[key] for key in order if key in results], seeds, out)
        record.save(out)
        write_page(study, record, out)
    return record


def _recorded(study: Study, out: Path) -> tuple[TrialResult, ...]:
    """Results of `NAME.json`, if there is one of the same sizes."""
    path = out / f"{study.name}.json"
    record = Record.load(path) if path.exists() else None
    return record.results if record is not None and record.full == study.full else ()


def render_study(name: str, records: Path, pages: Path) -> Record:
    """Write `NAME.md` and `figures/` in `pages` again from `NAME.json` in `records`; nothing is trained.

    Raises:
        ConfigError: no such study, or no results of it in the folder.
    """
    kind = study_named(name)
    record = Record.load(records / f"{name}.json")
    write_page(kind(full=record.full), record, pages)
    return record
