"""Studies: trainings that run once each, and a page that compares their results with a paper."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from cutlayer.audit.leak import BEST_ASSIGNMENT
from cutlayer.config import Job, near_miss
from cutlayer.consent import allowed
from cutlayer.errors import ConfigError, LockHeld
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.results.leaks import LayerLeak, LeakResult
from cutlayer.results.run import RunKind
from cutlayer.storage.durable import locked, make_folder, write_whole
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from studies.page import Page
from studies.provenance import provenance
from studies.results import Results, TrialResult, distance_from_chance

ASSIGNED = "best assignment"
"""Suffix of an attack that finds classes, for its leak under the names that fit the truth best."""


@dataclass(frozen=True)
class Trial:
    """One training of a study.

    Attributes:
        group: Data set and network, such as `Criteo`.
        setting: What is varied, such as `sum_kl 0.16`.
        seed: Seed of the training, 1 or more.
        job: Job to run.
        tables: Tables in memory by party, where the job names no files.
    """

    group: str
    setting: str
    seed: int
    job: Job
    tables: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def key(self) -> tuple[str, str, int]:
        """Group, setting and seed, as of its `TrialResult`."""
        return self.group, self.setting, self.seed

    @property
    def slug(self) -> str:
        """A file name."""
        text = f"{self.group} {self.setting} seed {self.seed}"
        return "".join(letter if letter.isalnum() or letter in ".-" else "_" for letter in text)


class Study(ABC):
    """One paper's tables and figures, rerun.

    Attributes:
        name: Name, as in `python -m studies NAME`.
        title: Title of the page.
        source: Papers whose claims are judged.
        advice: What a reader should do after reading the results, in a few sentences.
        settings: Data, network and schedule, and what differs from the paper's; Markdown paragraphs.
        full_settings: The same for the paper's sizes; empty where a study has one size.

    Args:
        full: Run the paper's sizes.

    Raises:
        ConfigError: `full` of a study that has one size.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    advice: ClassVar[str] = ""
    settings: ClassVar[str]
    full_settings: ClassVar[str] = ""

    def __init__(self, *, full: bool = False) -> None:
        if full and not self.full_settings:
            raise ConfigError.expected("a study of two sizes with --full", self.name, "leave --full out")
        self.full = full

    @abstractmethod
    def trials(self, data: Path, seeds: int) -> Iterator[Trial]:
        """All trainings in the order in which they are run.

        Args:
            data: Folder of data sets.
            seeds: Number of seeds of each setting.
        """

    def train(self, trial: Trial, work: Path, progress: Progress) -> dict[str, Any]:
        """Train in the folder `work`; returns the attributes of `TrialResult` as JSON values."""
        return run_trial(self, trial, work, progress)

    def measure(self, trial: Trial, folder: RunFolder) -> dict[str, Any]:
        """Further values of one training, from its run folder before that is removed; JSON values."""
        return {}

    @abstractmethod
    def page(self, results: Results) -> Page:
        """The body of the page: claims of the paper and their verdicts, tables and figures."""


@dataclass(frozen=True)
class Scope:
    """The trainings of a study that a command runs.

    Attributes:
        seeds: Number of seeds of each setting.
        groups: Data sets; all if empty.
        settings: Names of settings; all if empty.
        known: Keys of the trainings that have results elsewhere and are not run again.
    """

    seeds: int
    groups: Collection[str] = ()
    settings: Collection[str] = ()
    known: Collection[tuple[str, str, int]] = ()

    def trials(self, study: Study, data: Path) -> Iterator[Trial]:
        """Those trainings in the order of the study.

        Raises:
            ConfigError: the study has no such group, or no such setting in these groups.
        """
        unmet = {"--group": set(self.groups), "--setting": set(self.settings)}
        seen: dict[str, set[str]] = {"--group": set(), "--setting": set()}
        for trial in study.trials(data, self.seeds):
            seen["--group"].add(trial.group)
            if self.groups and trial.group not in self.groups:
                continue
            seen["--setting"].add(trial.setting)
            if (not self.settings or trial.setting in self.settings) and trial.key not in self.known:
                yield trial
        for option, names in unmet.items():
            for name in names - seen[option]:
                raise ConfigError(f"unknown {option} {name!r}{near_miss(name, sorted(seen[option]))}")


