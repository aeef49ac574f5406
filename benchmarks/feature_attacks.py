"""What the attacks on features recover of undefended embeddings: `inversion`, `exact` and `sdar`, on Adult and Criteo.

Adult: the three parties of `examples/adult.yaml` without protections. Criteo: the two parties of the studies, all
features at the passive one. Training, auxiliary rows and the mean over the columns are those of `cutlayer run`.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutlayer.config import Job, validated
from cutlayer.errors import DataError
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.results.features import FeatureResult
from cutlayer.results.run import RunKind
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from studies.datasets import criteo, example_job

ATTACKS = ("inversion", "exact", "sdar")
DATA = Path(__file__).parents[2] / "shared" / "data"
DATASETS = ("Adult", "Criteo")
AUDIT: Mapping[str, Any] = {"layers": False}
EPOCHS: Mapping[str, int] = {"Adult": 6, "Criteo": 12}


@dataclass(frozen=True)
class Recovered:
    """One attack on one party's columns; each value is the mean over the seeds.

    Attributes:
        dataset: `Adult` or `Criteo`.
        party: Owner of the columns.
        attack: Name of the attack.
        release: Release of the embeddings that it read, where it read the party's columns best.
        known: Number of rows whose columns the attacker had.
        r2: R² of the columns, their mean; 1 is a perfect copy, 0 the mean of each column.
        spread: Standard deviation of it over the seeds; 0 for one seed.
        other_columns: R² of the same attack on the columns of all other parties in place of the embedding; `None`
            where they have none, or where the attack needs a model.
        best_column: R² of the column that is recovered best, by the mean over the seeds.
    """

    dataset: str
    party: str
    attack: str
    release: str
    known: int
    r2: float
    spread: float
    other_columns: float | None
    best_column: tuple[str, float]


@dataclass(frozen=True)
class FeatureAttacksResult:
    """All attacks; `skipped` names data sets that are not there."""

    name: str
    seeds: int
    attacks: tuple[Recovered, ...]
    skipped: tuple[str, ...]


def feature_attacks(seeds: int) -> FeatureAttacksResult:
    """Train and attack each data set with the seeds 1, 2, ..."""
    found: dict[tuple[str, str, str], list[FeatureResult]] = defaultdict(list)
    skipped = []
    for dataset in DATASETS:
        try:
            for seed in range(1, seeds + 1):
                for (party, attack), result in _attacked(_job(dataset, seed)).items():
                    found[dataset, party, attack].append(result)
        except DataError:
            skipped.append(dataset)
    attacks = tuple(_summary(*names, results) for names, results in found.items())
    return FeatureAttacksResult("feature_attacks", seeds, attacks, tuple(skipped))


def _job(dataset: str, seed: int) -> Job:
    """The undefended job, whose audit attacks features alone."""
    job = example_job() if dataset == "Adult" else criteo(DATA, seed, {}, ())
    raw: dict[str, Any] = job.model_dump(mode="json", exclude_none=True)
    for party in raw["parties"].values():
        party["privacy"] = {}
        attacks = ATTACKS if party["role"] == "passive" else ()
        party["audit"] = {**party.get("audit", {}), "attacks": attacks, **AUDIT}
    raw["train"] |= {"seed": seed, "threads": 1, "epochs": EPOCHS[dataset]}
    return validated(Job, raw | {"compare": []}, dataset)


def _attacked(job: Job) -> dict[tuple[str, str], FeatureResult]:
    """By party and attack, the result on the release from which it recovers most."""
    with tempfile.TemporaryDirectory(prefix="cutlayer-bench-") as scratch:
        folder = RunFolder(Path(scratch) / "run")
        execute(job, folder.path, Options(Keys(Path(scratch))), Progress())
        results = folder.audit.features
    best: dict[tuple[str, str], FeatureResult] = {}
    for result in results:
        names = result.party, result.attack
        if result.run == RunKind.THIS_RUN and (names not in best or (result.value or 0) > (best[names].value or 0)):
            best[names] = result
    return best


def _summary(dataset: str, party: str, attack: str, results: list[FeatureResult]) -> Recovered:
    values = [result.value or 0.0 for result in results]
    others = [result.other_columns for result in results if result.other_columns is not None]
    columns = defaultdict(list)
    for result in results:
        for column in result.columns:
            columns[column.column].append(column.value or 0.0)
    means = {name: round(statistics.mean(each), 3) for name, each in columns.items()}
    return Recovered(
        dataset,
        party,
        attack,
        results[0].release,
        results[0].known,
        round(statistics.mean(values), 3),
        round(statistics.stdev(values), 3) if len(values) > 1 else 0.0,
        round(statistics.mean(others), 3) if others else None,
        max(means.items(), key=lambda item: item[1]),
    )
