"""What methods without a page of their own do on Adult: `nopeek`, `dp_bottom`, `exploit`, `lira` and `laser`.

Each setting changes one thing of `examples/adult.yaml` without its label DP, seeds 1, 2, ... for the job.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.adult import adult_job, scratch_keys
from cutlayer.config import Job, validated
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.results.run import RunKind
from cutlayer.training.folder import RunFolder

GONE = "census_office"
"""Party without which the model is evaluated too."""


@dataclass(frozen=True)
class Setting:
    """One thing that is changed.

    Attributes:
        privacy: Protections of each passive party.
        features: Attacks on the features of each passive party.
        labels: Attacks on the labels.
        top: Keys of the top model.
    """

    privacy: Mapping[str, Any] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    top: Mapping[str, Any] = field(default_factory=dict)


SETTINGS: Mapping[str, Setting] = {
    "undefended": Setting(features=("inversion", "membership", "lira"), labels=("exploit",)),
    "nopeek 0.1": Setting(privacy={"nopeek": {"alpha": 0.1}}, features=("inversion",)),
    "nopeek 1": Setting(privacy={"nopeek": {"alpha": 1.0}}, features=("inversion",)),
    "dp_bottom, eps 4": Setting(
        privacy={"dp_bottom": {"clip": 1.0, "epsilon": 4.0, "delta": 1e-5}},
        features=("inversion", "membership", "lira"),
    ),
    "laser": Setting(top={"kind": "laser"}),
}
TRAIN: Mapping[str, Any] = {}
"""Changed settings of `train`."""


@dataclass(frozen=True)
class SingleValue:
    """A value over the seeds.

    Attributes:
        setting: Name of the setting.
        what: Test AUC, or the attack with its message and party.
        value: Mean.
        spread: Standard deviation; 0 for one seed.
    """

    setting: str
    what: str
    value: float
    spread: float


@dataclass(frozen=True)
class SingleMethods:
    """All values."""

    name: str
    seeds: int
    values: tuple[SingleValue, ...]


def single_methods(seeds: int) -> SingleMethods:
    """Train and attack every setting with the seeds 1, 2, ..."""
    values = []
    for name, setting in SETTINGS.items():
        read: dict[str, list[float]] = defaultdict(list)
        for seed in range(1, seeds + 1):
            for what, value in _values(job_of(setting, seed), f"{name} {seed}").items():
                read[what].append(value)
        for what, of_seeds in read.items():
            spread = statistics.stdev(of_seeds) if len(of_seeds) > 1 else 0.0
            values.append(SingleValue(name, what, round(statistics.fmean(of_seeds), 3), round(spread, 3)))
    return SingleMethods("single_methods", seeds, tuple(values))


def job_of(setting: Setting, seed: int) -> Job:
    """The job of a setting."""
    job = adult_job({}, {"attacks": setting.labels, "layers": False}, seed=seed, **TRAIN)
    raw = job.model_dump()
    for party in job.passives:
        raw["parties"][party] |= {"privacy": dict(setting.privacy), "audit": {"attacks": setting.features}}
    raw["model"]["top"] = {**raw["model"]["top"], **setting.top}
    return validated(Job, raw, "examples/adult.yaml")


def _values(job: Job, key_name: str) -> dict[str, float]:
    """Test AUC with all parties and without `GONE`; leak, R² or AUC of each attack, the highest and by release."""
    with scratch_keys(key_name) as (scratch, keys):
        folder: RunFolder = execute(job, scratch / "run", Options(keys), Progress())
        summary, audit = folder.summary, folder.audit
    values = {"test AUC": summary.utility.rows[0].metrics["auc"] or 0.0}
    for row in summary.departures.rows:
        if row.absent == (GONE,):
            values[f"test AUC without {GONE}"] = row.metrics["auc"] or 0.0
    for leak in audit.runs[RunKind.THIS_RUN].leaks:
        values[f"{leak.attack} of {leak.message}, {leak.party}"] = leak.leak
    for result in audit.features:
        what = f"{result.attack}, {result.party}"
        values[what] = max(result.value or 0.0, values.get(what, 0.0))
        for which in ("first", "last"):
            if f"the {which} recorded" in result.release:
                values[f"{result.attack} of the {which} release, {result.party}"] = result.value or 0.0
    return values