def run_trials(study: Study, data: Path, out: Path, scope: Scope, progress: Progress) -> list[TrialResult]:
    """Run every training of a scope that has no result in `out` yet, and return the results of the scope.

    Processes of one machine or of several may share `out`: each training is claimed by a lock file, which the operating
    system frees when its process ends, however it ends. An interrupted study continues with the next training.

    Args:
        study: Study to run.
        data: Folder of data sets.
        out: Folder of results; between machines, on a file system whose locks they share, such as NFS.
        scope: Trainings to run.
        progress: Observer of the trainings.
    """
    folder = out / ("trials-full" if study.full else "trials")
    make_folder(folder, mode=0o755)
    while True:
        results, elsewhere = [], []
        for trial in scope.trials(study, data):
            path = folder / f"{trial.slug}.json"
            if not path.exists() and not _claimed_and_run(study, trial, path, out, progress):
                elsewhere.append(path)
            elif not elsewhere:
                results.append(TrialResult(**json.loads(path.read_text(encoding="utf-8"))))
        if not elsewhere:
            return results
        progress.stage(f"waiting for {len(elsewhere)} of other processes")
        with locked(_lock_of(elsewhere[0]), "waiting", wait=True):
            pass  # its process has finished the training, or has ended without


def _claimed_and_run(study: Study, trial: Trial, path: Path, out: Path, progress: Progress) -> bool:
    """Run a training and write its result, unless another process is at it."""
    with ExitStack() as claim:
        try:
            claim.enter_context(locked(_lock_of(path), f"the training {trial.slug}"))
        except LockHeld:
            return False
        if not path.exists():  # another process may have finished it in between
            progress.stage(f"{trial.group}: {trial.setting}, seed {trial.seed}")
            result = {**study.train(trial, out / f"work-{trial.slug}", progress), **provenance()}
            write_whole(path, json.dumps(result), mode=0o644)
    return True


def _lock_of(path: Path) -> Path:
    return path.with_suffix(".lock")


def run_trial(study: Study, trial: Trial, work: Path, progress: Progress) -> dict[str, Any]:
    """Run the trial's job and read the study's values from its run folder, which is then removed."""
    shutil.rmtree(work, ignore_errors=True)
    keys = Keys(work.parent / "keys", study_key(trial.job), simulated=True)
    with allowed("studies", "cutlayer_published"):  # models and protections that are not of the package
        folder = execute(trial.job, work, Options(keys, tables=trial.tables), progress)
        measured = study.measure(trial, folder)
    summary, audit = folder.summary, folder.audit.runs[RunKind.THIS_RUN]
    leaks = worst_leaks(audit.leaks)
    layers = {f"{layer.party}/{layer.layer}": _worst(layer) for layer in audit.layers}
    shutil.rmtree(work)
    return {
        "group": trial.group,
        "setting": trial.setting,
        "seed": trial.seed,
        "metric": summary.utility.rows[0].metrics[summary.utility.metric],
        "seconds": summary.run.seconds,
        "leaks": leaks,
        "layers": layers,
        "measured": measured,
    }


def study_key(job: Job) -> bytes:
    """Key of all parties in a study's trainings of one seed, 32 bytes.

    It is no secret: a study's data are public. Under it all settings of a seed start from the same weights and can be
    compared, and another seed has other weights, noise and draws.
    """
    return hashlib.blake2b(f"cutlayer study {job.train.seed}".encode(), digest_size=32).digest()


def worst_leaks(results: Sequence[LeakResult]) -> dict[str, dict[str, float]]:
    """By `message/attack`, the leak from the passive party that leaks most, as in `TrialResult.leaks`.

    An attack that finds classes but cannot name them has a second entry, `message/attack, best assignment`: its leak
    under the best names, at that party and epoch.

    Args:
        results: Leaks of messages.
    """
    worst: dict[str, dict[str, float]] = {}
    # The published attacks are those of one party.
    for result in (result for result in results if not result.together):
        key = f"{result.message}/{result.attack}"
        entries = {key: _worst(result)}
        assigned = result.other_aucs.get(BEST_ASSIGNMENT)
        if assigned is not None:
            entries[f"{key}, {ASSIGNED}"] = {**entries[key], "auc": assigned}
        for name, entry in entries.items():
            if name not in worst or distance_from_chance(entry["auc"]) > distance_from_chance(worst[name]["auc"]):
                worst[name] = entry
    return worst


def _worst(result: LeakResult | LayerLeak) -> dict[str, float]:
    values = {"auc": result.batch_auc, "epoch": result.epoch, "last": result.last_epoch_leak}
    return {key: math.nan if value is None else value for key, value in values.items()}
