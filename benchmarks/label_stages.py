"""Labels that are drawn in one stage and in two, on Adult: what the prior of the second stage gains.

The three parties of `examples/adult.yaml`, 8 epochs, eps 1. Three tasks over the table that ships with the package:
income (two classes), as there, and relationship (6 classes) and education (16), which the bank then holds in place of
the census office. Noise comes from a supplied key: results repeat.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.adult import adult_job, trained
from cutlayer.jobs.options import Progress

EPOCHS, EPS = 8, 1.0
SETTINGS: Mapping[str, tuple[str, str, int]] = {
    f"{label}, correction {correction}, {stages} stage{'s' * (stages > 1)}": (label, correction, stages)
    for correction in ("forward", "none")
    for label in ("income", "relationship", "education")
    for stages in (1, 2)
}
"""Label, loss on drawn labels (the paper's is `none`), and number of stages."""


@dataclass(frozen=True)
class Staged:
    """One setting; each value is the mean over the seeds.

    Attributes:
        setting: its name.
        metrics: metrics on test rows.
        spread: standard deviation of each over the seeds; 0 for one seed.
        right: share of the drawn labels that are the true ones.
        constant: share of the labels that were drawn from a single class, and so tell nothing.
    """

    setting: str
    metrics: Mapping[str, float]
    spread: Mapping[str, float]
    right: float
    constant: float


@dataclass(frozen=True)
class LabelStagesResult:
    """All settings."""

    name: str
    seeds: int
    settings: tuple[Staged, ...]


def label_stages(seeds: int) -> LabelStagesResult:
    """Train every setting with the seeds 1, 2, ..."""
    settings = []
    for setting, (label, correction, stages) in SETTINGS.items():
        runs = [_trained(label, correction, stages, seed) for seed in range(1, seeds + 1)]
        values = {name: [run[0][name] for run in runs] for name in runs[0][0]}
        settings.append(
            Staged(
                setting,
                {name: round(statistics.mean(all_of), 4) for name, all_of in values.items()},
                {name: round(statistics.stdev(all_of), 4) if seeds > 1 else 0.0 for name, all_of in values.items()},
                round(statistics.mean(1 - run[1]["flipped_share"] for run in runs), 3),
                round(statistics.mean(run[1].get("constant_labels", 0) / run[1]["rows"] for run in runs), 3),
            )
        )
    return LabelStagesResult("label_stages", seeds, tuple(settings))


def _trained(label: str, correction: str, stages: int, seed: int) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Test metrics, and the protection's own numbers."""
    privacy = {"label_dp": {"eps": EPS, "stages": stages, "changed_labels": "redraw", "correction": correction}}
    audit = {"attacks": [], "every": "never"}
    task = "binary" if label == "income" else "multiclass"
    job = adult_job(privacy, audit, label=label, task=task, seed=seed, epochs=EPOCHS)
    run = trained(job, f"{label} {EPS} {seed}", Progress())
    (evidence,) = (evidence for evidence in run.active.evidence if evidence.protection == "label_dp")
    return run.active.metrics, evidence.metrics
