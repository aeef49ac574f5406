"""One trial: a run of the job at one point, and its utility and leak."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cutlayer.attacks import resolve
from cutlayer.attacks.base import Attack
from cutlayer.config import Job
from cutlayer.errors import ConfigError, DataError, RunFolderError
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.parties.session.observer import Relay
from cutlayer.results.audit import RunAudit
from cutlayer.results.features import FeatureResult
from cutlayer.results.leaks import LeakResult
from cutlayer.results.run import RunKind
from cutlayer_sweep.leak_kind import LeakKind
from cutlayer_sweep.metrics import TrialMetrics


def measure(job: Job, folder: Path, options: Options, leak: LeakKind, progress: Progress) -> TrialMetrics:
    """Run a job and read its utility, leak and columns rebuilt; only the small files of its folder stay.

    Raises:
        CutlayerError: The run failed, or utility or leak cannot be measured.
    """
    ran = execute(job, folder, options, progress)
    summary = ran.summary
    audit = ran.audit.runs[RunKind.THIS_RUN]
    metric = summary.utility.metric
    row = summary.utility.rows[0]
    chosen = next(line for line in ran.history() if line["epoch"] == summary.run.selected_epoch - 1)
    utility, test = chosen["metrics"][metric], row.metrics[metric]
    if math.isnan(utility) or test is None:
        raise DataError(f"{metric} is not defined on the held-out rows; hold out more rows")
    worst = _worst(audit, leak)
    baseline, excesses = audit.baseline(worst.party), audit.excesses()
    read = strongest_on_columns(ran.audit.features)
    chosen_leaks = [result.label for result in audit.leaks if result.message in leak.messages]
    # Checkpoints, transcript and encoded data of hundreds of trials would fill a disk.
    for child in folder.iterdir():
        if child.is_dir():
            shutil.rmtree(child)
    return TrialMetrics(
        utility=utility,
        test=test,
        low=row.low,
        high=row.high,
        leak=worst.leak,
        leak_low=worst.low,
        leak_high=worst.high,
        where=worst.label,
        epoch=worst.epoch,
        seconds=summary.run.seconds,
        columns=baseline.own_columns if baseline else None,
        excess=max((excesses[label] for label in chosen_leaks if label in excesses), default=None),
        rebuilt=read.value if read else None,
        rebuilt_by=f"{read.party}/{read.attack}" if read else "",
    )


REBUILT_METRICS = ("r2", "exact")
"""Metrics of attacks on all columns of a party: R², or the share of the values that is read exactly."""


def strongest_on_columns(features: Iterable[FeatureResult]) -> FeatureResult | None:
    """The attack that reads most of a party's columns in this run; `None` where none is defined."""
    this_run = (result for result in features if result.run == RunKind.THIS_RUN and result.value is not None)
    results = (result for result in this_run if result.metric in REBUILT_METRICS)
    return max(results, key=lambda result: result.value or 0.0, default=None)


def _worst(audit: RunAudit, leak: LeakKind) -> LeakResult:
    """The largest leak, which the report's headline shows too."""
    leaks = [result for result in audit.leaks if result.message in leak.messages]
    if not leaks:
        why = "".join(f"; {attack.label}: {attack.reason}" for attack in audit.skipped)
        raise DataError(f"no leak of the {' or '.join(leak.messages)} messages was measured{why}")
    return max(leaks, key=lambda result: result.leak)


class RenamedProgress(Relay, Progress):
    """Progress of one trial, under the name of the trial.

    Args:
        inner: Shows it.
        name: Name of the trial.
    """

    def __init__(self, inner: Progress, name: str) -> None:
        super().__init__(inner)
        self.inner = inner
        self.name = name

    def stage(self, name: str) -> None:
        """Show the trial's name in place of the stage's."""
        self.inner.stage(self.name)


def check_measured(job: Job, messages: tuple[str, ...]) -> None:
    """Refuse a job whose audit cannot measure a leak of these messages.

    Raises:
        ConfigError: Nothing is recorded, or no attack reads them.
    """
    audit = job.parties[job.active].audit
    where = f"parties.{job.active}.audit"
    if audit.every == "never":
        raise ConfigError.expected(f"{where}.every: epoch or end", "never", "a sweep needs a measured leak")
    resolved = resolve(audit.catalogue, job.task)
    attacks: tuple[Attack[Any, Any], ...] = (*resolved.labels, *resolved.histories)
    if not any(str(target) in messages for attack in attacks for target in attack.reads):
        raise ConfigError.expected(
            f"an attack on the {' or '.join(messages)} messages of a {job.task} job in {where}.attacks",
            ", ".join(attack.name for attack in attacks) or "none",
            "name one there, or choose another --leak",
        )


def check_folder(out: Path, what: str, own: tuple[str, ...]) -> None:
    """Refuse a folder that holds something else than what a search makes, whose names begin with `own`."""
    try:
        foreign = sorted(path.name for path in out.iterdir() if not path.name.startswith(own)) if out.exists() else []
    except OSError as failure:
        raise RunFolderError(f"{out} cannot be used: {failure.strerror}; choose another with --out") from None
    if foreign:
        raise RunFolderError.expected(f"a new folder or that of {what} at {out}", foreign[0], "choose another --out")
